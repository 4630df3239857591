package dnsproxy

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
)

// maxBatch bounds the number of answers that one Sync makes durable.
const maxBatch = 512

// commit is the committer: it makes posted events durable in batches, and then sends their answers.
func (s *session) commit(ctx context.Context) {
	var batch, again []*pending
	buf := make([]byte, 0, maxUDP)
	for {
		batch = append(batch[:0], again...)
		again = again[:0]
		if len(batch) == 0 {
			p, ok := <-s.out
			if !ok {
				return
			}
			batch = append(batch, p)
		}
		batch = s.gather(batch)
		if err := s.cfg.Recorder.Sync(ctx, last(batch)); err != nil {
			for _, p := range batch {
				s.unrecorded(p)
			}
			continue
		}
		for _, p := range batch {
			if s.opened(ctx, p, &again) {
				s.send(p, buf)
			}
		}
	}
}

// gather adds the queries that are already in the queue.
func (s *session) gather(batch []*pending) []*pending {
	for len(batch) < maxBatch {
		select {
		case p, ok := <-s.out:
			if !ok {
				return batch
			}
			batch = append(batch, p)
		default:
			return batch
		}
	}
	return batch
}

func last(batch []*pending) uint64 {
	var seq uint64
	for _, p := range batch {
		seq = max(seq, p.seq)
	}
	return seq
}

// opened opens the path for the traffic that the answer allows. If the policy in force no longer allows it, or the path
// cannot be opened, a different answer is needed, which must first become durable: opened appends p to again.
func (s *session) opened(ctx context.Context, p *pending, again *[]*pending) bool {
	if len(p.open) == 0 {
		return true
	}
	g := s.cfg.Live.Current()
	if p.under.Number != g.Number && !s.stillAllowed(g.Policy, p) {
		ev := s.begin(p, g)
		if s.deny(ctx, p, ev, dns.RcodeRefused, dns.ExtendedErrorCodeBlocked, reasonChanged) {
			*again = append(*again, p)
		}
		return false
	}
	var until time.Time
	if p.life > 0 {
		until = time.Now().Add(p.life)
	}
	for _, a := range p.open {
		if err := s.cfg.Names.Open(p.name, a, p.via, until, p.seq); err != nil {
			ev := s.begin(p, g)
			if s.fail(ctx, p, ev, reasonOpen+err.Error()) {
				*again = append(*again, p)
			}
			return false
		}
	}
	return true
}

// stillAllowed reports whether the policy in force comes to the same decision.
func (s *session) stillAllowed(policy *netpolicy.Policy, p *pending) bool {
	if p.via == netpolicy.Gateway {
		return netpolicy.Decide(policy, netpolicy.Question{Name: p.name, Via: p.via}).Allow
	}
	return !slices.ContainsFunc(p.open, func(a netip.Addr) bool { return !s.may(policy, p, a) })
}

// send sends the answer and frees the query.
func (s *session) send(p *pending, buf []byte) {
	defer p.free()
	if p.silent {
		return
	}
	if p.edns && p.reply.info != noInfo {
		p.reply.text = p.why(s.cfg.Run)
	}
	if p.conn != nil {
		p.conn.reply(p)
		return
	}
	if _, err := s.udp.WriteToUDPAddrPort(p.pack(buf, p.reply, p.size), p.from); err != nil {
		s.count.unsent.Add(1)
	}
}

// why returns the text of a denial for the client. It cuts a long rule, so that the run and seq fit.
func (p *pending) why(run string) string {
	const most = 100
	rule := p.rule
	if len(rule) > most {
		rule = rule[:most] + "..."
	}
	return fmt.Sprintf("rule %s, run %s, seq %d", rule, run, p.seq)
}

// finding posts a finding. It becomes durable with the event that is posted next.
func (s *session) finding(ctx context.Context, f audit.Finding) error {
	_, err := s.cfg.Recorder.Post(ctx, audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindFinding, Finding: &f})
	return err
}
