package fence

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
)

// everywhere returns direct rules for the peer's networks.
func everywhere(ports ...string) []netpolicy.Rule {
	return []netpolicy.Rule{allow("45.0.0.0/24", ports...), allow("2a00:45::/64", ports...)}
}

func at6or4(a netip.Addr, port uint16) string { return netip.AddrPortFrom(a, port).String() }

func TestDirectFlows(t *testing.T) {
	t.Parallel()
	host, peer := newTopology(t)
	f, seen := newFence(t, host, everywhere("tcp/7000", "udp/7000")...)
	g := newGuest(t, f)
	for family, addr := range peers {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			to := at6or4(addr, 7000)
			l := peer.listen(t, "tcp", to)
			echo(t, l)
			c, err := g.dial("tcp", to)
			must(t, err)
			say(t, c, "hello")
			c.Close()
			ev := seen.await2(t, audit.FlowClose, netip.MustParseAddrPort(to))
			if ev.Flow.Via != netpolicy.Direct || !strings.HasPrefix(to, "[") && ev.Flow.Rule != "45.0.0.0/24 tcp/7000 udp/7000 direct" {
				t.Errorf("close event has %+v", ev.Flow)
			}
			p := peer.listenPacket(t, "udp", to)
			u, err := g.dial("udp", to)
			must(t, err)
			defer u.Close()
			u.Write([]byte("ping"))
			b := make([]byte, 100)
			p.SetDeadline(time.Now().Add(5 * time.Second))
			n, from, err := p.ReadFrom(b)
			must(t, err)
			p.WriteTo(b[:n], from)
			u.SetDeadline(time.Now().Add(5 * time.Second))
			if n, err = u.Read(b); err != nil || string(b[:n]) != "ping" {
				t.Fatalf("heard %q, %v", b[:n], err)
			}
			if host, _, _ := net.SplitHostPort(from.String()); host != hostAddr4.String() && host != hostAddr6.String() {
				t.Errorf("the peer sees %s, not the host", from)
			}
		})
	}
}

// A direct flow that a change of policy ends is reset on both sides, whether an uplink remains or not.
func TestRevokeResetsDirectFlow(t *testing.T) {
	t.Parallel()
	for family, addr := range peers {
		for what, left := range map[string]netpolicy.Rule{"others are direct": allow("192.0.2.1", "tcp/1"), "none is direct": allow("shop.example")} {
			t.Run(family+" "+what, func(t *testing.T) {
				t.Parallel()
				revokeDirect(t, addr, left)
			})
		}
	}
}

func revokeDirect(t *testing.T, addr netip.Addr, left netpolicy.Rule) {
	host, peer := newTopology(t)
	f, seen := newFence(t, host, everywhere("tcp/7000")...)
	g := newGuest(t, f)
	l := peer.listen(t, "tcp", at6or4(addr, 7000))
	c, err := g.dial("tcp", l.Addr().String())
	must(t, err)
	defer c.Close()
	far, err := l.Accept()
	must(t, err)
	defer far.Close()
	must2(t)(far.Write(make([]byte, 100_000)))
	must2(t)(io.ReadFull(c, make([]byte, 100_000)))
	ended := enforce(t, f, left)
	if len(ended) != 1 || ended[0].BytesIn < 100_000 {
		t.Fatalf("ended %+v", ended)
	}
	for side, conn := range map[string]net.Conn{"guest": c, "peer": far} {
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: the connection ended with %v", side, err)
		}
	}
	seen.await2(t, audit.FlowRevoke, netip.MustParseAddrPort(l.Addr().String()))
}

func must2(t testing.TB) func(int, error) {
	return func(_ int, err error) { t.Helper(); must(t, err) }
}

// An answer for a direct name opens its address for its lifetime. Flows that are open then continue.
func TestPinExpires(t *testing.T) {
	t.Parallel()
	host, peer := newTopology(t)
	f, seen := newFence(t, host, allow("db.example", "tcp/7000", "direct"))
	g := newGuest(t, f)
	l := peer.listen(t, "tcp", "45.0.0.2:7000")
	echo(t, l)
	if _, err := g.dial("tcp", "45.0.0.2:7000"); err == nil {
		t.Fatal("an address without an answer is open")
	}
	must(t, f.Open(peerAddr4, Permit{Name: "db.example", Port: port("tcp/7000"), Via: netpolicy.Direct}, time.Now().Add(700*time.Millisecond)))
	c, err := g.dial("tcp", "45.0.0.2:7000")
	must(t, err)
	defer c.Close()
	say(t, c, "in time")
	time.Sleep(800 * time.Millisecond)
	say(t, c, "still there")
	if _, err := g.dial("tcp", "45.0.0.2:7000"); err == nil {
		t.Error("a new flow began after the answer expired")
	}
	seen.await(t, "expired", func(ev Event) bool { return ev.Reason == reasonText[expired] })
}

// The host itself, its services and other sandboxes cannot be reached, unless a rule names an address. The guest gets an
// error immediately, and the denial is recorded.
func TestDirectDoesNotReachTheHost(t *testing.T) {
	t.Parallel()
	host, _ := newTopology(t)
	rules := append(everywhere("tcp/7000"), allow("198.19.0.0/16", "tcp/7000"), allow("fdc5:7a1c:19d3::/112", "tcp/7000"))
	f, seen := newFence(t, host, rules...)
	other, _ := newFence(t, host, rules...)
	g := newGuest(t, f)
	echo(t, host.listen(t, "tcp", ":7000"))
	var inside net.Listener
	must(t, other.own().space.in(func() (err error) { inside, err = net.Listen("tcp", ":7000"); return err }))
	echo(t, inside)
	dial := func(addr netip.Addr) error {
		return g.in(func() error {
			d := net.Dialer{Timeout: 300 * time.Millisecond}
			c, err := d.Dial("tcp", at6or4(addr, 7000))
			if err == nil {
				c.Close()
			}
			return err
		})
	}
	denied := func(addr netip.Addr) {
		t.Helper()
		if err := dial(addr); !errors.Is(err, syscall.EHOSTUNREACH) && !errors.Is(err, syscall.EACCES) {
			t.Errorf("%s: %v", addr, err)
		}
		ev := seen.await2(t, audit.FlowDeny, netip.AddrPortFrom(addr, 7000))
		if ev.Reason != reasonText[withheld] || ev.Flow.Rule == "" {
			t.Errorf("%s: %+v", addr, ev)
		}
	}
	for _, addr := range []netip.Addr{
		hostAddr4, hostAddr6, f.own().uplink.addr(uplinks4, 0), f.own().uplink.addr(uplinks6, 0), f.own().uplink.addr(uplinks4, 1), f.own().uplink.addr(uplinks6, 1),
		other.own().uplink.addr(uplinks4, 0), other.own().uplink.addr(uplinks6, 0), other.own().uplink.addr(uplinks4, 1), other.own().uplink.addr(uplinks6, 1),
	} {
		denied(addr)
	}
	late := netip.MustParseAddr("45.0.0.50") // an address that the host gets while the fence stands
	must(t, host.address(lookup(t, host, "wan"), netip.PrefixFrom(late, 24)))
	time.Sleep(2 * sweepEvery)
	denied(late)
	enforce(t, f, append(rules, allow("45.0.0.1/32", "tcp/7000"), allow("2a00:45::1/128", "tcp/7000"))...)
	for _, addr := range []netip.Addr{hostAddr4, hostAddr6} {
		c, err := g.dial("tcp", at6or4(addr, 7000))
		if err != nil {
			t.Errorf("%s is named: %v", addr, err)
			continue
		}
		say(t, c, "hello")
		defer c.Close()
	}
	if ended := enforce(t, f, rules...); len(ended) != 2 { // no longer named, but still in a range
		t.Errorf("ended %+v", ended)
	}
	for _, addr := range []netip.Addr{hostAddr4, hostAddr6} {
		seen.await2(t, audit.FlowRevoke, netip.AddrPortFrom(addr, 7000))
	}
	opened := map[netip.Addr]int{}
	for _, ev := range seen.list() {
		if ev.State == audit.FlowOpen {
			opened[ev.Flow.Dst.Addr()]++
		}
	}
	if want := map[netip.Addr]int{hostAddr4: 1, hostAddr6: 1}; !maps.Equal(opened, want) {
		t.Errorf("opened: %v", opened)
	}
}

// Host addresses that are not unicast, such as broadcast addresses, cannot be reached either.
//
//	TAP --- fence's namespace --- up0 == cust0 --- host --- wan: 45.0.0.1/24, 2a00:45::1/64 --- peer
//	                                                    \-- lan: 46.0.0.1/25, 2a00:46::1/120 --- another host
//
// UDP services listen on all of them.
func TestDirectReachesSingleHostsOnly(t *testing.T) {
	t.Parallel()
	for what, forwards := range map[string]string{"the host takes broadcasts": "0", "the host passes broadcasts on": "1"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			reachSingleHosts(t, forwards, false)
		})
		t.Run(what+", and the programs deny no address that the host keeps", func(t *testing.T) {
			t.Parallel()
			reachSingleHosts(t, forwards, true)
		})
	}
}

// blind clears the programs' table of host addresses, so that only the guard filters.
func blind(t *testing.T, f *Fence) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for p := range f.permits.kept.now {
		must(t, f.filters.maps.Kept.Delete(keptKey(p)))
	}
}

func reachSingleHosts(t *testing.T, forwards string, guardOnly bool) {
	host, peer := newTopology(t)
	lan := testSpace(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "lan"
	must(t, host.links.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(lan.handle)}))
	for s, addrs := range map[*space][]string{host: {"lan", "46.0.0.1/25", "2a00:46::1/120"}, lan: {"eth0", "46.0.0.2/25", "2a00:46::2/120"}} {
		l := lookup(t, s, addrs[0])
		must(t, s.address(l, netip.MustParsePrefix(addrs[1])))
		must(t, s.address(l, netip.MustParsePrefix(addrs[2])))
		must(t, s.links.LinkSetUp(l))
	}
	must(t, host.in(func() error {
		return sysctls{"ipv4/conf/all/bc_forwarding": forwards, "ipv4/conf/default/bc_forwarding": forwards,
			"ipv6/conf/all/forwarding": "1"}.set() // so that it has the anycast addresses of its networks
	}))
	f, _ := newFence(t, host, append(everywhere("udp/7001"),
		allow("46.0.0.0/16", "udp/7001"), allow("2a00:46::/32", "udp/7001"), allow("45.0.0.255/32", "udp/7001"), allow("2a00:45::/128", "udp/7001"),
		allow("255.255.255.255/32", "udp/7001"), allow("0.0.0.0/8", "udp/7001"), allow("224.0.0.0/4", "udp/7001"), allow("ff00::/8", "udp/7001"))...)
	if guardOnly {
		blind(t, f)
	}
	heard := make(chan string, 1000)
	for _, far := range []*space{host, peer, lan} {
		p := far.listenPacket(t, "udp", ":7001")
		var hearing sync.WaitGroup
		hearing.Go(func() {
			b := make([]byte, 100)
			for {
				n, _, err := p.ReadFrom(b)
				if err != nil {
					return
				}
				heard <- string(b[:n])
			}
		})
		defer hearing.Wait()
		defer p.Close()
	}
	w := &wire{t: t, tap: f.Tap()}
	say := func(addr string) {
		w.send(packet{proto: protoUDP, peer: netip.MustParseAddr(addr), guestPort: 5000, peerPort: 7001, payload: []byte(addr)}.frame())
	}
	for _, addr := range []string{
		"45.0.0.255", "45.0.0.0", "46.0.0.127", "46.0.0.0", "255.255.255.255", "0.0.0.0", "224.0.0.1", "224.0.0.251", "239.1.1.1",
		"2a00:45::", "2a00:46::", "ff02::1", "ff02::2", "ff0e::1", "45.0.0.1", "46.0.0.1", "2a00:45::1", "2a00:46::1",
	} {
		say(addr)
	}
	open := map[string]bool{"45.0.0.2": true, "46.0.0.2": true, "2a00:45::2": true, "2a00:46::2": true}
	again, end := time.NewTicker(50*time.Millisecond), time.After(20*time.Second)
	defer again.Stop()
	for missing := maps.Clone(open); len(missing) > 0; {
		select {
		case <-again.C: // until the host has resolved its neighbours
			for addr := range missing {
				say(addr)
			}
		case addr := <-heard:
			delete(missing, addr)
			if !open[addr] {
				t.Errorf("%s was reached", addr)
			}
		case <-end:
			t.Fatalf("%v were not reached", missing)
		}
	}
	for quiet := time.After(300 * time.Millisecond); ; {
		select {
		case addr := <-heard:
			if !open[addr] {
				t.Errorf("%s was reached", addr)
			}
		case <-quiet:
			return
		}
	}
}

// A service of the host that its own rules make reachable at another address cannot be reached either.
func TestDirectDoesNotReachTheHostBehindOthers(t *testing.T) {
	t.Parallel()
	host, _ := newTopology(t)
	c, err := nftables.New(nftables.WithNetNSFd(int(host.handle)))
	must(t, err)
	table := c.AddTable(&nftables.Table{Name: "services", Family: nftables.TableFamilyIPv4})
	to := match(rule{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: netip.MustParseAddr("45.0.0.77").AsSlice()},
		&expr.Immediate{Register: 1, Data: hostAddr4.AsSlice()},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1},
	})
	addChains(c, table, []chain{{name: "prerouting", hook: nftables.ChainHookPrerouting, kind: nftables.ChainTypeNAT, priority: nftables.ChainPriorityNATDest, rules: []rule{to}}})
	must(t, c.Flush())
	f, _ := newFence(t, host, everywhere("tcp/7000")...)
	blind(t, f)
	g := newGuest(t, f)
	echo(t, host.listen(t, "tcp", "45.0.0.1:7000"))
	err = g.in(func() error {
		d := net.Dialer{Timeout: 300 * time.Millisecond}
		c, err := d.Dial("tcp", "45.0.0.77:7000")
		if err == nil {
			c.Close()
		}
		return err
	})
	if err == nil {
		t.Error("reached")
	}
}

// A name may resolve to a host address, if the rule names it.
func TestNamedAddressOfTheHost(t *testing.T) {
	t.Parallel()
	host, _ := newTopology(t)
	must(t, host.address(lookup(t, host, "wan"), netip.MustParsePrefix("10.9.0.1/24")))
	r := allow("db.example", "tcp/7000", "direct")
	r.Addresses = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}
	f, _ := newFence(t, host, r)
	g := newGuest(t, f)
	echo(t, host.listen(t, "tcp", ":7000"))
	must(t, f.Open(netip.MustParseAddr("10.9.0.1"), Permit{Name: "db.example", Port: port("tcp/7000"), Via: netpolicy.Direct}, time.Now().Add(time.Minute)))
	c, err := g.dial("tcp", "10.9.0.1:7000")
	must(t, err)
	defer c.Close()
	say(t, c, "hello")
}

func lookup(t testing.TB, s *space, name string) netlink.Link {
	t.Helper()
	l, err := s.links.LinkByName(name)
	must(t, err)
	return l
}

// The uplink, its tables and settings on the host exist only while there is a direct rule.
func TestUplinkComesAndGoes(t *testing.T) {
	t.Parallel()
	host, _ := newTopology(t)
	before := hostState(t, host)
	f, _ := newFence(t, host, allow("shop.example"))
	if got := hostState(t, host); got != before {
		t.Errorf("without a direct rule the host changed from\n%s\nto\n%s", before, got)
	}
	for range 2 {
		enforce(t, f, everywhere("tcp/7000")...)
		if got := hostState(t, host); !strings.Contains(got, "cust0") || !strings.Contains(got, "custody-cust0") {
			t.Errorf("with a direct rule the host has\n%s", got)
		}
		second, _ := newFence(t, host, everywhere("tcp/7000")...)
		if second.own().uplink.name != "cust1" {
			t.Errorf("the second uplink is %s", second.own().uplink.name)
		}
		enforce(t, f, allow("shop.example"))
		enforce(t, second, allow("shop.example"))
		if got := hostState(t, host); got != before {
			t.Errorf("after the direct rules were gone the host changed from\n%s\nto\n%s", before, got)
		}
	}
}

// Sweep removes what a killed process has left, although its namespace still exists: the kernel keeps it while
// connections end. Closing the guard is what the kernel does when a process is killed.
func TestSweepRemovesUplinksOfKilled(t *testing.T) {
	t.Parallel()
	host, _ := newTopology(t)
	before := hostState(t, host)
	sweep := func() { t.Helper(); must(t, host.in(func() error { return Sweep(t.Context()) })) }
	sweep()
	dead, _ := newFence(t, host, everywhere("tcp/7000")...)
	with := hostState(t, host)
	sweep()
	if got := hostState(t, host); got != with {
		t.Errorf("with a live sandbox Sweep changed\n%s\nto\n%s", with, got)
	}
	alive, _ := newFence(t, host, everywhere("tcp/7000")...)
	must(t, dead.own().uplink.guard.close())
	sweep()
	if got := hostState(t, host); strings.Contains(got, "cust0") || !strings.Contains(got, "custody-cust1") || got == before {
		t.Errorf("with one dead and one alive the host has\n%s", got)
	}
	must(t, alive.own().uplink.guard.close())
	sweep()
	if got := hostState(t, host); got != before {
		t.Errorf("the host was\n%s\nand is\n%s", before, got)
	}
	var st unix.Stat_t
	must(t, unix.Fstat(int(host.handle), &st))
	if _, err := os.Stat(notesOf(&st)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the notes still exist: %v", err)
	}
}

// hostState is the links, tables and forwarding of a namespace, as its tools print them.
func hostState(t testing.TB, s *space) string {
	t.Helper()
	var b strings.Builder
	must(t, s.in(func() error {
		links, err := s.links.LinkList()
		for _, l := range links {
			fmt.Fprintln(&b, l.Attrs().Name, l.Attrs().Alias)
		}
		for _, name := range []string{
			"ipv4/conf/wan/forwarding", "ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv6/conf/wan/force_forwarding",
			"ipv6/conf/wan/forwarding", "ipv6/conf/wan/accept_ra", "ipv6/conf/lo/forwarding", "ipv6/conf/default/accept_ra",
		} {
			v, _ := os.ReadFile("/proc/sys/net/" + name)
			fmt.Fprintf(&b, "%s %s", name, v)
		}
		return err
	}))
	b.WriteString(tables(t, s))
	return b.String()
}

// The host forwards only for sandboxes with the settings that Custody changes, whatever it forwarded before with the
// other IP version.
func TestHostDoesNotBecomeARouter(t *testing.T) {
	t.Parallel()
	lan := map[string][3]string{ // addresses of the host and of the third machine, all addresses
		"ipv4": {"46.0.0.1", "46.0.0.2", "0.0.0.0/0"},
		"ipv6": {"2a00:46::1", "2a00:46::2", "::/0"},
	}
	for family, addrs := range lan {
		for _, other := range []string{"0", "1"} {
			t.Run(family+", the other "+other, func(t *testing.T) {
				t.Parallel()
				host, peer := newTopology(t)
				attrs := netlink.NewLinkAttrs()
				attrs.Name = "lan"
				third := testSpace(t)
				must(t, host.links.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(third.handle)}))
				end(t, host, "lan", netip.MustParseAddr(addrs[0]))
				end(t, third, "eth0", netip.MustParseAddr(addrs[1]))
				gateway := map[string]netip.Addr{"ipv4": hostAddr4, "ipv6": hostAddr6}[family]
				for s, via := range map[*space]netip.Addr{peer: gateway, third: netip.MustParseAddr(addrs[0])} {
					must(t, s.links.RouteReplace(&netlink.Route{Dst: ipNet(netip.MustParsePrefix(addrs[2])), Gw: via.AsSlice()}))
				}
				must(t, host.in(func() error {
					// A new namespace can have the settings of a machine that forwards.
					if err := (sysctls{"ipv4/ip_forward": "0", "ipv6/conf/all/forwarding": "0"}).set(); err != nil {
						return err
					}
					return sysctls{map[string]string{"ipv4": "ipv6/conf/all/forwarding", "ipv6": "ipv4/ip_forward"}[family]: other}.set()
				}))
				before := hostState(t, host)
				f, _ := newFence(t, host, everywhere("tcp/7000")...)
				p := third.listenPacket(t, "udp", net.JoinHostPort(addrs[1], "9"))
				c, err := peer.dial("udp", net.JoinHostPort(addrs[1], "9"))
				must(t, err)
				defer c.Close()
				for range 5 { // the first may wait for neighbour discovery
					c.Write([]byte("through"))
					p.SetDeadline(time.Now().Add(100 * time.Millisecond))
					if n, _, err := p.ReadFrom(make([]byte, 10)); err == nil {
						t.Fatalf("the host forwarded %d bytes between other machines", n)
					}
				}
				must(t, f.Close())
				if after := hostState(t, host); after != before {
					t.Errorf("the host was\n%s\nand is\n%s", before, after)
				}
			})
		}
	}
}

// newNarrowTopology adds a machine behind the peer of newTopology, over a link with an MTU of 1300.
//
//	host: wan ===== eth0 :peer: narrow ===1300=== eth0 :far
//	45.0.0.1    45.0.0.2        46.0.0.1           46.0.0.2
func newNarrowTopology(t testing.TB) (host, far *space, addrs map[string]netip.Addr) {
	t.Helper()
	host, peer := newTopology(t)
	far = testSpace(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "narrow"
	must(t, peer.links.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(far.handle)}))
	end(t, peer, "narrow", netip.MustParseAddr("46.0.0.1"), netip.MustParseAddr("2a00:46::1"))
	end(t, far, "eth0", netip.MustParseAddr("46.0.0.2"), netip.MustParseAddr("2a00:46::2"))
	must(t, peer.links.LinkSetMTU(lookup(t, peer, "narrow"), 1300))
	must(t, far.links.LinkSetMTU(lookup(t, far, "eth0"), 1300))
	must(t, peer.in(func() error {
		return sysctls{"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1"}.set()
	}))
	for s, via := range map[*space]netip.Addr{host: peerAddr4, far: netip.MustParseAddr("46.0.0.1")} {
		must(t, s.links.RouteReplace(&netlink.Route{Dst: ipNet(netip.MustParsePrefix("0.0.0.0/0")), Gw: via.AsSlice()}))
	}
	for s, via := range map[*space]netip.Addr{host: peerAddr6, far: netip.MustParseAddr("2a00:46::1")} {
		must(t, s.links.RouteReplace(&netlink.Route{Dst: ipNet(netip.MustParsePrefix("::/0")), Gw: via.AsSlice()}))
	}
	return host, far, map[string]netip.Addr{"ipv4": netip.MustParseAddr("46.0.0.2"), "ipv6": netip.MustParseAddr("2a00:46::2")}
}

// A smaller path MTU beyond the host reaches the guest as an ICMP error.
func TestPathMTU(t *testing.T) {
	t.Parallel()
	for family := range peers {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			host, far, addrs := newNarrowTopology(t)
			to := addrs[family]
			f, _ := newFence(t, host, allow("46.0.0.0/24", "tcp/7000"), allow("2a00:46::/64", "tcp/7000"))
			g := newGuest(t, f)
			l := far.listen(t, "tcp", at6or4(to, 7000))
			// The far end announces a segment size that its link cannot carry, like an end of a tunnel.
			must(t, far.links.LinkSetMTU(lookup(t, far, "eth0"), 1500))
			c, err := g.dial("tcp", at6or4(to, 7000))
			must(t, err)
			defer c.Close()
			heard, err := l.Accept()
			must(t, err)
			defer heard.Close()
			must2(t)(c.Write(make([]byte, 1400))) // one segment that is too large
			heard.SetDeadline(time.Now().Add(10 * time.Second))
			must2(t)(io.ReadFull(heard, make([]byte, 1400)))
		})
	}
}
