package reach

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/vmm/confine"
)

// TestMain makes this program the limited process, if a test has started it as that.
func TestMain(m *testing.M) {
	if os.Getenv("REACH_LIMITED") == "" {
		os.Exit(m.Run())
	}
	if err := limited(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// limited makes attempts that it reads in a network namespace of its own, in which all addresses are of no host, or of the
// namespace. It answers each with a line.
func limited() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	nowhere := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "nowhere"}, PeerName: "peer"}
	if err := errors.Join(netlink.LinkSetUp(lo), netlink.LinkAdd(nowhere)); err != nil {
		return err
	}
	peer, err := netlink.LinkByName(nowhere.PeerName)
	if err != nil {
		return err
	}
	if err := errors.Join(netlink.LinkSetUp(peer), netlink.LinkSetUp(nowhere)); err != nil {
		return err
	}
	for _, a := range []string{"10.9.0.1/24", "2a00:9::1/64", "9.9.9.1/32"} {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(nowhere, addr); err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
	}
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		_, dst, _ := net.ParseCIDR(all)
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: nowhere.Attrs().Index, Dst: dst}); err != nil {
			return err
		}
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println(attempt(lines.Text()))
	}
	return lines.Err()
}

// attempt sends to an address, and returns whether it reaches the device.
func attempt(line string) string {
	how, to, _ := strings.Cut(line, " ")
	var timeout net.Error
	switch err := try(how, to); {
	case err == nil:
		return "reached"
	case errors.Is(err, unix.EPERM):
		return "refused"
	case errors.As(err, &timeout) && timeout.Timeout():
		return unanswered
	case errors.Is(err, unix.ECONNREFUSED): // by the namespace itself, over lo
		return "reached"
	default:
		return err.Error()
	}
}

// patience is for how long a connection is tried.
const patience = 300 * time.Millisecond

func try(how, to string) error {
	switch how {
	case "fastopen":
		return fastOpen(netip.MustParseAddrPort(to))
	case "ping":
		if err := os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 0"), 0); err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		a := netip.MustParseAddrPort(to)
		return unix.Sendto(fd, []byte{8, 0, 0, 0, 0, 0, 0, 1}, 0, &unix.SockaddrInet4{Addr: a.Addr().As4()})
	case "raw":
		c, err := net.Dial("ip4:tcp", to)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(make([]byte, 20))
		return err
	case "mapped": // IPv4 in IPv6
		a := netip.MustParseAddrPort(to)
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Connect(fd, &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()})
	case "accept":
		return accept(to)
	}
	c, err := net.DialTimeout(how, to, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte("x"))
	return err
}

// fastOpen sends data with the first segment, without connect(2).
func fastOpen(to netip.AddrPort) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	err = unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	if errors.Is(err, unix.EINPROGRESS) {
		return os.ErrDeadlineExceeded
	}
	return err
}

// accept listens, and returns an error if a connection to it does not come about.
func accept(at string) error {
	l, err := net.Listen("tcp4", at)
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := net.DialTimeout("tcp4", l.Addr().String(), patience)
	if err == nil {
		c.Close()
	}
	return err
}

// process is a limited process.
type process struct {
	t     *testing.T
	limit *Limit
	in    *os.File
	lines *bufio.Scanner
}

func start(t *testing.T) *process {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root: only root can attach programs to control groups")
	}
	uid, err := confine.LeaseUID()
	check(t, err)
	t.Cleanup(uid.Release)
	group, err := confine.NewGroup(uid.UID(), 1, 256<<20)
	check(t, err)
	t.Cleanup(func() { check(t, group.Remove()) })
	unified, err := group.Unified()
	check(t, err)
	limit, err := New()
	check(t, err)
	check(t, limit.Attach(unified))
	t.Cleanup(func() { check(t, limit.Close()) })
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "REACH_LIMITED=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(unified.Fd()), Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	check(t, err)
	r, w, err := os.Pipe()
	check(t, err)
	cmd.Stdin = r
	check(t, cmd.Start())
	r.Close()
	t.Cleanup(func() {
		w.Close()
		check(t, cmd.Wait())
	})
	return &process{t: t, limit: limit, in: w, lines: bufio.NewScanner(out)}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// expects makes attempts.
func (p *process) expects(want map[string]string) {
	p.t.Helper()
	for line, result := range want {
		fmt.Fprintln(p.in, line)
		if !p.lines.Scan() {
			p.t.Fatalf("%s: the process has ended: %v", line, p.lines.Err())
		}
		if got := p.lines.Text(); got != result {
			p.t.Errorf("%s: %s, want %s", line, got, result)
		}
	}
}

func policy(t *testing.T, rules ...string) *netpolicy.Policy {
	t.Helper()
	var list []netpolicy.Rule
	for _, text := range rules {
		r, err := netpolicy.ParseRule(text)
		check(t, err)
		list = append(list, r)
	}
	p, err := netpolicy.New(list)
	check(t, err)
	return p
}

// unanswered is the result of a connection that may be made, to an address that no host has.
const unanswered = "no answer"

// TestLimit: only what a policy can lead to is reached, in whatever way a process sends.
func TestLimit(t *testing.T) {
	p := start(t)
	nothing := map[string]string{
		"tcp4 9.9.9.9:443": "refused", "tcp6 [2a00:9::2]:443": "refused", "udp4 9.9.9.9:53": "refused", "udp6 [2a00:9::2]:53": "refused",
		"tcp4 127.0.0.1:443": "refused", "tcp6 [::1]:443": "refused", "udp4 127.0.0.1:53": "refused", "mapped 127.0.0.1:443": "refused",
		"tcp4 0.0.0.0:443": "refused", "fastopen 9.9.9.9:443": "refused", "ping 9.9.9.9:0": "refused", "raw 9.9.9.9": "refused",
		"accept 127.0.0.1:0": "refused", "accept 10.9.0.1:0": "refused",
	}
	p.expects(nothing)
	dns := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.53:53"), netip.MustParseAddrPort("[2a00:9::53]:853")}
	check(t, p.limit.Set(policy(t, "web.test tcp/443", `lan.test tcp/8443 addresses=["10.0.0.0/8"]`, "sql.test tcp/5432 direct"), dns))
	p.expects(map[string]string{
		"tcp4 9.9.9.9:443": unanswered, "tcp6 [2a00:9::2]:443": unanswered, "fastopen 9.9.9.9:443": unanswered,
		"tcp4 9.9.9.9:80": "refused", "tcp4 9.9.9.9:5432": "refused", "udp4 9.9.9.9:443": "refused", "tcp4 127.0.0.1:443": "refused",
		"tcp4 10.9.0.2:443": "refused", "tcp4 169.254.169.254:443": "refused", "tcp6 [fd00::1]:443": "refused", "mapped 10.9.0.2:443": "refused",
		"tcp4 9.9.9.1:443":   unanswered, // an address of the host itself: its packets are dropped
		"tcp4 9.9.9.1:8443":  unanswered,
		"tcp4 10.9.0.1:8443": "reached", // as the rule names it
		"tcp4 10.9.0.2:8443": unanswered, "tcp4 172.16.0.1:8443": "refused", "tcp4 127.0.0.1:8443": "refused",
		"udp4 127.0.0.53:53": "reached", "tcp4 127.0.0.53:53": "reached", "udp6 [2a00:9::53]:853": "reached", "udp4 127.0.0.54:53": "refused",
		"udp4 127.0.0.53:54": "refused", "ping 9.9.9.9:0": "refused", "raw 9.9.9.9": "refused", "accept 10.9.0.1:0": "refused",
	})
	check(t, p.limit.Set(policy(t, `lan.test tcp/443 addresses=["10.9.0.0/24"]`), dns[:1]))
	p.expects(map[string]string{
		"tcp4 9.9.9.9:443": unanswered, "tcp4 10.9.0.1:443": "reached", "tcp4 10.8.0.1:443": "refused", "tcp4 10.9.0.1:8443": "refused",
		"udp4 127.0.0.53:53": "reached", "udp6 [2a00:9::53]:853": "refused",
	})
	check(t, p.limit.Set(policy(t), dns))
	p.expects(nothing)
}

// TestManyPorts: a policy with more ports than the table holds is an error, and changes nothing.
func TestManyPorts(t *testing.T) {
	p := start(t)
	check(t, p.limit.Set(policy(t, "web.test tcp/443"), nil))
	some := func(n int) *netpolicy.Policy {
		var rules []string
		for port := range n {
			rules = append(rules, fmt.Sprintf("web.test tcp/%d", 1000+port))
		}
		return policy(t, rules...)
	}
	if err := p.limit.Set(some(2000), nil); err == nil || !strings.Contains(err.Error(), "name fewer ports") {
		t.Errorf("2,000 ports: %v", err)
	}
	p.expects(map[string]string{"tcp4 9.9.9.9:443": unanswered, "tcp4 9.9.9.9:1000": "refused"})
	check(t, p.limit.Set(some(800), nil)) // as many as docs/egress.md allows
	p.expects(map[string]string{"tcp4 9.9.9.9:443": "refused", "tcp4 9.9.9.9:1799": unanswered})
}
