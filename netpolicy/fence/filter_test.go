package fence

import (
	"bufio"
	"context"
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

	"github.com/cilium/ebpf"
	"github.com/google/nftables"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/kerneltest"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/privsep/privseptest"
)

// tables lists a namespace's nftables tables.
func tables(t testing.TB, s *space) string {
	t.Helper()
	c, err := nftables.New(nftables.WithNetNSFd(int(s.handle)))
	must(t, err)
	all, err := c.ListTables()
	must(t, err)
	var b strings.Builder
	for _, table := range all {
		fmt.Fprintln(&b, "table", table.Name)
	}
	return b.String()
}

// stream is a direct flow in both directions, with its byte counts.
type stream struct{ near, far net.Conn }

func openStream(t testing.TB, g *guest, peer *space, addr netip.Addr) stream {
	t.Helper()
	l := peer.listen(t, "tcp", at6or4(addr, 7000))
	near, err := g.dial("tcp", at6or4(addr, 7000))
	must(t, err)
	far, err := l.Accept()
	must(t, err)
	t.Cleanup(func() { near.Close(); far.Close() })
	s := stream{near, far}
	if !s.passes(near, far, 5*time.Second) || !s.passes(far, near, 5*time.Second) {
		t.Fatal("the direct flow does not work at the start")
	}
	return s
}

func (s stream) passes(from, to net.Conn, wait time.Duration) bool {
	from.Write([]byte("x"))
	to.SetReadDeadline(time.Now().Add(wait))
	n, _ := to.Read(make([]byte, 1))
	return n == 1
}

// After all programs are removed, the nftables table still drops all packets.
func TestSecondFilterAlone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, way attacher, addr netip.Addr) {
		host, peer := newTopology(t)
		f, _ := newFenceBy(t, way, host, append(everywhere("tcp/7000"), allow("shop.example", "tcp/443"))...)
		g := newGuest(t, f)
		s := openStream(t, g, peer, addr)
		door, err := f.Listen(context.Background(), "tcp4", "0.0.0.0:443")
		must(t, err)
		echo(t, door)
		f.seal()
		detachAll(t, f.own().space, tapName)
		detachAll(t, f.own().space, uplinkName)
		if s.passes(s.near, s.far, 500*time.Millisecond) {
			t.Error("a direct flow got out")
		}
		if s.passes(s.far, s.near, 500*time.Millisecond) {
			t.Error("a direct flow got in")
		}
		must(t, g.in(func() error {
			d := net.Dialer{Timeout: 300 * time.Millisecond}
			for _, to := range []string{at6or4(addr, 7000), "198.18.1.7:443", "198.18.0.1:53", "[fdc5:7a1c:19d2::1]:53"} {
				if c, err := d.Dial("tcp", to); err == nil {
					c.Close()
					t.Errorf("%s: reached", to)
				}
			}
			return nil
		}))
	})
}

// The gates alone, without policy programs and without nftables, drop all packets.
func TestFirstFilterAlone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, way attacher, addr netip.Addr) {
		host, peer := newTopology(t)
		f, _ := newFenceBy(t, way, host, everywhere("tcp/7000")...)
		g := newGuest(t, f)
		s := openStream(t, g, peer, addr)
		f.seal()
		c, err := nftables.New(nftables.WithNetNSFd(int(f.own().space.handle)))
		must(t, err)
		c.FlushRuleset()
		must(t, c.Flush())
		if s.passes(s.near, s.far, 500*time.Millisecond) || s.passes(s.far, s.near, 500*time.Millisecond) {
			t.Error("the direct flow continues")
		}
	})
}

// helper is the environment variable that makes the test binary run as a process that can be killed.
const helper = "CUSTODY_FENCE_TEST_HELPER"

func TestMain(m *testing.M) {
	if privseptest.Mode() != "" {
		privseptest.Main(m, work)
	}
	switch os.Getenv(helper) {
	case "hold", "hold clsact":
		hold(map[bool]attacher{true: attachClsact, false: attachTCX}[os.Getenv(helper) == "hold clsact"])
		return
	case "powerless":
		powerless()
		return
	}
	kerneltest.Main(m)
}

// hold makes a fence on the host that is descriptor 3, prints its TAP as /proc/PID/fd/N, and waits to be killed.
func hold(way attacher) {
	host := &space{handle: netns.NsHandle(3)}
	var f *Fence
	err := host.in(func() (err error) {
		f, err = New(context.Background(), Options{attach: way})
		return err
	})
	if err == nil {
		var p *netpolicy.Policy
		if p, err = netpolicy.New(everywhere("tcp/7000")); err == nil {
			_, err = f.Enforce(context.Background(), netpolicy.Generation{Number: 1, Policy: p})
		}
	}
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	raw, _ := f.Tap().SyscallConn()
	raw.Control(func(fd uintptr) { fmt.Println("ready", int(fd), int(f.own().space.handle)) })
	time.Sleep(time.Minute)
}

// After Custody is killed no packet passes, although the VM's descriptor of the TAP and another process's descriptor of
// the namespace keep both alive. When those are closed nothing is left.
func TestKilled(t *testing.T) {
	t.Parallel()
	for name := range attachers(t) {
		mode := map[string]string{"tcx": "hold", "clsact": "hold clsact"}[name]
		for family, addr := range peers {
			t.Run(name+"/"+family, func(t *testing.T) {
				t.Parallel()
				testKilled(t, mode, addr)
			})
		}
	}
}

func testKilled(t *testing.T, mode string, addr netip.Addr) {
	host, peer := newTopology(t)
	before := hostState(t, host)
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), helper+"="+mode)
	cmd.ExtraFiles = []*os.File{os.NewFile(uintptr(dup(t, int(host.handle))), "host")}
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer cmd.Process.Kill()
	cmd.ExtraFiles[0].Close()
	line, err := bufio.NewReader(out).ReadString('\n')
	var tapFD, spaceFD int
	if n, _ := fmt.Sscanf(line, "ready %d %d", &tapFD, &spaceFD); err != nil || n != 2 {
		t.Fatalf("the process printed %q, %v", line, err)
	}
	tap := stolen(t, cmd.Process.Pid, tapFD)
	inside := &space{handle: netns.NsHandle(stolen(t, cmd.Process.Pid, spaceFD))}
	must(t, inside.open())
	file := os.NewFile(uintptr(tap), "tap")
	g := newGuest(t, &Fence{namespace: &Namespace{tap: file}})
	s := openStream(t, g, peer, addr)
	programs := programsOf(t, inside)

	must(t, cmd.Process.Signal(syscall.SIGKILL))
	cmd.Wait()
	if s.passes(s.near, s.far, 500*time.Millisecond) {
		t.Error("the direct flow gets out")
	}
	if s.passes(s.far, s.near, 500*time.Millisecond) {
		t.Error("the direct flow gets in")
	}
	if _, err := inside.links.LinkByName(tapName); err != nil {
		t.Errorf("the namespace should still exist: %v", err)
	}
	file.SetReadDeadline(time.Unix(1, 0))
	g.device.SetReadDeadline(time.Unix(1, 0))
	must(t, file.Close())
	must(t, inside.close())
	eventually(t, "no uplink and no table is left", func() bool {
		return !strings.Contains(hostState(t, host), "cust")
	})
	eventually(t, "no program is left", func() bool { return gone(programs) })
	if hostState(t, host) == before {
		t.Error("the host's forwarding was not changed: this does not test Sweep")
	}
	must(t, host.in(func() error { return Sweep(t.Context()) }))
	if after := hostState(t, host); after != before {
		t.Errorf("the host was\n%s and is\n%s", before, after)
	}
}

func dup(t *testing.T, fd int) int {
	t.Helper()
	n, err := syscall.Dup(fd)
	must(t, err)
	syscall.CloseOnExec(n)
	return n
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for range 1200 {
		if is() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("never came: %s", what)
}

// admittedBy returns the programs to which a gate passes packets.
func admittedBy(t testing.TB, gate ebpf.ProgramID) (ids []ebpf.ProgramID) {
	t.Helper()
	p, err := ebpf.NewProgramFromID(gate)
	must(t, err)
	defer p.Close()
	info, err := p.Info()
	must(t, err)
	maps, ok := info.MapIDs()
	if !ok || len(maps) != 1 {
		t.Fatalf("a gate has the maps %v", maps)
	}
	table, err := ebpf.NewMapFromID(maps[0])
	must(t, err)
	defer table.Close()
	for s := range slots {
		var id uint32
		if err := table.Lookup(s, &id); err == nil {
			ids = append(ids, ebpf.ProgramID(id))
		}
	}
	if len(ids) < 2 {
		t.Fatalf("the gates admit the programs %v", ids)
	}
	return ids
}

// gone reports whether the kernel has unloaded all the programs.
func gone(ids []ebpf.ProgramID) bool {
	for _, id := range ids {
		if p, err := ebpf.NewProgramFromID(id); err == nil {
			p.Close()
			return false
		}
	}
	return true
}

// stolen copies a descriptor of another process, in place of the one that QEMU receives.
func stolen(t *testing.T, pid, fd int) int {
	t.Helper()
	handle, err := unix.PidfdOpen(pid, 0)
	must(t, err)
	defer unix.Close(handle)
	got, err := unix.PidfdGetfd(handle, fd, 0)
	must(t, err)
	return got
}

// powerless tries to make a fence without capabilities.
func powerless() {
	f, err := New(context.Background(), Options{})
	if err == nil {
		_, err = f.Enforce(context.Background(), netpolicy.Generation{Number: 1})
	}
	fmt.Println(err)
	if k := new(KernelError); errors.As(err, &k) {
		fmt.Println(k.Hint())
	}
}

// Without the required capabilities New fails, and the error states what to do.
func TestMissingCapability(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	must(t, err)
	for _, missing := range []string{"all", "sys_admin", "net_admin", "net_raw"} {
		cmd := exec.Command("setpriv", "--inh-caps=-"+missing, "--bounding-set=-"+missing, exe)
		cmd.Env = append(os.Environ(), helper+"=powerless")
		out, err := cmd.CombinedOutput()
		must(t, err)
		if !strings.Contains(string(out), "run as root") {
			t.Errorf("without %s: %s", missing, out)
		}
	}
}
