package gateway

import (
	"context"
	"net/netip"
	"time"

	"github.com/custody-project/custody/audit"
)

// flow returns what all events of the connection have in common. The caller
// holds mu, or is the only one to know the connection.
func (c *conn) flow(state audit.FlowState, verdict audit.Verdict) *audit.Flow {
	f := &audit.Flow{
		ID: c.id, State: state, Verdict: verdict, Proto: "tcp",
		SrcIP: c.src.Addr().String(), SrcPort: int(c.src.Port()), DstIP: c.dst.Addr().String(), DstPort: int(c.dst.Port()),
		Name: audit.Text(c.name), DNSSeq: c.dnsSeq, Rule: c.rule, Generation: c.gen,
	}
	if c.g.cfg.Proc != nil {
		f.Proc = c.g.cfg.Proc(c.src, c.dst)
	}
	return f
}

// maxSNI is how much of a wrong server name stands in the record: more than a
// host name can have.
const maxSNI = 300

// deny records that the connection was refused before it was open. It is
// durable before the guest gets an answer; without a record the guest is refused all the same.
func (c *conn) deny(rule string, no *refusal, sni string) {
	c.mu.Lock()
	f := c.flow(audit.FlowDeny, audit.Deny)
	c.mu.Unlock()
	f.ID, f.Rule, f.Reason, f.Generation = "", rule, no.reason, c.g.cfg.Live.Current().Number
	if sni != c.name {
		f.SNI = audit.Text(sni[:min(len(sni), maxSNI)])
	}
	c.count(f)
	seq, _ := c.g.record(c.ctx, audit.Event{Kind: audit.KindFlow, Flow: f}) // nothing is let out either way
	c.show(seq)
}

// show notes the event that shows what the connection is.
func (c *conn) show(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shown == 0 {
		c.shown = seq
	}
}

// recordOpen returns when it is durable that the flow goes to peer. An event
// of the same flow that is not its first names a further address that is tried.
func (c *conn) recordOpen(ctx context.Context, peer netip.AddrPort, why string) *refusal {
	c.mu.Lock()
	f := c.flow(audit.FlowOpen, audit.Allow)
	c.mu.Unlock()
	f.Peer, f.Reason = peer.String(), why
	seq, err := c.g.record(ctx, audit.Event{Kind: audit.KindFlow, Flow: f})
	if err != nil {
		return &refusal{503, alertInternalError, "the record cannot be written, so nothing is let out"}
	}
	c.show(seq)
	return nil
}

// recordEnd records the end of a flow that was open: close, or revoke when the
// policy ended it.
func (c *conn) recordEnd(why string) {
	c.mu.Lock()
	f := c.flow(audit.FlowClose, audit.Allow)
	if f.Reason = why; c.ended != "" {
		f.Reason = c.ended
	}
	if c.peer.IsValid() {
		f.Peer = c.peer.String()
	}
	if v := c.revoked; v != nil {
		f.State, f.Verdict, f.Rule = audit.FlowRevoke, audit.Deny, v.RuleName()
	}
	c.mu.Unlock()
	if f.ID == "" {
		return
	}
	c.count(f)
	f.DurationNS = int64(time.Since(c.began))
	ctx, cancel := lastWords(c.ctx)
	defer cancel()
	_, _ = c.g.post(ctx, audit.Event{Kind: audit.KindFlow, Flow: f}) // the connection has ended in any case
}

func (c *conn) count(f *audit.Flow) {
	if c.g.cfg.Meter != nil {
		f.BytesOut, f.BytesIn, f.PacketsOut, f.PacketsIn = c.g.cfg.Meter.Count(c.src, c.dst)
	}
}
