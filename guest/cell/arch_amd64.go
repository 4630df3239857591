package cell

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const (
	elfMachine = uint16(62)
	auditArch  = unix.AUDIT_ARCH_X86_64
	// x32Bit marks the x32 calling convention's numbers, which the filter refuses.
	x32Bit = 0x40000000
)

// reaperCode calls pause for ever:
//
//	mov $34, %eax; syscall; jmp -9
var reaperCode = []byte{0xb8, 34, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7}

// archDenied are calls that only this architecture has.
var archDenied = []uint32{
	unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS__SYSCTL,
	unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_QUERY_MODULE,
}

// archRules adds rules for calls that only this architecture has.
func archRules(rules map[uint32][]bpf.Instruction) {
	rules[unix.SYS_OPEN] = refuse(1, unix.O_DIRECT, verdictInval)
}
