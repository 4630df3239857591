package cell

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const (
	elfMachine = uint16(183)
	auditArch  = unix.AUDIT_ARCH_AARCH64
	x32Bit     = 0x40000000 // no call of this architecture reaches it
)

// reaperCode calls ppoll(NULL, 0, NULL, NULL, 0) for ever:
//
//	mov x0-x4, #0; mov x8, #73; svc #0; b -28
var reaperCode = []byte{
	0x00, 0x00, 0x80, 0xd2, 0x01, 0x00, 0x80, 0xd2, 0x02, 0x00, 0x80, 0xd2, 0x03, 0x00, 0x80, 0xd2,
	0x04, 0x00, 0x80, 0xd2, 0x28, 0x09, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4, 0xf9, 0xff, 0xff, 0x17,
}

var archDenied []uint32

// archRules adds rules for calls that only this architecture has: none.
func archRules(map[uint32][]bpf.Instruction) {}
