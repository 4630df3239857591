package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/takeover"
)

// targets are what an attacker tries to reach.
type targets struct {
	key, settings, projects, template string // of the host
	log, runs                         string // of another run, and of all
	pid                               int    // of a process of another user: custody host, custody serve, another run's
	group                             string // the attacker's control group, a directory
	hostSocket                        string // of custody host
	clientSocket                      string // of custody serve
	abstract                          string // a unix socket without a path
	port                              int    // a TCP port of this host
	address                           net.IP // of this host, IPv4
	mount                             string // any directory of this host
	hostname                          string
}

// attempt is something that an attacker tries, with the system calls of the process that was taken over.
type attempt struct {
	what string
	try  func(*takeover.Thread, targets) error // nil: it succeeded
	// may are the processes that can do it by design, as docs/threat-model.md states.
	may string
}

var attempts = []attempt{
	{"read the signing key", opens(unix.O_RDONLY, func(g targets) string { return g.key }), ""},
	{"read the signing key through another root directory", opens(unix.O_RDONLY, func(g targets) string { return fmt.Sprintf("/proc/%d/root%s", g.pid, g.key) }), ""},
	{"change the host's settings", opens(unix.O_WRONLY, func(g targets) string { return g.settings }), ""},
	{"register a project", opens(unix.O_WRONLY|unix.O_CREAT, func(g targets) string { return g.projects + "/new" }), ""},
	{"change the template", opens(unix.O_RDWR, func(g targets) string { return g.template }), ""},
	{"read the template", opens(unix.O_RDONLY, func(g targets) string { return g.template }), ""},
	{"read the record of another run", opens(unix.O_RDONLY, func(g targets) string { return g.log }), "serve"},
	{"change the record of another run", opens(unix.O_WRONLY, func(g targets) string { return g.log }), "serve"},
	{"list the runs", opens(unix.O_RDONLY|unix.O_DIRECTORY, func(g targets) string { return g.runs }), "serve"},
	{"read the password file", opens(unix.O_RDONLY, func(targets) string { return "/etc/shadow" }), ""},
	{"change the users", opens(unix.O_WRONLY, func(targets) string { return "/etc/passwd" }), ""},
	{"make a file in the system's directories", opens(unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, func(g targets) string { return g.mount + "/new" }), ""},
	{"change a kernel setting", opens(unix.O_WRONLY, func(targets) string { return "/proc/sys/kernel/core_pattern" }), ""},

	{"read the memory of another process", opens(unix.O_RDONLY, ofProcess("mem")), ""},
	{"read the environment of another process", opens(unix.O_RDONLY, ofProcess("environ")), ""},
	{"open a descriptor of another process", opens(unix.O_RDONLY, ofProcess("fd/0")), ""},
	{"open the root directory of another process", opens(unix.O_RDONLY, ofProcess("root/")), ""},
	{"open a namespace of another process", opens(unix.O_RDONLY, ofProcess("ns/mnt")), ""},
	{"trace another process", func(t *takeover.Thread, g targets) error {
		_, err := t.Call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, g.pid, 0, 0)
		if err == nil { // it ends with the attacker's thread otherwise
			t.Call(unix.SYS_PTRACE, unix.PTRACE_DETACH, g.pid, 0, 0)
		}
		return err
	}, ""},
	{"signal another process", calls(unix.SYS_KILL, func(g targets) []any { return []any{g.pid, 0} }), ""},
	{"read another process's memory with process_vm_readv", func(t *takeover.Thread, g targets) error {
		to, err := t.Put(make([]byte, 8))
		if err != nil {
			return err
		}
		_, err = t.Call(unix.SYS_PROCESS_VM_READV, g.pid, takeover.Words(uint64(to), 8), 1, takeover.Words(programStart, 8), 1, 0)
		return err
	}, ""},
	{"copy a descriptor of another process", withPidfd(func(t *takeover.Thread, fd uintptr) error {
		got, err := t.Call(unix.SYS_PIDFD_GETFD, fd, 0, 0)
		return closing(t, got, err)
	}), ""},
	{"enter another network namespace", withPidfd(func(t *takeover.Thread, fd uintptr) error {
		_, err := t.Call(unix.SYS_SETNS, fd, unix.CLONE_NEWNET)
		return err
	}), ""},
	{"limit another process", calls(unix.SYS_PRLIMIT64, func(g targets) []any { return []any{g.pid, unix.RLIMIT_CORE, 0, make([]byte, 16)} }), ""},

	{"lift the limit of its control group", opens(unix.O_WRONLY, func(g targets) string { return g.group + "/pids.max" }), ""},
	{"leave its control group", opens(unix.O_WRONLY, func(g targets) string { return g.group + "/../cgroup.procs" }), ""},
	{"open a TAP", openTap, ""},
	{"attach a loop device", opens(unix.O_RDWR, func(targets) string { return "/dev/loop-control" }), ""},
	{"make a device node", func(t *takeover.Thread, g targets) error {
		path := g.mount + "/node"
		_, err := t.Call(unix.SYS_MKNODAT, unix.AT_FDCWD, path, unix.S_IFCHR|0o600, 0x101)
		if err == nil {
			t.Call(unix.SYS_UNLINKAT, unix.AT_FDCWD, path, 0)
		}
		return err
	}, ""},

	{"load an eBPF program", loadProgram, ""},
	{"list eBPF maps", calls(unix.SYS_BPF, func(targets) []any { return []any{12, make([]byte, 128), 128} }), ""},
	{"change a network device", setLink, ""},
	{"open a raw socket", sockets(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP), ""},
	{"open a packet socket", sockets(unix.AF_PACKET, unix.SOCK_RAW, 0), ""},
	{"mount a file system", calls(unix.SYS_MOUNT, func(g targets) []any { return []any{"x", g.mount, "tmpfs", 0, 0} }), ""},
	{"change the root directory", calls(unix.SYS_CHROOT, func(targets) []any { return []any{"/"} }), ""},
	{"change the host name", calls(unix.SYS_SETHOSTNAME, func(g targets) []any { return []any{g.hostname, len(g.hostname)} }), ""},
	{"stop process accounting", calls(unix.SYS_ACCT, func(targets) []any { return []any{0} }), ""},
	{"become root", calls(unix.SYS_SETUID, func(targets) []any { return []any{0} }), ""},
	{"join the group of root", calls(unix.SYS_SETGROUPS, func(targets) []any { return []any{1, []byte{0, 0, 0, 0}} }), ""},
	{"use a keyring", calls(unix.SYS_KEYCTL, func(targets) []any { return []any{unix.KEYCTL_GET_KEYRING_ID, unix.KEY_SPEC_USER_KEYRING, 1} }), "client stranger"},
	{"use io_uring", func(t *takeover.Thread, _ targets) error {
		fd, err := t.Call(unix.SYS_IO_URING_SETUP, 1, make([]byte, 120))
		return closing(t, fd, err)
	}, "client stranger"},
	{"use userfaultfd", func(t *takeover.Thread, _ targets) error {
		fd, err := t.Call(unix.SYS_USERFAULTFD, 1) // for faults of programs only, which needs no privilege
		return closing(t, fd, err)
	}, "client stranger"},

	{"connect to custody host", connects(unix.SOCK_SEQPACKET, func(g targets) string { return g.hostSocket }), "serve"},
	{"connect to the service", connects(unix.SOCK_SEQPACKET, func(g targets) string { return g.clientSocket }), "client serve"},
	{"connect to a unix socket without a path", connects(unix.SOCK_STREAM, func(g targets) string { return "\x00" + g.abstract }), "client stranger serve"},
	{"connect to a port of this host", connectTCP, "client stranger serve outside"},
	{"connect to a port of this host over UDP", func(t *takeover.Thread, g targets) error { return sendUDP(t, net.IPv4(127, 0, 0, 1), g.port) }, "client stranger serve outside"},
	{"send to an address of this host", func(t *takeover.Thread, g targets) error { return sendUDP(t, g.address, g.port) }, "client stranger serve outside"},
	{"accept connections", func(t *takeover.Thread, _ targets) error {
		fd, err := t.Call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		defer t.Call(unix.SYS_CLOSE, fd)
		_, err = t.Call(unix.SYS_LISTEN, fd, 1)
		return err
	}, "client stranger serve qemu"}, // QEMU's network namespace has no other process
	{"list sockets", sockets(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG), "client stranger serve qemu"},
	{"open a netlink socket to netfilter", sockets(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER), "client stranger serve qemu"},

	// Last, because they change the thread.
	{"make a network namespace", calls(unix.SYS_UNSHARE, func(targets) []any { return []any{unix.CLONE_NEWNET} }), ""},
	{"make a user namespace", func(t *takeover.Thread, _ targets) error {
		_, err := t.Call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER)
		if err == unix.EINVAL { // the process has several threads: its child could
			return nil
		}
		return err
	}, "client stranger"},
}

// programStart is the address at which custody is linked.
const programStart = 0x400000

// opens returns an attempt to open a file.
func opens(flags int, path func(targets) string) func(*takeover.Thread, targets) error {
	return func(t *takeover.Thread, g targets) error {
		fd, err := t.Call(unix.SYS_OPENAT, unix.AT_FDCWD, path(g), flags|unix.O_NONBLOCK, 0o600)
		return closing(t, fd, err)
	}
}

// ofProcess returns the path of a file of /proc.
func ofProcess(name string) func(targets) string {
	return func(g targets) string { return fmt.Sprintf("/proc/%d/%s", g.pid, name) }
}

// closing closes a descriptor that an attempt has got.
func closing(t *takeover.Thread, fd uintptr, err error) error {
	if err == nil {
		t.Call(unix.SYS_CLOSE, fd)
	}
	return err
}

// calls returns an attempt that is one call.
func calls(number uintptr, args func(targets) []any) func(*takeover.Thread, targets) error {
	return func(t *takeover.Thread, g targets) error {
		_, err := t.Call(number, args(g)...)
		return err
	}
}

// sockets returns an attempt to open a socket.
func sockets(family, kind, protocol int) func(*takeover.Thread, targets) error {
	return func(t *takeover.Thread, _ targets) error {
		fd, err := t.Call(unix.SYS_SOCKET, family, kind, protocol)
		return closing(t, fd, err)
	}
}

// withPidfd returns an attempt with a descriptor of another process.
func withPidfd(do func(*takeover.Thread, uintptr) error) func(*takeover.Thread, targets) error {
	return func(t *takeover.Thread, g targets) error {
		fd, err := t.Call(unix.SYS_PIDFD_OPEN, g.pid, 0)
		if err != nil {
			return err
		}
		defer t.Call(unix.SYS_CLOSE, fd)
		return do(t, fd)
	}
}

// connectAt connects a new socket.
func connectAt(t *takeover.Thread, family, kind int, address []byte) error {
	fd, err := t.Call(unix.SYS_SOCKET, family, kind, 0)
	if err != nil {
		return err
	}
	defer t.Call(unix.SYS_CLOSE, fd)
	_, err = t.Call(unix.SYS_CONNECT, fd, address, len(address))
	return err
}

// connects returns an attempt to connect to a unix socket.
func connects(kind int, path func(targets) string) func(*takeover.Thread, targets) error {
	return func(t *takeover.Thread, g targets) error {
		return connectAt(t, unix.AF_UNIX, kind, append(binary.LittleEndian.AppendUint16(nil, unix.AF_UNIX), path(g)...))
	}
}

func connectTCP(t *takeover.Thread, g targets) error {
	return connectAt(t, unix.AF_INET, unix.SOCK_STREAM, inet(net.IPv4(127, 0, 0, 1), g.port))
}

// sendUDP sends a datagram, which need not be received.
func sendUDP(t *takeover.Thread, to net.IP, port int) error {
	fd, err := t.Call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer t.Call(unix.SYS_CLOSE, fd)
	_, err = t.Call(unix.SYS_SENDTO, fd, []byte("out"), 3, 0, inet(to, port), unix.SizeofSockaddrInet4)
	return err
}

// inet returns a struct sockaddr_in.
func inet(ip net.IP, port int) []byte {
	address := binary.LittleEndian.AppendUint16(nil, unix.AF_INET)
	address = binary.BigEndian.AppendUint16(address, uint16(port))
	return append(append(address, ip.To4()...), make([]byte, 8)...)
}

// openTap makes a TAP, which ends with the descriptor.
func openTap(t *takeover.Thread, _ targets) error {
	fd, err := t.Call(unix.SYS_OPENAT, unix.AT_FDCWD, "/dev/net/tun", unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer t.Call(unix.SYS_CLOSE, fd)
	request := make([]byte, 40)
	copy(request, "custody-escape")
	binary.LittleEndian.PutUint16(request[16:], unix.IFF_TAP|unix.IFF_NO_PI)
	_, err = t.Call(unix.SYS_IOCTL, fd, uintptr(unix.TUNSETIFF), request)
	return err
}

// loadProgram loads an eBPF program for packets of a device.
func loadProgram(t *takeover.Thread, _ targets) error {
	code, err := t.Put(takeover.Words(0x00b7, 0x0095)) // r0 = 0; exit
	if err != nil {
		return err
	}
	license, err := t.Put([]byte("GPL\x00"))
	if err != nil {
		return err
	}
	attr := binary.LittleEndian.AppendUint32(nil, 6) // BPF_PROG_TYPE_XDP
	attr = binary.LittleEndian.AppendUint32(attr, 2)
	attr = append(attr, takeover.Words(uint64(code), uint64(license))...)
	fd, err := t.Call(unix.SYS_BPF, 5, append(attr, make([]byte, 24)...), 48)
	return closing(t, fd, err)
}

// setLink asks the kernel for a change of the first device that changes nothing, and reads the answer.
func setLink(t *takeover.Thread, _ targets) error {
	fd, err := t.Call(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer t.Call(unix.SYS_CLOSE, fd)
	message := binary.LittleEndian.AppendUint32(nil, 32)
	message = binary.LittleEndian.AppendUint16(message, unix.RTM_SETLINK)
	message = binary.LittleEndian.AppendUint16(message, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	message = append(message, make([]byte, 8)...)
	message = append(message, 0, 0, 0, 0, 1, 0, 0, 0) // struct ifinfomsg of the device 1
	message = append(message, make([]byte, 8)...)
	if _, err := t.Call(unix.SYS_SENDTO, fd, message, len(message), 0, 0, 0); err != nil {
		return err
	}
	to, err := t.Put(make([]byte, 256))
	if err != nil {
		return err
	}
	if _, err := t.Call(unix.SYS_RECVFROM, fd, to, 256, 0, 0, 0); err != nil {
		return err
	}
	answer, err := t.Get(to, 20)
	if err != nil {
		return err
	}
	if code := int32(binary.LittleEndian.Uint32(answer[16:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

// can reports whether a process can do it by design.
func (a attempt) can(process string) bool { return strings.Contains(" "+a.may+" ", " "+process+" ") }
