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
		ID: c.life.id, State: state, Verdict: verdict, Proto: "tcp",
		SrcIP: c.src.Addr().String(), SrcPort: int(c.src.Port()), DstIP: c.dst.Addr().String(), DstPort: int(c.dst.Port()),
		Name: audit.Text(c.to.name), DNSSeq: c.dnsSeq, Rule: c.life.rule, Generation: c.life.gen,
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
	c.life.mu.Lock()
	f := c.flow(audit.FlowDeny, audit.Deny)
	c.life.mu.Unlock()
	f.ID, f.Rule, f.Reason, f.Generation = "", rule, no.reason, c.g.cfg.Live.Current().Number
	if sni != c.to.name {
		f.SNI = audit.Text(sni[:min(len(sni), maxSNI)])
	}
	c.count(f)
	seq, _ := c.g.record(c.ctx, audit.Event{Kind: audit.KindFlow, Flow: f}) // nothing is let out either way
	c.life.show(seq)
}

// recordOpen returns when it is durable that the flow goes to peer. An event
// of the same flow that is not its first names a further address that is tried.
func (c *conn) recordOpen(ctx context.Context, peer netip.AddrPort, why string) *refusal {
	c.life.mu.Lock()
	f := c.flow(audit.FlowOpen, audit.Allow)
	c.life.mu.Unlock()
	f.Peer, f.Reason = peer.String(), why
	seq, err := c.g.record(ctx, audit.Event{Kind: audit.KindFlow, Flow: f})
	if err != nil {
		return &refusal{503, alertInternalError, "the record cannot be written, so nothing is let out"}
	}
	c.life.show(seq)
	return nil
}

// recordEnd records the end of a flow that was open: close, or revoke when the
// policy ended it.
func (c *conn) recordEnd(why string) {
	c.life.mu.Lock()
	f := c.flow(audit.FlowClose, audit.Allow)
	if f.Reason = why; c.life.ended != "" {
		f.Reason = c.life.ended
	}
	if c.life.peer.IsValid() {
		f.Peer = c.life.peer.String()
	}
	if v := c.life.revoked; v != nil {
		f.State, f.Verdict, f.Rule = audit.FlowRevoke, audit.Deny, v.RuleName()
	}
	c.life.mu.Unlock()
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
