package fence

import (
	"net/netip"
	"testing"
	"time"
)

// TestInstall: packet filters that are installed ahead drop all packets and report none of them, until a policy is enforced. Nothing is
// left of a fence that is closed before that.
func TestInstall(t *testing.T) {
	host, peer := newTopology(t)
	before := hostState(t, host)
	addr := netip.MustParseAddr("45.0.0.2")
	received := peer.listenPacket(t, "udp", "0.0.0.0:7000")
	for _, used := range []bool{false, true} {
		var f *Fence
		seen := newEventLog()
		must(t, host.in(func() (err error) { f, err = New(t.Context(), Options{Observed: seen.add}); return err }))
		must(t, f.Install())
		must(t, f.Install())
		w := &wire{t, f.Tap()}
		w.send(packet{proto: protoUDP, peer: addr, guestPort: 1000, peerPort: 7000, payload: []byte("before")}.frame())
		if used {
			enforce(t, f, allow("45.0.0.0/24", "udp/7000"))
			w.send(packet{proto: protoUDP, peer: addr, guestPort: 1001, peerPort: 7000, payload: []byte("after")}.frame())
			b := make([]byte, 100)
			received.SetDeadline(time.Now().Add(5 * time.Second))
			if n, _, err := received.ReadFrom(b); err != nil || string(b[:n]) != "after" {
				t.Errorf("the peer received %q, %v", b[:n], err)
			}
			if denied, err := f.Denials(); err != nil || len(denied) > 0 {
				t.Errorf("denials: %v, %v", denied, err)
			}
		}
		must(t, f.Close())
		for _, ev := range seen.list() {
			if ev.Flow.Src.Port() != 1001 {
				t.Errorf("an event: %+v", ev)
			}
		}
	}
	if after := hostState(t, host); after != before {
		t.Errorf("the host changed from\n%s\nto\n%s", before, after)
	}
}
