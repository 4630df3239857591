package seccomp

import "golang.org/x/sys/unix"

const (
	Arch   = unix.AUDIT_ARCH_AARCH64
	X32Bit = 0x40000000 // no call of this architecture reaches it
)

var archAdministrative []uint32
