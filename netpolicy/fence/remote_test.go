package fence

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/privsep/privseptest"
)

// In these tests the fence is in an unprivileged process, the worker. Its namespace is in the test's process.
//
//	guest ==TAP== | sandbox's namespace | == uplink == | host's namespace | ===== | peer
//	              | test's process: Namespace          | worker: Fence    |

// ruleWords are the arguments of allow.
type ruleWords []string

func rulesOfWords(all []ruleWords) (*netpolicy.Policy, error) {
	var rules []netpolicy.Rule
	for _, w := range all {
		rules = append(rules, allow(w[0], w[1:]...))
	}
	return netpolicy.New(rules)
}

type openCall struct {
	Addr netip.Addr
	Name string
	Port string
}

type rawCall struct {
	Name string
	Body map[string]any
}

// work is the worker: it carries out the test's calls with a fence.
func work() error {
	ctx := context.Background()
	var c *privsep.Conn
	var f *Fence
	var last uint32
	none := struct{}{}
	c, _, err := privsep.Enter(map[string]privsep.Handler{
		"enforce": privsep.Handle(func(_ context.Context, rules []ruleWords) (any, []*os.File, error) {
			p, err := rulesOfWords(rules)
			if err != nil {
				return nil, nil, err
			}
			last++
			ended, err := f.Enforce(ctx, netpolicy.Generation{Number: last, Policy: p})
			return len(ended), nil, err
		}),
		"open": privsep.Handle(func(_ context.Context, o openCall) (any, []*os.File, error) {
			return none, nil, f.Open(o.Addr, Permit{Name: o.Name, Port: port(o.Port), Via: netpolicy.Gateway}, time.Time{})
		}),
		"greet": privsep.Handle(func(_ context.Context, at string) (any, []*os.File, error) {
			l, err := f.Listen(ctx, "tcp4", at)
			if err != nil {
				return nil, nil, err
			}
			go func() {
				for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
					conn.Write([]byte("hello"))
					conn.Close()
				}
			}()
			return none, nil, nil
		}),
		"denials": privsep.Handle(func(context.Context, struct{}) (any, []*os.File, error) {
			d, err := f.Denials()
			return d, nil, err
		}),
		"call": privsep.Handle(func(_ context.Context, r rawCall) (any, []*os.File, error) { // what a worker that was taken over could call
			_, err := c.Call(ctx, r.Name, r.Body, nil)
			return none, nil, err
		}),
	}, 0)
	if err != nil {
		return err
	}
	f, err = Open(ctx, c, Options{Observed: func(ev Event) {
		_, _ = c.Call(ctx, "event", ev, nil)
	}})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// remoteRig is a fence in a worker, with a guest and a peer.
type remoteRig struct {
	t         *testing.T
	namespace *Namespace
	worker    *privsep.Process
	policy    atomic.Pointer[netpolicy.Policy]
	seen      *eventLog
	guest     *guest
	peer      *space
}

func newRemoteRig(t *testing.T) *remoteRig {
	t.Helper()
	host, peer := newTopology(t)
	r := &remoteRig{t: t, seen: newEventLog(), peer: peer}
	none, err := netpolicy.New(nil)
	must(t, err)
	r.policy.Store(none)
	must(t, host.in(func() (err error) { r.namespace, err = NewNamespace(t.Context()); return err }))
	t.Cleanup(func() { must(t, r.namespace.Close()) })
	w := privseptest.Worker("fence")
	w.Network = os.NewFile(uintptr(dup(t, int(host.handle))), "host")
	defer w.Network.Close()
	handlers := r.namespace.Handlers(r.policy.Load)
	handlers["event"] = privsep.Handle(func(_ context.Context, ev Event) (any, []*os.File, error) {
		r.seen.add(ev)
		return struct{}{}, nil, nil
	})
	r.worker = privseptest.Start(t, w, handlers)
	r.guest = newGuest(t, &Fence{namespace: r.namespace})
	return r
}

// enforce has the worker enforce a policy, which the namespace's process knows first.
func (r *remoteRig) enforce(rules ...ruleWords) {
	r.t.Helper()
	p, err := rulesOfWords(rules)
	must(r.t, err)
	r.policy.Store(p)
	r.call("enforce", rules)
}

func (r *remoteRig) call(name string, args any) {
	r.t.Helper()
	_, err := r.worker.Call(r.t.Context(), name, args, nil)
	must(r.t, err)
}

var remoteRules = []ruleWords{{"45.0.0.0/24", "tcp/7000"}, {"2a00:45::/64", "tcp/7000"}, {"shop.example", "tcp/443"}}

// TestRemote: a fence in a process without any privilege enforces policies, observes flows and ends them.
func TestRemote(t *testing.T) {
	t.Parallel()
	r := newRemoteRig(t)
	r.enforce(remoteRules...)
	streams := map[string]stream{}
	for family, addr := range peers {
		streams[family] = openStream(t, r.guest, r.peer, addr)
		r.seen.await2(t, audit.FlowOpen, netip.AddrPortFrom(addr, 7000))
	}
	r.call("greet", "0.0.0.0:443")
	synthetic := netip.MustParseAddr("198.18.1.7")
	r.call("open", openCall{synthetic, "shop.example", "tcp/443"})
	c, err := r.guest.dial("tcp", "198.18.1.7:443")
	must(t, err)
	b := make([]byte, 5)
	if n, err := c.Read(b); string(b[:n]) != "hello" {
		t.Errorf("the gateway's socket sent %q, %v", b[:n], err)
	}
	c.Close()
	if c, err := r.guest.dial("tcp", "45.0.0.2:7001"); err == nil {
		c.Close()
		t.Error("another port was reached")
	}
	r.seen.await2(t, audit.FlowDeny, netip.AddrPortFrom(peerAddr4, 7001))
	var denials map[string]uint64
	if _, err := r.worker.Call(t.Context(), "denials", struct{}{}, &denials); err != nil || len(denials) == 0 {
		t.Errorf("denials %v, %v", denials, err)
	}
	r.enforce(ruleWords{"shop.example", "tcp/443"})
	for family, s := range streams {
		r.seen.await2(t, audit.FlowRevoke, netip.AddrPortFrom(peers[family], 7000))
		for _, end := range []net.Conn{s.near, s.far} {
			end.SetReadDeadline(time.Now().Add(30 * time.Second))
			if _, err := end.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: an end of the revoked flow is open: %v", family, err)
			}
		}
	}
}

// TestRemoteRefusals: the process of the namespace does nothing for the other process that the policy does not allow.
func TestRemoteRefusals(t *testing.T) {
	t.Parallel()
	r := newRemoteRig(t)
	r.enforce(ruleWords{"shop.example", "tcp/443"})
	many := make([]netip.Addr, maxNamed+1)
	for name, c := range map[string]struct {
		call string
		body map[string]any
		want string
	}{
		"install again":    {callInstall, nil, "installed already"},
		"another port":     {callListen, map[string]any{"Network": "tcp4", "Address": "0.0.0.0:8080"}, "no such port"},
		"a name":           {callListen, map[string]any{"Network": "tcp4", "Address": "localhost:443"}, "unable to parse"},
		"packets":          {callListen, map[string]any{"Network": "udp4", "Address": "0.0.0.0:443"}, "no such port"},
		"another family":   {callListen, map[string]any{"Network": "tcp6", "Address": "[::]:443"}, "no such port"},
		"a unix socket":    {callListen, map[string]any{"Network": "unix", "Address": "198.18.0.1:53"}, "unknown network"},
		"an uplink":        {callConnect, map[string]any{"Number": 1}, "no direct rules"},
		"fragments":        {callFragments, map[string]any{"Number": 1}, "no direct rules"},
		"ranges":           {callRanges, map[string]any{"Entries": 1}, "the policy has 0"},
		"negative ranges":  {callRanges, map[string]any{"Entries": -1}, "the policy has 0"},
		"the host":         {callGuard, map[string]any{"Named": []netip.Addr{hostAddr4}}, "no rule names it"},
		"many addresses":   {callGuard, map[string]any{"Named": many}, "write them as ranges"},
		"an unknown field": {callGuard, map[string]any{"Table": "filter"}, "unknown field"},
	} {
		_, err := r.worker.Call(t.Context(), "call", rawCall{c.call, c.body}, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	r.enforce(remoteRules...)
	for name, c := range map[string]rawCall{
		"more ranges than the policy has": {callRanges, map[string]any{"Entries": 1 << 20}},
		"a second uplink":                 {callConnect, map[string]any{"Number": 2}},
		"the host, in a range":            {callGuard, map[string]any{"Named": []netip.Addr{hostAddr4}}},
	} {
		if _, err := r.worker.Call(t.Context(), "call", c, nil); err == nil {
			t.Errorf("%s is not refused", name)
		}
	}
}

// TestRemoteKilled: when the worker is killed no packet passes, although the process of the namespace goes on.
func TestRemoteKilled(t *testing.T) {
	t.Parallel()
	r := newRemoteRig(t)
	r.enforce(remoteRules...)
	streams := map[string]stream{}
	for family, addr := range peers {
		streams[family] = openStream(t, r.guest, r.peer, addr)
	}
	must(t, r.worker.Close())
	for family, s := range streams {
		// The kernel empties the table of admitted programs in the background.
		eventually(t, family+": the direct flow has ended", func() bool {
			return !s.passes(s.near, s.far, 500*time.Millisecond) && !s.passes(s.far, s.near, 500*time.Millisecond)
		})
	}
}
