package privsep

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/seccomp"
)

// connectionFD is the worker's descriptor of the connection, firstFile that of the first further file.
const (
	connectionFD = 3
	firstFile    = 4
)

// Enter makes this process, which Worker.Start has started, ready to parse hostile input, and returns its end of the connection
// and the n further files. It checks that the process has no privileges, and installs a filter of system calls on all threads: the process can no longer
// execute programs, trace, mount, make namespaces or load programs into the kernel.
func Enter(handlers map[string]Handler, n int) (*Conn, []*os.File, error) {
	if err := checkPowerless(); err != nil {
		return nil, nil, err
	}
	if err := limit(); err != nil {
		return nil, nil, err
	}
	filter, err := filter()
	if err != nil {
		return nil, nil, err
	}
	if err := seccomp.Install(filter, true); err != nil {
		return nil, nil, err
	}
	socket, err := Socket(os.NewFile(connectionFD, "connection"))
	if err != nil {
		return nil, nil, fmt.Errorf("this command is started by custody itself: %w", err)
	}
	var files []*os.File
	for i := range n {
		unix.CloseOnExec(firstFile + i)
		files = append(files, os.NewFile(uintptr(firstFile+i), "inherited"))
	}
	return New(socket, handlers), files, nil
}

// Restrict takes from this process, which has no privileges, all threads and the programs that it starts what only an attacker would use: to gain
// privileges with a program, and the system calls of seccomp.Confining.
func Restrict() error {
	rules := seccomp.Confining()
	rules.RefuseNamespaces()
	filter, err := seccomp.Filter(rules, seccomp.LastCall)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil { // the other threads get it with the filter
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return seccomp.Install(filter, true)
}

// checkPowerless returns an error if the process is root's, has a capability or can gain one.
func checkPowerless() error {
	var data [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0]); err != nil {
		return err
	}
	for _, d := range data {
		if d.Effective|d.Permitted|d.Inheritable != 0 {
			return errors.New("the worker has capabilities")
		}
	}
	real, effective, saved := unix.Getresuid()
	if real == 0 || effective == 0 || saved == 0 {
		return errors.New("the worker runs as root")
	}
	if set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || set != 1 {
		return errors.Join(errors.New("the worker can gain privileges"), err)
	}
	return nil
}

// maxOpen limits the descriptors of a worker.
const maxOpen = 65536

// limit sets the process's limits for core files, which would contain credentials, and for descriptors.
func limit() error {
	var open unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &open); err != nil {
		return err
	}
	open.Max = min(open.Max, maxOpen)
	open.Cur = open.Max
	return errors.Join(unix.Setrlimit(unix.RLIMIT_NOFILE, &open), unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}))
}

// The commands of bpf(2) that a worker can use: those on maps that it has been given.
const (
	bpfMapLookup          = 1
	bpfMapUpdate          = 2
	bpfMapDelete          = 3
	bpfMapGetNextKey      = 4
	bpfGetInfoByFD        = 15
	bpfMapLookupAndDelete = 21
	bpfMapLookupBatch     = 24
	bpfMapDeleteBatch     = 27
)

// deviceSettings refuses the commands of ioctl(2) that change a TAP, or open its network namespace: a worker that has one only carries
// frames. Terminals have smaller numbers of the same type, 'T'.
var deviceSettings = []bpf.Instruction{
	bpf.LoadAbsolute{Off: seccomp.OffsetArgs + 8, Size: 4},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SIOCSIFHWADDR, SkipTrue: 6},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SIOCGSKNS, SkipTrue: 5},
	bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xffff}, // type and number
	bpf.JumpIf{Cond: bpf.JumpLessThan, Val: unix.TUNSETNOCSUM & 0xffff, SkipTrue: 2},
	bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: 'T'<<8 | 0xff, SkipTrue: 1},
	seccomp.Return(seccomp.Perm),
	seccomp.Return(seccomp.Allow),
	seccomp.Return(seccomp.Perm),
}

// filter returns the worker's seccomp filter.
func filter() ([]bpf.RawInstruction, error) {
	rules := seccomp.Confining()
	rules.RefuseNamespaces()
	rules.Refuse(unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_PERSONALITY, unix.SYS_SECCOMP, unix.SYS_MKNODAT, unix.SYS_NAME_TO_HANDLE_AT)
	rules[unix.SYS_BPF] = seccomp.RefuseOthers(0, []uint32{
		bpfMapLookup, bpfMapUpdate, bpfMapDelete, bpfMapGetNextKey, bpfGetInfoByFD, bpfMapLookupAndDelete, bpfMapLookupBatch, bpfMapDeleteBatch,
	}, seccomp.Perm)
	rules[unix.SYS_IOCTL] = deviceSettings
	rules.Refuse(unix.SYS_LISTEN) // it gets sockets that listen
	// No unix sockets: those of the host without a path are reachable in its network namespace.
	rules[unix.SYS_SOCKET] = seccomp.Sockets(seccomp.Perm, unix.AF_INET, unix.AF_INET6)
	return seccomp.Filter(rules, seccomp.LastCall)
}
