package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

func secret(s *audit.Secret) entry {
	e := entry{result: escape(string(s.Op)), mood: yellow}
	switch s.Op {
	case audit.SecretRefuse, audit.SecretExpire:
		e.mood = red
	case audit.SecretRevoke:
		e.mood = dim
	}
	if s.TTLNS > 0 {
		e.length = duration(s.TTLNS)
	}
	words := nonEmpty(s.Name, s.Broker)
	if s.Via != "" {
		words = append(words, "as "+s.Via)
	}
	if len(s.Accessor) >= 8 {
		words = append(words, "accessor sha256:"+s.Accessor[:8]+"…")
	}
	if s.Host != "" {
		words = append(words, "to "+string(s.Host))
	}
	if s.Flow != "" {
		words = append(words, "in flow "+s.Flow)
	}
	if s.Leases > 0 {
		words = append(words, plural(s.Leases, "lease"))
	}
	e.add(plain, escape(strings.Join(append(words, nonEmpty(s.Reason)...), ", ")))
	return e
}

func finding(f *audit.Finding) entry {
	e := entry{result: "FINDING", mood: alarm}
	text := orUnknown(string(f.Rule)) + ": " + f.Detail
	if f.Seq > 0 {
		text += " (see " + strconv.FormatUint(f.Seq, 10) + ")"
	}
	if f.Action != "" {
		text += "; done: " + f.Action
	}
	e.add(alarm, "!! "+escape(text))
	return e
}

// llm shows a call of a model with its tokens and what it asked for.
func llm(c *audit.LLM) entry {
	e := entry{result: strconv.Itoa(c.Status), length: duration(c.DurationNS), mood: green}
	if c.Status < 200 || c.Status > 299 || c.Incomplete != "" {
		e.mood = red
	}
	e.add(bold, escape(c.ID)+" ")
	e.add(plain, fmt.Sprintf("%s %s, tokens: %d in, %d out", escape(c.Provider), quote(c.Model), c.InputTokens, c.OutputTokens))
	if c.CacheReadTokens > 0 {
		e.add(dim, fmt.Sprintf(", %d from its cache", c.CacheReadTokens))
	}
	if c.Budget > 0 {
		e.add(dim, fmt.Sprintf(" (%d of %d spent)", c.Spent, c.Budget))
	}
	if c.FirstTokenNS > 0 {
		e.add(dim, ", first after "+duration(c.FirstTokenNS))
	}
	for _, words := range nonEmpty(string(c.StopReason), string(c.Error), c.Incomplete) {
		e.add(plain, ", "+escape(words))
	}
	for _, t := range c.ToolCalls {
		e.more = append(e.more, "calls "+quote(t.Name)+" "+escape(string(t.Arguments)))
	}
	return e
}

// Held is a credential that a step had at an instant.
type Held struct {
	Step     string    `json:"step"`
	Name     string    `json:"name"`
	Via      string    `json:"via,omitempty"` // how it was delivered; empty: it was not yet
	Broker   string    `json:"broker,omitempty"`
	Accessor string    `json:"accessor_sha256,omitempty"`
	Since    time.Time `json:"since"`
	Expires  time.Time `json:"expires"` // unless it was renewed afterwards
	Renewals int       `json:"renewals,omitempty"`
	Seq      uint64    `json:"seq"` // of the mint
	// OpenedBy are the first 8 processes that opened a file with it, as the guest's sensor claims; Opened counts all openings.
	OpenedBy []*Actor `json:"opened_by,omitempty"`
	Opened   int      `json:"opened,omitempty"`
}

// maxOpenedBy is how many processes a Held names.
const maxOpenedBy = 8

// heldFold has the credentials that were minted and have not been revoked.
type heldFold map[heldKey]*Held

type heldKey struct{ step, name string }

func (f heldFold) add(seq uint64, at time.Time, step string, s *audit.Secret) {
	switch s.Op {
	case audit.SecretMint:
		f[heldKey{step, s.Name}] = &Held{Step: step, Name: s.Name, Broker: s.Broker, Accessor: s.Accessor, Since: at, Expires: s.Expires, Seq: seq}
	case audit.SecretDeliver:
		f.each(step, s, func(_ heldKey, h *Held) { h.Via = s.Via })
	case audit.SecretRenew:
		f.each(step, s, func(_ heldKey, h *Held) { h.Expires, h.Renewals = s.Expires, h.Renewals+1 })
	case audit.SecretRevoke, audit.SecretExpire:
		f.each(step, s, func(k heldKey, _ *Held) { delete(f, k) })
	}
}

// each calls do for the credentials that a record is about: one by name, or
// all of a step's lease at its broker.
func (f heldFold) each(step string, s *audit.Secret, do func(heldKey, *Held)) {
	about := func(h *Held) bool { return s.Broker == "" || h.Broker == s.Broker }
	if s.Name != "" {
		if h := f[heldKey{step, s.Name}]; h != nil && about(h) {
			do(heldKey{step, s.Name}, h)
		}
		return
	}
	for k, h := range f {
		if k.step == step && about(h) {
			do(k, h)
		}
	}
}

// open adds that a process opened a file for reading.
func (f heldFold) open(r *records, m *moment, file *audit.File) {
	if file.Op != audit.FileRead {
		return
	}
	for _, name := range file.Secrets {
		h := f[heldKey{m.step, name}]
		if h == nil {
			continue
		}
		h.Opened++
		by := r.actor(m, file.Proc, file.PID)
		if by != nil && len(h.OpenedBy) < maxOpenedBy && !slices.ContainsFunc(h.OpenedBy, func(a *Actor) bool { return *a == *by }) {
			h.OpenedBy = append(h.OpenedBy, by)
		}
	}
}

// at returns those that had not run out at t.
func (f heldFold) at(t time.Time) []Held {
	list := []Held{}
	for _, h := range f {
		if h.Expires.IsZero() || h.Expires.After(t) {
			list = append(list, *h)
		}
	}
	slices.SortFunc(list, func(a, b Held) int { return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Name, b.Name)) })
	return list
}

func (v *stateView) secrets() {
	v.section("secrets held", len(v.s.Secrets))
	for _, h := range v.s.Secrets {
		text := h.Name + " by " + h.Step + " since " + relative(h.Since.Sub(v.began))
		if h.Via != "" {
			text += ", as " + h.Via
		}
		if !h.Expires.IsZero() {
			text += ", until " + relative(h.Expires.Sub(v.began)) + " unless renewed"
		}
		if h.Renewals > 0 {
			text += ", " + plural(h.Renewals, "renewal") + " so far"
		}
		if h.Opened > 0 {
			text += ", opened " + plural(h.Opened, "time") + " by " + actors(h.OpenedBy)
		}
		v.l.put(plain, "  "+escape(text))
		v.l.end()
	}
}

// actors lists processes in words; there may be more of them.
func actors(list []*Actor) string {
	var words []string
	for _, a := range list {
		words = append(words, a.String())
	}
	if len(list) == maxOpenedBy {
		words = append(words, "…")
	}
	return cmp.Or(strings.Join(words, ", "), "an unknown process")
}
