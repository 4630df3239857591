package replay

import (
	"time"

	"github.com/custody-project/custody/audit"
)

// Credential is the life of one credential in one step.
type Credential struct {
	Step     string     `json:"step"`
	Name     string     `json:"name"` // empty: the step's own token at the broker
	Broker   string     `json:"broker,omitempty"`
	Via      string     `json:"via,omitempty"`
	Tag      string     `json:"tag,omitempty"`
	Accessor string     `json:"accessor_sha256,omitempty"`
	Seq      uint64     `json:"seq"` // of its first record
	Start    time.Time  `json:"start"`
	Expires  time.Time  `json:"expires,omitzero"` // as far as renewals went
	End      *time.Time `json:"end"`              // nil while it is alive
	EndSeq   uint64     `json:"end_seq,omitempty"`
	EndedBy  string     `json:"ended_by,omitempty"` // revoke, expire or the run's end
	// Bars are the lengths of time that the broker promised: one of 60 s at mint, one more at each renewal.
	Bars []Bar    `json:"bars"`
	Uses []Use    `json:"uses"`
	Seqs []uint64 `json:"seqs"` // of all its records on the host
	Openings
}

// Bar is one promise of a broker's.
type Bar struct {
	Seq  uint64    `json:"seq"`
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Use is a request into which the gateway put a credential.
type Use struct {
	Seq  uint64     `json:"seq"`
	Time time.Time  `json:"time"`
	Host audit.Text `json:"host,omitempty"`
	Flow string     `json:"flow,omitempty"`
}

// Credentials are the credentials that the steps of a run held.
type Credentials struct{ story *Story }

// Credentials returns the index of the run's credentials.
func (s *Story) Credentials() Credentials { return Credentials{s} }

// All returns the lives of credentials in the order of their beginning. Callers must not change the list.
func (x Credentials) All() []Credential {
	defer x.story.read()()
	return x.story.derived.credentials()
}

// purse is a list of credentials in the making.
type purse struct {
	list  []Credential
	alive map[string][]int // by step: indexes in list
	used  map[heldKey]int  // the latest with that step and name: 1 + index
}

func makeCredentials(r *records) []Credential {
	p := purse{list: []Credential{}, alive: map[string][]int{}, used: map[heldKey]int{}}
	for i := range r.moments {
		m := &r.moments[i]
		switch what := m.what.(type) {
		case *audit.Secret:
			if m.host() {
				p.add(m, what)
			}
		case *audit.File:
			p.open(r, m, what)
		}
	}
	if end, over := r.ended(); over {
		for _, alive := range p.alive {
			for _, i := range alive {
				p.list[i].end(instantOf(max(end, nanos(p.list[i].Start))), 0, "the run's end")
			}
		}
	}
	return p.list
}

func (p *purse) add(m *moment, s *audit.Secret) {
	key := heldKey{m.step, s.Name}
	switch s.Op {
	case audit.SecretMint:
		p.alive[m.step] = append(p.alive[m.step], len(p.list))
		p.list = append(p.list, Credential{Step: m.step, Name: s.Name, Broker: s.Broker, Via: s.Via, Tag: s.Tag, Accessor: s.Accessor, Seq: m.seq,
			Start: m.time(), Bars: []Bar{}, Uses: []Use{}, Seqs: []uint64{}, Openings: Openings{Readers: []Reader{}}})
		p.used[key] = len(p.list)
		p.list[len(p.list)-1].promise(m, s)
	case audit.SecretUse:
		if n := p.used[key]; n > 0 {
			c := &p.list[n-1]
			c.Uses, c.Seqs = append(c.Uses, Use{Seq: m.seq, Time: m.time(), Host: s.Host, Flow: s.Flow}), append(c.Seqs, m.seq)
		}
	case audit.SecretDeliver:
		p.each(m, s, func(c *Credential) bool { c.Via, c.Seqs = s.Via, append(c.Seqs, m.seq); return true })
	case audit.SecretRenew:
		p.each(m, s, func(c *Credential) bool { c.promise(m, s); return true })
	case audit.SecretRevoke, audit.SecretExpire:
		p.each(m, s, func(c *Credential) bool {
			c.end(m.time(), m.seq, string(s.Op))
			c.Seqs = append(c.Seqs, m.seq)
			return false
		})
	}
}

// each calls do for the living credentials that a record is about; false ends their life.
func (p *purse) each(m *moment, s *audit.Secret, do func(*Credential) bool) {
	kept := p.alive[m.step][:0]
	for _, i := range p.alive[m.step] {
		c := &p.list[i]
		about := (s.Name == "" || c.Name == s.Name) && (s.Broker == "" || c.Broker == s.Broker)
		if !about || do(c) {
			kept = append(kept, i)
		}
	}
	p.alive[m.step] = kept
}

func (c *Credential) promise(m *moment, s *audit.Secret) {
	c.Seqs = append(c.Seqs, m.seq)
	to := s.Expires.UTC()
	if to.IsZero() && s.TTLNS > 0 {
		to = m.time().Add(time.Duration(s.TTLNS))
	}
	if to.IsZero() || to.Before(m.time()) {
		return
	}
	c.Expires = to
	c.Bars = append(c.Bars, Bar{Seq: m.seq, From: m.time(), To: to})
}

func (c *Credential) end(at time.Time, seq uint64, by string) {
	c.End, c.EndSeq, c.EndedBy = &at, seq, by
}
