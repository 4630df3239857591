package fence

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
)

var shop = netip.MustParseAddr("198.18.1.7")

// gatewayFence returns a fence in which shop.example has the synthetic address shop.
func gatewayFence(t testing.TB) (*Fence, *guest, *eventLog) {
	f, seen := newFence(t, nil, allow("shop.example", "tcp/443"))
	must(t, f.Open(shop, Permit{Name: "shop.example", Port: port("tcp/443"), Via: netpolicy.Gateway, DNSSeq: 9}, time.Time{}))
	return f, newGuest(t, f), seen
}

func TestGuestReachesGatewaySocket(t *testing.T) {
	t.Parallel()
	f, g, seen := gatewayFence(t)
	l, err := f.Listen(context.Background(), "tcp4", "0.0.0.0:443")
	must(t, err)
	echo(t, l)
	c, err := g.dial("tcp", "198.18.1.7:443")
	must(t, err)
	say(t, c, "hello")
	dst := netip.MustParseAddrPort("198.18.1.7:443")
	open := seen.await2(t, audit.FlowOpen, dst)
	if open.Flow.Name != "shop.example" || open.Flow.Rule != "shop.example tcp/443" || open.Flow.DNSSeq != 9 || open.Flow.Via != netpolicy.Gateway || open.Flow.Generation != 1 {
		t.Errorf("open event has %+v", open.Flow)
	}
	c.Close()
	closed := seen.await2(t, audit.FlowClose, dst)
	if closed.Flow.PacketsOut < 4 || closed.Flow.PacketsIn < 3 || closed.Flow.Last.Before(closed.Flow.Began) {
		t.Errorf("close event has %+v", closed.Flow)
	}
	if got, ok := f.Flow(closed.Flow.Key); !ok || got != closed.Flow {
		t.Errorf("Flow of an ended flow: %+v, %v; want %+v", got, ok, closed.Flow)
	}
}

func TestResolverIsReachedByBothTransports(t *testing.T) {
	t.Parallel()
	f, _ := newFence(t, nil)
	g := newGuest(t, f)
	l, err := f.Listen(context.Background(), "tcp4", "198.18.0.1:53")
	must(t, err)
	echo(t, l)
	p, err := f.ListenPacket(context.Background(), "udp4", "198.18.0.1:53")
	must(t, err)
	go func() {
		b := make([]byte, 100)
		for {
			n, from, err := p.ReadFrom(b)
			if err != nil {
				return
			}
			p.WriteTo(b[:n], from)
		}
	}()
	defer p.Close()
	for _, network := range []string{"tcp", "udp"} {
		c, err := g.dial(network, "198.18.0.1:53")
		must(t, err)
		say(t, c, "a question")
		c.Close()
	}
}

// A socket for packets drops them until the process that receives from it removes the filter: none gets into a process
// with privileges.
func TestPacketsBeforeTheReceiver(t *testing.T) {
	t.Parallel()
	const resolver = "198.18.0.1:53"
	f, _ := newFence(t, nil)
	g := newGuest(t, f)
	l, err := f.Listen(context.Background(), "tcp4", resolver)
	must(t, err)
	echo(t, l)
	send := func(packet string) {
		c, err := g.dial("udp", resolver)
		must(t, err)
		_, err = c.Write([]byte(packet))
		must(t, errors.Join(err, c.Close()))
	}
	socket, err := f.own().Listen(context.Background(), "udp4", resolver)
	must(t, err)
	defer socket.Close()
	send("early")
	c, err := g.dial("tcp", resolver)
	must(t, err)
	defer c.Close()
	say(t, c, "it has arrived")
	p, err := receiver(socket)
	must(t, err)
	defer p.Close()
	send("late")
	b := make([]byte, 100)
	if n, _, err := p.ReadFrom(b); err != nil || string(b[:n]) != "late" {
		t.Errorf("the first packet is %q, %v", b[:n], err)
	}
}

// A denied connection attempt fails immediately with an error.
func TestDeniedAttemptFailsImmediately(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		network, addr string
		want          error
	}{
		"tcp ipv4":  {"tcp", "93.184.216.34:443", syscall.EHOSTUNREACH},
		"tcp ipv6":  {"tcp", "[2606:2800:220:1::1]:443", syscall.EACCES},
		"quic ipv4": {"udp", "198.18.1.7:443", syscall.EHOSTUNREACH},
		"quic ipv6": {"udp", "[2606:2800:220:1::1]:443", syscall.EACCES},
		"metadata":  {"tcp", "169.254.169.254:80", syscall.EHOSTUNREACH},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, g, seen := gatewayFence(t)
			conn, err := g.dial(c.network, c.addr)
			if err == nil {
				conn.SetDeadline(time.Now().Add(30 * time.Second))
				conn.Write([]byte("hello"))
				_, err = conn.Read(make([]byte, 1))
				conn.Close()
			}
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			ev := seen.await2(t, audit.FlowDeny, netip.MustParseAddrPort(c.addr))
			if ev.Count == 0 || ev.Flow.Rule == "" || ev.Reason == "" {
				t.Errorf("denial says %+v", ev)
			}
		})
	}
}

func TestDenialNamesTheClosestRule(t *testing.T) {
	t.Parallel()
	_, g, seen := gatewayFence(t)
	_, err := g.dial("tcp", "198.18.1.7:80")
	if err == nil {
		t.Fatal("a port that no rule names is open")
	}
	ev := seen.await2(t, audit.FlowDeny, netip.MustParseAddrPort("198.18.1.7:80"))
	if ev.Flow.Name != "shop.example" || ev.Reason != string(netpolicy.WrongPort) || ev.Flow.Rule != "shop.example tcp/443" {
		t.Errorf("denial says %+v", ev)
	}
}

// Revoking ends an open download immediately; the gateway's reset still reaches the guest.
func TestRevokeEndsGatewayFlow(t *testing.T) {
	t.Parallel()
	f, g, seen := gatewayFence(t)
	l, err := f.Listen(context.Background(), "tcp4", "0.0.0.0:443")
	must(t, err)
	reset := pour(t, l)
	c, err := g.dial("tcp", "198.18.1.7:443")
	must(t, err)
	defer c.Close()
	if _, err := io.ReadFull(c, make([]byte, 1<<16)); err != nil {
		t.Fatal(err)
	}
	ended := enforce(t, f, allow("other.example"))
	if len(ended) != 1 || ended[0].BytesIn < 1<<16 || ended[0].Name != "shop.example" {
		t.Fatalf("ended %+v", ended)
	}
	reset() // as the gateway does
	c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the guest's connection ended with %v", err)
	}
	ev := seen.await2(t, audit.FlowRevoke, ended[0].Dst)
	if ev.Flow.Key != ended[0].Key || ev.Flow.BytesIn < ended[0].BytesIn {
		t.Errorf("revoke event has %+v, Enforce returned %+v", ev.Flow, ended[0])
	}
	if _, err := g.dial("tcp", "198.18.1.7:443"); err == nil {
		t.Error("the revoked name is open")
	}
	for _, ev := range seen.list() {
		if ev.State == audit.FlowClose {
			t.Errorf("a revoked flow was also reported as closed: %+v", ev)
		}
	}
}

// A change of only the text of a rule ends no flow.
func TestFlowOutlivesChangeThatAllowsIt(t *testing.T) {
	t.Parallel()
	f, g, seen := gatewayFence(t)
	l, err := f.Listen(context.Background(), "tcp4", "0.0.0.0:443")
	must(t, err)
	echo(t, l)
	c, err := g.dial("tcp", "198.18.1.7:443")
	must(t, err)
	defer c.Close()
	say(t, c, "before")
	if ended := enforce(t, f, allow("shop.example", "tcp/443", "tcp/80")); len(ended) > 0 {
		t.Errorf("ended %+v", ended)
	}
	say(t, c, "after")
	flow, ok := f.Flow(seen.await2(t, audit.FlowOpen, netip.AddrPortFrom(shop, 443)).Flow.Key)
	if !ok || flow.Generation != 2 || flow.Rule != "shop.example tcp/80 tcp/443" {
		t.Errorf("flow is %+v", flow)
	}
}

func TestOpenAsksThePolicyInForce(t *testing.T) {
	t.Parallel()
	f, _ := newFence(t, nil)
	p := Permit{Name: "shop.example", Port: port("tcp/443"), Via: netpolicy.Gateway}
	if err := f.Open(shop, p, time.Time{}); err == nil {
		t.Error("opened before there was a policy")
	}
	enforce(t, f, allow("shop.example", "tcp/443"), allow("db.example", "tcp/5432", "direct"))
	must(t, f.Open(shop, p, time.Time{}))
	for name, c := range map[string]struct {
		addr string
		p    Permit
	}{
		"another port":             {"198.18.1.7", Permit{Name: "shop.example", Port: port("tcp/80"), Via: netpolicy.Gateway}},
		"another name":             {"198.18.1.7", Permit{Name: "evil.example", Port: port("tcp/443"), Via: netpolicy.Gateway}},
		"real address, gateway":    {"45.0.0.2", p},
		"the link's own":           {"198.18.0.1", p},
		"direct name, synthetic":   {"198.18.1.8", Permit{Name: "db.example", Port: port("tcp/5432"), Via: netpolicy.Direct}},
		"direct name, rebinding":   {"169.254.169.254", Permit{Name: "db.example", Port: port("tcp/5432"), Via: netpolicy.Direct}},
		"direct name, mapped":      {"::ffff:10.0.0.1", Permit{Name: "db.example", Port: port("tcp/5432"), Via: netpolicy.Direct}},
		"direct name, via gateway": {"198.18.1.8", Permit{Name: "db.example", Port: port("tcp/5432"), Via: netpolicy.Gateway}},
		"no name":                  {"45.0.0.2", Permit{Port: port("tcp/443"), Via: netpolicy.Direct}},
		"no way":                   {"198.18.1.7", Permit{Name: "shop.example", Port: port("tcp/443")}},
	} {
		if err := f.Open(netip.MustParseAddr(c.addr), c.p, time.Time{}); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
}
