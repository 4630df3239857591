package takeover

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/seccomp"
)

// filter is a seccomp filter.
type filter struct{ *bpf.VM }

// filtersOf returns the filters of a traced thread.
func filtersOf(tid int) (all []filter, err error) {
	const getFilter = 0x420c // PTRACE_SECCOMP_GET_FILTER
	for i := uintptr(0); ; i++ {
		n, _, errno := unix.Syscall6(unix.SYS_PTRACE, getFilter, uintptr(tid), i, 0, 0, 0)
		if errno == unix.ENOENT || errno == unix.EINVAL && i == 0 { // no more; none
			return all, nil
		}
		if errno != 0 {
			return nil, fmt.Errorf("read the seccomp filter (needs a kernel with CONFIG_CHECKPOINT_RESTORE): %w", errno)
		}
		program := make([]unix.SockFilter, n)
		if _, _, errno = unix.Syscall6(unix.SYS_PTRACE, getFilter, uintptr(tid), i, uintptr(unsafe.Pointer(&program[0])), 0, 0); errno != 0 {
			return nil, fmt.Errorf("read the seccomp filter: %w", errno)
		}
		f, err := newFilter(program)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
}

// newFilter returns a filter that can be evaluated.
func newFilter(program []unix.SockFilter) (filter, error) {
	var raw []bpf.RawInstruction
	for _, i := range program {
		raw = append(raw, bpf.RawInstruction{Op: i.Code, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	instructions, decoded := bpf.Disassemble(raw)
	if !decoded {
		return filter{}, errors.New("the seccomp filter has an instruction that is not known")
	}
	vm, err := bpf.NewVM(instructions)
	return filter{vm}, err
}

// killed reports whether a filter ends the process, or the thread, because of a call, or has a signal handler of the process decide.
func (t *Thread) killed(number uintptr, args [6]uintptr) bool {
	// The kernel's struct seccomp_data, whose words the VM reads in the order of the network.
	data := binary.BigEndian.AppendUint32(nil, uint32(number))
	data = binary.BigEndian.AppendUint32(data, seccomp.Arch)
	data = binary.BigEndian.AppendUint64(data, uint64(t.regs.Rip)<<32|uint64(t.regs.Rip)>>32)
	for _, a := range args {
		data = binary.BigEndian.AppendUint64(data, uint64(a)<<32|uint64(a)>>32)
	}
	for _, f := range t.filters {
		verdict, err := f.Run(data)
		if err != nil {
			return true
		}
		switch uint32(verdict) & unix.SECCOMP_RET_ACTION_FULL {
		case unix.SECCOMP_RET_KILL_PROCESS, unix.SECCOMP_RET_KILL_THREAD, unix.SECCOMP_RET_TRAP, unix.SECCOMP_RET_TRACE:
			return true
		}
	}
	return false
}
