package cell

import (
	"fmt"
	"math"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Verdicts of a seccomp filter, from seccomp(2).
const (
	verdictAllow = unix.SECCOMP_RET_ALLOW
	verdictKill  = unix.SECCOMP_RET_KILL_PROCESS
	verdictPerm  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	verdictNoSys = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	verdictNoAF  = unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)
	verdictInval = unix.SECCOMP_RET_ERRNO | uint32(unix.EINVAL)
)

// Offsets in struct seccomp_data.
const (
	offsetNr   = 0
	offsetArch = 4
	offsetArgs = 16
)

// lastCall is the last system call of Linux 6.1, for which the list below was
// written. Later ones get the answer of an older kernel.
const lastCall = 450

// newNamespaces are the flags of clone(2) and unshare(2) that make namespaces:
// with a user namespace come capabilities, and with them most of a kernel's surface.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWTIME

// denied are the calls that no step needs and that affect what a cell must not:
// the kernel's code, its clock, mounts, other namespaces, keys of others, the
// sensors' mechanisms, and interfaces that are mostly known for exploits.
var denied = []uint32{
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_FANOTIFY_INIT, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_SYSLOG,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_MOUNT_SETATTR, unix.SYS_SETNS,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_PROCESS_VM_WRITEV, // holds pages of a mapping that can be gone when it writes them
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_USERFAULTFD,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_REBOOT, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_NFSSERVCTL,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP,
}

// filter returns the cell's seccomp filter. It is one linear program only up to
// the number's exact match, which a binary search finds: the kernel walks
// through it once for every call when it is put in place.
func filter() ([]bpf.RawInstruction, error) {
	rules := map[uint32][]bpf.Instruction{
		unix.SYS_CLONE3:  {ret(verdictNoSys)}, // its flags are in memory, which a filter cannot read; libc falls back to clone
		unix.SYS_CLONE:   refuse(0, newNamespaces, verdictPerm),
		unix.SYS_UNSHARE: refuse(0, newNamespaces, verdictPerm),
		unix.SYS_SOCKET:  sockets(),
		// No direct I/O, as on a file system that has none: a direct read into a mapping of a file
		// writes to the file after the mapping has ended, when no one counts as its writer.
		unix.SYS_OPENAT:  refuse(2, unix.O_DIRECT, verdictInval),
		unix.SYS_OPENAT2: {ret(verdictNoSys)}, // its flags are in memory; callers fall back to openat
		unix.SYS_FCNTL:   setFlags(),
	}
	archRules(rules)
	for _, nr := range slices.Concat(denied, archDenied) {
		rules[nr] = []bpf.Instruction{ret(verdictPerm)}
	}
	numbers := slices.Sorted(func(yield func(uint32) bool) {
		for nr := range rules {
			if !yield(nr) {
				return
			}
		}
	})
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		ret(verdictKill), // 32-bit calls on a 64-bit kernel
		bpf.LoadAbsolute{Off: offsetNr, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32Bit, SkipTrue: 1},
		ret(verdictPerm),
		bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: lastCall, SkipTrue: 1},
		ret(verdictNoSys),
	}
	tree, err := search(numbers, rules)
	if err != nil {
		return nil, err
	}
	return bpf.Assemble(append(program, tree...))
}

// search finds the number in the accumulator among the sorted numbers, runs its rule, and allows every other.
func search(numbers []uint32, rules map[uint32][]bpf.Instruction) ([]bpf.Instruction, error) {
	if len(numbers) == 0 {
		return []bpf.Instruction{ret(verdictAllow)}, nil
	}
	if len(numbers) == 1 {
		rule := rules[numbers[0]]
		return append([]bpf.Instruction{
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: numbers[0], SkipTrue: 1}, ret(verdictAllow),
		}, rule...), nil
	}
	mid := len(numbers) / 2
	low, err := search(numbers[:mid], rules)
	if err != nil {
		return nil, err
	}
	high, err := search(numbers[mid:], rules)
	if err != nil {
		return nil, err
	}
	if len(low) > math.MaxUint16 {
		return nil, fmt.Errorf("seccomp filter is too long: %d instructions", len(low))
	}
	head := []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: numbers[mid], SkipTrue: 1},
		bpf.Jump{Skip: uint32(len(low))},
	}
	return slices.Concat(head, low, high), nil
}

// refuse refuses a call that has any of the bits in the low half of an argument.
func refuse(arg, bits, verdict uint32) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArgs + 8*arg, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: bits, SkipFalse: 1},
		ret(verdict),
		ret(verdictAllow),
	}
}

// setFlags refuses direct I/O for a file that is open already.
func setFlags() []bpf.Instruction {
	return append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArgs + 8, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.F_SETFL, SkipTrue: 1},
		ret(verdictAllow),
	}, refuse(2, unix.O_DIRECT, verdictInval)...)
}

// sockets lets through unix, IPv4 and IPv6 sockets and the routing netlink that
// libc lists interfaces with; raw packets, vsock, kernel crypto, audit and the rest are not there.
func sockets() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArgs, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_UNIX, SkipTrue: 6},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET, SkipTrue: 5},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET6, SkipTrue: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.AF_NETLINK, SkipTrue: 2},
		bpf.LoadAbsolute{Off: offsetArgs + 16, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.NETLINK_ROUTE, SkipTrue: 1},
		ret(verdictNoAF),
		ret(verdictAllow),
	}
}

func ret(verdict uint32) bpf.Instruction { return bpf.RetConstant{Val: verdict} }
