package egress

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/netpolicy/fence"
)

// observed records an event of the fence. The gateway records its own flows, with their results, and the resolver its
// queries.
func (n *Network) observed(ev fence.Event) {
	if ev.Lost > 0 {
		n.post(audit.Event{Kind: audit.KindGap, Gap: &audit.Gap{
			Stage: audit.StageFlowRing, What: string(audit.KindFlow), Count: ev.Lost, Cause: "the ring between the sandbox's packet filter and custody was full",
		}})
	}
	switch {
	case ev.State == audit.FlowDeny:
	case ev.Flow.Via == netpolicy.Direct:
	default:
		return
	}
	n.recordFlow(ev.State, ev.Flow, ev.Reason, ev.Count)
}

func (n *Network) recordFlow(state audit.FlowState, f fence.Flow, reason string, count uint64) {
	e := &audit.Flow{
		State: state, Proto: f.Key.Proto, Name: audit.Text(f.Permit.Name), Rule: f.Permit.Rule, Reason: reason, Count: count,
		DNSSeq: f.Permit.DNSSeq, Generation: f.Generation, Verdict: audit.Allow,
		BytesOut: f.BytesOut, BytesIn: f.BytesIn, PacketsOut: f.PacketsOut, PacketsIn: f.PacketsIn,
	}
	e.SrcIP, e.SrcPort = endpoint(f.Key.Src)
	e.DstIP, e.DstPort = endpoint(f.Key.Dst)
	switch state {
	case audit.FlowDeny:
		e.Verdict = audit.Deny
		if e.Rule == "" {
			e.Rule = netpolicy.Default
		}
		if name, seq, ok := n.names.Name(f.Dst.Addr()); ok {
			e.Name, e.DNSSeq = audit.Text(name), seq
		}
	case audit.FlowRevoke:
		e.Verdict = audit.Deny
	}
	if state != audit.FlowDeny {
		e.ID = n.flows.of(f.Key, state != audit.FlowOpen)
	}
	if state == audit.FlowClose || state == audit.FlowRevoke {
		e.DurationNS = int64(f.Last.Sub(f.Began))
	}
	n.post(audit.Event{Kind: audit.KindFlow, Flow: e})
}

func endpoint(a netip.AddrPort) (string, int) {
	if !a.Addr().IsValid() {
		return "", 0
	}
	return a.Addr().String(), int(a.Port())
}

// post waits while the record accepts no event. Meanwhile the fence's ring buffer fills, and the fence counts the events
// that do not fit.
func (n *Network) post(ev audit.Event) {
	ev.Time, ev.Observer = time.Now().UTC(), audit.Host
	if _, err := n.annotator.Post(context.Background(), ev); err != nil {
		n.options.Notice(fmt.Sprintf("a network event could not be recorded: %v", err))
	}
}

// meter reads a flow's counters for the gateway.
type meter struct{ fence *fence.Fence }

// Count implements gateway.Meter.
func (m meter) Count(src, dst netip.AddrPort) (out, in, packetsOut, packetsIn uint64) {
	f, _ := m.fence.Flow(fence.Key{Proto: "tcp", Src: src, Dst: dst})
	return f.BytesOut, f.BytesIn, f.PacketsOut, f.PacketsIn
}
