package cell

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/seccomp"
)

// Verdicts of a seccomp filter, in addition to those of package seccomp.
const (
	verdictNoAF  = seccomp.Errno | uint32(unix.EAFNOSUPPORT)
	verdictInval = seccomp.Errno | uint32(unix.EINVAL)
)

// lastCall is the last system call of Linux 6.1, for which the list below was
// written. Later ones get the answer of an older kernel.
const lastCall = 450

// filter returns the cell's seccomp filter.
func filter() ([]bpf.RawInstruction, error) {
	rules := seccomp.Rules{
		unix.SYS_CLONE3:  {seccomp.Return(seccomp.NoSys)}, // its flags are in memory, which a filter cannot read; libc falls back to clone
		unix.SYS_CLONE:   seccomp.RefuseBits(0, seccomp.NewNamespaces, seccomp.Perm),
		unix.SYS_UNSHARE: seccomp.RefuseBits(0, seccomp.NewNamespaces, seccomp.Perm),
		unix.SYS_SOCKET:  seccomp.Sockets(verdictNoAF, unix.AF_UNIX, unix.AF_INET, unix.AF_INET6),
		// No direct I/O, as on a file system that has none: a direct read into a mapping of a file
		// writes to the file after the mapping has ended, when no one counts as its writer.
		unix.SYS_OPENAT:  seccomp.RefuseBits(2, unix.O_DIRECT, verdictInval),
		unix.SYS_OPENAT2: {seccomp.Return(seccomp.NoSys)}, // its flags are in memory; callers fall back to openat
		unix.SYS_FCNTL:   setFlags(),
	}
	archRules(rules)
	rules.Refuse(seccomp.Administrative()...)
	return seccomp.Filter(rules, lastCall)
}

// setFlags refuses direct I/O for a file that is open already.
func setFlags() []bpf.Instruction {
	return append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: seccomp.OffsetArgs + 8, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.F_SETFL, SkipTrue: 1},
		seccomp.Return(seccomp.Allow),
	}, seccomp.RefuseBits(2, unix.O_DIRECT, verdictInval)...)
}
