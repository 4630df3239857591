package cell

import (
	"fmt"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// kept are the capabilities that root has in a cell: enough to install packages,
// change users and bind low ports. Capabilities that load code into
// the kernel, mount, trace others, set clocks, make devices or read the
// kernel's log are removed from the bounding set, and cannot be regained.
var kept = []int{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL,
	unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETFCAP, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_CHROOT, unix.CAP_AUDIT_WRITE,
}

// confinement is the restrictions of a cell's processes, prepared once for all cells.
type confinement struct {
	filter  []bpf.RawInstruction
	fprog   *unix.SockFprog
	caps    *[2]unix.CapUserData
	header  *unix.CapUserHeader
	lastCap int
	ruleset int // Landlock, a descriptor; -1: none
}

// newConfinement prepares confinement for the cells of c.
func newConfinement(config Config, lastCap int) (*confinement, error) {
	raw, err := filter()
	if err != nil {
		return nil, fmt.Errorf("assemble the cells' seccomp filter: %w", err)
	}
	ruleset := -1
	if !config.Sentry {
		if ruleset, err = landlock(config.Root); err != nil {
			return nil, err
		}
	}
	c := &confinement{filter: raw, lastCap: lastCap, ruleset: ruleset}
	c.fprog = &unix.SockFprog{Len: uint16(len(raw)), Filter: (*unix.SockFilter)(unsafe.Pointer(&raw[0]))}
	c.header = &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	c.caps = &[2]unix.CapUserData{}
	for _, k := range kept {
		d := &c.caps[k/32]
		d.Effective |= 1 << (k % 32)
		d.Permitted |= 1 << (k % 32)
	}
	return c, nil
}

// landlock returns a ruleset that denies cells to make device nodes.
// Its larger effects are those of every Landlock domain: no change of any
// mount, and no tracing of a process outside the domain. Renaming between
// directories must be granted explicitly (Landlock ABI 2).
func landlock(root string) (int, error) {
	const refuse = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
	attr := uint64(refuse | unix.LANDLOCK_ACCESS_FS_REFER)
	ruleset, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return -1, fmt.Errorf("make a Landlock ruleset (is Landlock in the guest kernel?): %w", errno)
	}
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open the cells' root: %w", err)
	}
	defer unix.Close(dir)
	rule := unix.LandlockPathBeneathAttr{Allowed_access: unix.LANDLOCK_ACCESS_FS_REFER, Parent_fd: int32(dir)}
	_, _, errno = unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, ruleset, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return -1, fmt.Errorf("add a Landlock rule: %w", errno)
	}
	return int(ruleset), nil
}

// apply adds the system calls that apply the confinement to the calling process.
func (c *confinement) apply(p *program) {
	for i := range c.lastCap + 1 {
		if !isKept(i) {
			p.call("drop capabilities", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, i)
		}
	}
	p.call("set no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if c.ruleset >= 0 {
		p.call("enter a Landlock domain", unix.SYS_LANDLOCK_RESTRICT_SELF, c.ruleset, 0)
	}
	p.call("set capabilities", unix.SYS_CAPSET, unsafe.Pointer(c.header), unsafe.Pointer(c.caps))
	p.call("set the seccomp filter", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, unsafe.Pointer(c.fprog))
}

func isKept(c int) bool {
	for _, k := range kept {
		if k == c {
			return true
		}
	}
	return false
}
