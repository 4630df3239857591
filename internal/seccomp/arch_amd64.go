package seccomp

import "golang.org/x/sys/unix"

const (
	Arch = unix.AUDIT_ARCH_X86_64
	// X32Bit marks the x32 calling convention's numbers, which filters refuse.
	X32Bit = 0x40000000
)

// archAdministrative are calls that only this architecture has.
var archAdministrative = []uint32{
	unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS__SYSCTL,
	unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_QUERY_MODULE,
}
