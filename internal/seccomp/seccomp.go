// Package seccomp assembles seccomp filters (seccomp(2)) from rules for system calls.
package seccomp

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// What a filter does with a call. Errno is added to one of package unix.
const (
	Allow = unix.SECCOMP_RET_ALLOW
	Kill  = unix.SECCOMP_RET_KILL_PROCESS
	Errno = uint32(unix.SECCOMP_RET_ERRNO)
	Perm  = Errno | uint32(unix.EPERM)
	NoSys = Errno | uint32(unix.ENOSYS)
)

// Offsets in struct seccomp_data.
const (
	OffsetNr   = 0
	OffsetArch = 4
	OffsetArgs = 16
)

// Rules are the instructions that decide on a call, by its number. They end with Return.
type Rules map[uint32][]bpf.Instruction

// Filter returns a filter with the rules. It allows all other calls up to the number last; later ones get the answer of a
// kernel that does not have them. The filter is one linear program only up to the number's exact match, which a binary
// search finds: the kernel walks through it once for every call when it is put in place.
func Filter(rules Rules, last uint32) ([]bpf.RawInstruction, error) {
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: OffsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: Arch, SkipTrue: 1},
		Return(Kill), // 32-bit calls on a 64-bit kernel
		bpf.LoadAbsolute{Off: OffsetNr, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: X32Bit, SkipTrue: 1},
		Return(Perm),
		bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: last, SkipTrue: 1},
		Return(NoSys),
	}
	tree, err := search(slices.Sorted(maps.Keys(rules)), rules)
	if err != nil {
		return nil, err
	}
	return bpf.Assemble(append(program, tree...))
}

// search finds the number in the accumulator among the sorted numbers, runs its rule, and allows every other.
func search(numbers []uint32, rules Rules) ([]bpf.Instruction, error) {
	if len(numbers) == 0 {
		return []bpf.Instruction{Return(Allow)}, nil
	}
	if len(numbers) == 1 {
		return append([]bpf.Instruction{
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: numbers[0], SkipTrue: 1}, Return(Allow),
		}, rules[numbers[0]]...), nil
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

// RefuseBits returns a rule that refuses a call that has any of the bits in the low half of an argument.
func RefuseBits(arg, bits, verdict uint32) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: OffsetArgs + 8*arg, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: bits, SkipFalse: 1},
		Return(verdict),
		Return(Allow),
	}
}

// RefuseOthers returns a rule that allows a call only if the low half of an argument has one of the values.
func RefuseOthers(arg uint32, values []uint32, verdict uint32) []bpf.Instruction {
	rule := []bpf.Instruction{bpf.LoadAbsolute{Off: OffsetArgs + 8*arg, Size: 4}}
	for _, v := range values {
		rule = append(rule, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: v, SkipTrue: 1}, Return(Allow))
	}
	return append(rule, Return(verdict))
}

// Sockets returns a rule for socket(2) that allows sockets of these families, and the routing netlink with which programs
// list interfaces. Raw packets, vsock, kernel crypto, audit and the rest are refused.
func Sockets(verdict uint32, families ...uint32) []bpf.Instruction {
	rule := []bpf.Instruction{bpf.LoadAbsolute{Off: OffsetArgs, Size: 4}}
	for _, f := range families {
		rule = append(rule, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: f, SkipTrue: 1}, Return(Allow))
	}
	return append(rule,
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.AF_NETLINK, SkipTrue: 3},
		bpf.LoadAbsolute{Off: OffsetArgs + 16, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.NETLINK_ROUTE, SkipTrue: 1},
		Return(Allow),
		Return(verdict),
	)
}

// Return returns the instruction that ends a filter with a verdict.
func Return(verdict uint32) bpf.Instruction { return bpf.RetConstant{Val: verdict} }

// Install installs a filter on the calling thread, which inherits it to its children. With allThreads it installs it on all threads of
// the process. The thread must have no_new_privs set, or CAP_SYS_ADMIN.
func Install(filter []bpf.RawInstruction, allThreads bool) error {
	var flags uintptr
	if allThreads {
		flags = unix.SECCOMP_FILTER_FLAG_TSYNC
	}
	program := &unix.SockFprog{Len: uint16(len(filter)), Filter: (*unix.SockFilter)(unsafe.Pointer(&filter[0]))}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(program))); errno != 0 {
		return fmt.Errorf("install the seccomp filter: %w", errno)
	}
	return nil
}
