package gateway

import (
	"context"
	"net/netip"
	"time"

	"github.com/custody-project/custody/audit"
)

// flow returns the common part of the connection's events. The caller holds mu, or no other goroutine has the
// connection.
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

// maxSNI bounds the recorded part of a wrong server name. It is more than the length of a host name.
const maxSNI = 300

// deny records that the connection was denied before it was open. The event is durable before the guest gets an answer;
// if it cannot be recorded the connection is denied all the same.
func (c *conn) deny(rule string, no *refusal, sni string) {
	c.life.mu.Lock()
	f := c.flow(audit.FlowDeny, audit.Deny)
	c.life.mu.Unlock()
	f.ID, f.Rule, f.Reason, f.Generation = "", rule, no.reason, c.g.cfg.Live.Current().Number
	if sni != c.to.name {
		f.SNI = audit.Text(sni[:min(len(sni), maxSNI)])
	}
	c.count(f)
	seq, _ := c.g.record(c.ctx, audit.Event{Kind: audit.KindFlow, Flow: f}) // denied in any case
	c.life.show(seq)
}

// recordOpen returns when the flow to peer is durable in the record. Further events of the same flow name other
// addresses that are tried.
func (c *conn) recordOpen(ctx context.Context, peer netip.AddrPort, why string) *refusal {
	c.life.mu.Lock()
	f := c.flow(audit.FlowOpen, audit.Allow)
	c.life.mu.Unlock()
	f.Peer, f.Reason = peer.String(), why
	seq, err := c.g.record(ctx, audit.Event{Kind: audit.KindFlow, Flow: f})
	if err != nil {
		return &refusal{503, alertInternalError, "the record cannot be written, so all traffic is denied"}
	}
	c.life.show(seq)
	return nil
}

// recordEnd records the end of an open flow: close, or revoke if the policy ended it.
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
