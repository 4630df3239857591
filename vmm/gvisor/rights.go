package gvisor

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// needed are the capabilities with which runsc makes the container: its namespaces, mounts, ids, packet sockets and processes.
var needed = []uint{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_MKNOD, unix.CAP_NET_ADMIN,
	unix.CAP_NET_RAW, unix.CAP_SETFCAP, unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE,
}

// reduceRights takes the other capabilities from the calling thread. With no_new_privs a program of root that it starts gets no capability
// that the thread does not have.
func reduceRights() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has, keep [2]unix.CapUserData
	if err := unix.Capget(&header, &has[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	for _, c := range needed {
		keep[c/32].Permitted |= has[c/32].Permitted & (1 << (c % 32))
	}
	for i := range keep {
		keep[i].Effective = keep[i].Permitted
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs for runsc: %w", err)
	}
	if err := unix.Capset(&header, &keep[0]); err != nil {
		return fmt.Errorf("take capabilities from runsc: %w", err)
	}
	return nil
}
