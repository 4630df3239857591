package egress

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/netpolicy/fence"
)

// memory is a record in memory, which is always durable. It calls onPolicy when a policy event is posted.
type memory struct {
	mu       sync.Mutex // guards events
	events   []audit.Event
	onPolicy func()
}

func (m *memory) Post(_ context.Context, ev audit.Event) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, ev)
	if ev.Policy != nil && m.onPolicy != nil {
		m.onPolicy()
	}
	return uint64(len(m.events)), nil
}

func (m *memory) Record(ctx context.Context, ev audit.Event) (uint64, error) { return m.Post(ctx, ev) }
func (m *memory) Sync(context.Context, uint64) error                         { return nil }

func policy(t *testing.T, names ...string) *netpolicy.Policy {
	t.Helper()
	var rules []netpolicy.Rule
	for _, name := range names {
		pattern, err := netpolicy.ParsePattern(name)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, netpolicy.Rule{Pattern: pattern})
	}
	p, err := netpolicy.New(rules)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestChange: a policy can be changed only while the network is open; otherwise the initial policy could replace it. A
// recorded policy is enforced even if the caller's context has ended.
func TestChange(t *testing.T) {
	record := &memory{}
	prepared := Prepare(func(o fence.Options) (*fence.Fence, error) { return fence.New(t.Context(), o) })
	defer prepared.Close()
	n, err := prepared.Network(Options{
		Run: "r-test", Policy: policy(t, "a.example.com", "b.example.com"), Recorder: record, Notice: func(s string) { t.Error(s) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if _, err := n.Change(t.Context(), policy(t)); !errors.Is(err, ErrNotOpen) {
		t.Errorf("changed before Begin: %v", err)
	}
	if err := n.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	record.onPolicy = cancel
	c, err := n.Change(ctx, policy(t, "a.example.com"))
	if err != nil || c.Generation != 2 || c.Previous != policy(t, "a.example.com", "b.example.com").Digest() {
		t.Errorf("change: %+v, %v", c, err)
	}
	if _, err := n.fence.Enforce(t.Context(), n.live.Current()); err == nil || !strings.Contains(err.Error(), "2 is already in force") {
		t.Errorf("the fence does not have the generation that is in force according to the record: %v", err)
	}
	n.End()
	if _, err := n.Change(t.Context(), policy(t)); !errors.Is(err, ErrNotOpen) {
		t.Errorf("changed after End: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// TestNameTable: each name has one address, each address one name, and a lookup by address works only after its answer is
// durable.
func TestNameTable(t *testing.T) {
	b := newNameTable()
	a, err := b.address("a.example.com")
	if err != nil || a != netpolicy.FirstSynthetic {
		t.Fatalf("the first address is %v, %v", a, err)
	}
	if _, _, ok := b.Name(a); ok || len(b.issued()) != 0 {
		t.Error("an address has a name before its answer is in the record")
	}
	b.answered("a.example.com", 7)
	if name, seq, ok := b.Name(netip.AddrFrom16(a.As16())); !ok || name != "a.example.com" || seq != 7 {
		t.Errorf("the name of %v is %q, seq %d, %v", a, name, seq, ok)
	}
	if again, _ := b.address("a.example.com"); again != a {
		t.Errorf("a name has %v and %v", a, again)
	}
	b.next = netip.MustParseAddr("198.18.255.255")
	if last, err := b.address("last.example.com"); err != nil || last != netip.MustParseAddr("198.18.255.255") {
		t.Errorf("the last address is %v, %v", last, err)
	}
	if _, err := b.address("more.example.com"); !errors.Is(err, ErrNamesSpent) {
		t.Errorf("an address outside of the range: %v", err)
	}
}
