package dnsproxy

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/custody-project/custody/netpolicy"
)

// inNamespace runs f in an unnamed network namespace with the resolver's address. The kernel removes the namespace after
// its last use.
func inNamespace(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with its namespace
		ns, err := netns.New()
		if err != nil {
			t.Errorf("make a network namespace (as root): %v", err)
			return
		}
		defer ns.Close()
		lo, err := netlink.LinkByName("lo")
		for _, a := range []netip.Addr{netpolicy.Gateway4, netpolicy.Gateway6} { // libc asks for AAAA only with IPv6
			if err == nil {
				err = netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}})
			}
		}
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

// TestLibc sends queries through the C library's resolver, as programs in a guest do.
//
//	+-- namespace ---------------------------------+
//	| getent --resolv.conf--> 198.18.0.1:53 Server |--> upstream on the host's loopback
//	+----------------------------------------------+
func TestLibc(t *testing.T) {
	var many []string
	for i := range 30 {
		many = append(many, "many.direct.test. 60 IN AAAA 2606:2800::"+string(rune('a'+i/10))+string(rune('0'+i%10)))
	}
	z := newZone(t, records(t, map[string][]string{
		"db.direct.test. A":      {"db.direct.test. 60 IN CNAME real.test.", "real.test. 60 IN A 93.184.216.34"},
		"db.direct.test. AAAA":   {"db.direct.test. 60 IN CNAME real.test.", "real.test. 60 IN AAAA 2606:2800::1"},
		"many.direct.test. AAAA": many,
		"many.direct.test. A":    {},
	}))
	s := newSite(t, Config{Upstream: z.client(t)}, gatewayRule(t, "api.test"), directRule(t, "*.direct.test"))
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	check(t, os.WriteFile(conf, []byte("nameserver 198.18.0.1\noptions timeout:2 attempts:1\n"), 0o644))
	inNamespace(t, func() {
		pc, err := net.ListenPacket("udp", "198.18.0.1:53")
		if err != nil {
			t.Error(err)
			return
		}
		ln, err := net.Listen("tcp", "198.18.0.1:53")
		if err != nil {
			t.Error(err)
			return
		}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- s.Serve(ctx, pc, ln) }()
		defer func() { cancel(); <-served }()
		for _, c := range []struct {
			args string
			want []string // addresses; none: the lookup fails
		}{
			{"ahosts api.test", []string{"198.18.1.0"}},
			{"ahostsv4 API.test", []string{"198.18.1.0"}},
			{"ahostsv6 api.test", []string{"::ffff:198.18.1.0"}}, // libc maps it: there is no other
			{"ahosts evil.test", nil},
			{"ahostsv4 db.direct.test", []string{"93.184.216.34"}},
			{"ahostsv6 db.direct.test", []string{"2606:2800::1"}},
			{"ahosts nothing.direct.test", nil},
		} {
			if got := getent(t, conf, strings.Fields(c.args)...); !slices.Equal(got, c.want) {
				t.Errorf("getent %s: %v, want %v", c.args, got, c.want)
			}
		}
		if got := getent(t, conf, "ahostsv6", "many.direct.test"); len(got) != 30 { // too large without EDNS: over TCP
			t.Errorf("%d of 30 addresses", len(got))
		}
	})
	tcp := 0
	for _, r := range s.records(t) {
		if r.DNS != nil && r.DNS.Proto == "tcp" {
			tcp++
		}
	}
	if tcp == 0 {
		t.Error("libc did not retry the truncated answer over TCP")
	}
}

// getent runs getent in the calling thread's namespace with a separate resolv.conf, and returns the distinct addresses
// that it prints.
func getent(t *testing.T, conf string, args ...string) (out []string) {
	t.Helper()
	script := `mount --bind "$0" "$(readlink -f /etc/resolv.conf)" && exec getent "$@"`
	cmd := exec.Command("sh", append([]string{"-c", script, conf}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if exit, ok := err.(*exec.ExitError); err != nil && (!ok || exit.ExitCode() != 2 || stderr.Len() > 0) {
		t.Errorf("getent %v: %v %s", args, err, &stderr)
	}
	for line := range strings.Lines(string(stdout)) {
		if f := strings.Fields(line); len(f) > 0 && !slices.Contains(out, f[0]) {
			out = append(out, f[0])
		}
	}
	return out
}

// TestNothingStays: after a busy server ends, there are as many goroutines and descriptors as before.
func TestNothingStays(t *testing.T) {
	z := newZone(t, func(dns.ResponseWriter, *dns.Msg) {}) // silent
	descriptors := func() int {
		d, err := os.ReadDir("/proc/self/fd")
		check(t, err)
		return len(d)
	}
	goroutines, fds := runtime.NumGoroutine(), descriptors()
	for range 3 {
		t.Run("", func(t *testing.T) {
			s := newSite(t, Config{Upstream: z.client(t)}, gatewayRule(t, "a.test"), directRule(t, "*.d.test"))
			var conns []net.Conn
			for range 20 {
				c, err := net.Dial("tcp", s.addr)
				check(t, err)
				conns = append(conns, c)
				for _, name := range []string{"a.test", "evil.test", "x.d.test", "y.d.test"} {
					c.Write(framed(template(t, name)))
				}
			}
			for s.Stats().Questions < 80 {
				time.Sleep(time.Millisecond)
			}
			check(t, s.stop())
			for _, c := range conns {
				c.Close()
			}
		})
	}
	for i := 0; runtime.NumGoroutine() > goroutines || descriptors() > fds; i++ {
		if i == 200 {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, %d before; %d descriptors, %d before\n%s", runtime.NumGoroutine(), goroutines, descriptors(), fds, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(10 * time.Millisecond)
	}
}
