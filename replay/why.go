package replay

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Why is what one record rests on, and what followed from it.
type Why struct {
	Seq     uint64        `json:"seq"`
	Verdict audit.Verdict `json:"verdict,omitempty"`
	Rule    string        `json:"rule,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	// Text says it in a sentence, without any text of the guest's but what quotes hold.
	Text    string  `json:"text"`
	Policy  *Policy `json:"policy,omitempty"` // that was in force
	Causes  []Link  `json:"causes"`           // nearest first: LLM call, exec, DNS, flow, secret, ...
	Effects []Link  `json:"effects"`
}

// Policy is a generation of the policy.
type Policy struct {
	Generation uint32 `json:"generation"`
	Digest     string `json:"digest"`
	Seq        uint64 `json:"seq"` // of the policy event
}

// Link is a record that stands in a relation to another.
type Link struct {
	Seq      uint64         `json:"seq"`
	Time     time.Time      `json:"time"`
	Kind     audit.Kind     `json:"kind"`
	Observer audit.Observer `json:"observer"`
	Relation string         `json:"relation"` // "asked for by", "run by", "child of", "rests on the answer", "carried by", "wrote", ...
	Label    audit.Text     `json:"label"`
	Claimed  bool           `json:"claimed,omitempty"` // the relation rests on what the guest says
}

// maxLinks is how many effects a Why names; the walk up to the causes has a bound of its own.
const (
	maxLinks  = 200
	maxCauses = 64
)

// Why returns what the record at seq rests on. The error is store.ErrNoRecord.
func (s *Story) Why(seq uint64) (Why, error) {
	defer s.read()()
	m := s.records.at(seq)
	if m == nil {
		return Why{}, fmt.Errorf("%w: %d", store.ErrNoRecord, seq)
	}
	w := explanation{r: s.records, d: s.derived, Why: Why{Seq: seq, Causes: []Link{}, Effects: []Link{}}, linked: map[uint64]bool{seq: true}}
	w.record(m)
	return w.Why, nil
}

// explanation is a Why in the making.
type explanation struct {
	Why
	r      *records
	d      *derived
	linked map[uint64]bool // records that are in it already
}

func (w *explanation) cause(m *moment, relation string, claimed bool) bool {
	if m == nil || w.linked[m.seq] || len(w.Causes) >= maxCauses {
		return false
	}
	w.linked[m.seq] = true
	w.Causes = append(w.Causes, linkTo(m, relation, claimed))
	return true
}

func (w *explanation) effect(m *moment, relation string, claimed bool) {
	if m == nil || w.linked[m.seq] || len(w.Effects) >= maxLinks {
		return
	}
	w.linked[m.seq] = true
	w.Effects = append(w.Effects, linkTo(m, relation, claimed))
}

func linkTo(m *moment, relation string, claimed bool) Link {
	return Link{Seq: m.seq, Time: m.time(), Kind: m.kind, Observer: m.observer, Relation: relation, Label: m.label(), Claimed: claimed}
}

func (w *explanation) record(m *moment) {
	w.Text = sentence(m)
	switch p := m.what.(type) {
	case *audit.Exec:
		w.exec(m, p)
	case *audit.Exit:
		w.process(m, "end of")
	case *audit.File:
		w.process(m, fileRelation(p.Op))
		w.file(m, p)
	case *audit.Flow:
		w.flow(m, p)
	case *audit.DNS:
		w.dns(m, p)
	case *audit.HTTP:
		w.http(m, p)
	case *audit.LLM:
		w.llm(m, p)
	case *audit.Secret:
		w.secret(m, p)
	case *audit.Finding:
		if e := w.r.at(p.Seq); e != nil && w.cause(e, "shown by", !e.host()) {
			w.behind(e)
		}
	case *audit.Policy:
		w.policy(m, p)
	case *audit.Output:
		w.step(m)
	}
	w.found(m.seq)
}

// behind adds the processes behind a record, whatever it is.
func (w *explanation) behind(m *moment) {
	switch p := m.what.(type) {
	case *audit.Flow:
		w.asker(m, p)
	case *audit.File, *audit.Exit:
		w.process(m, "run by")
	case *audit.Exec:
		w.ancestors(m, p)
	}
}

func (w *explanation) verdict(v audit.Verdict, rule, reason string, generation uint32) {
	w.Verdict, w.Rule, w.Reason = v, rule, reason
	if p := w.r.policy(generation); p != nil {
		policy := p.what.(*audit.Policy)
		w.Policy = &Policy{Generation: policy.Generation, Digest: policy.Digest, Seq: p.seq}
		w.cause(p, "decided under", false)
	}
}

// process adds the process that a record names, and those above it.
func (w *explanation) process(m *moment, relation string) {
	if m.by < 0 {
		return
	}
	by := &w.r.moments[m.by]
	if m.child {
		relation += " a child of"
	}
	if e, is := by.what.(*audit.Exec); is && w.cause(by, relation, !m.host()) {
		w.ancestors(by, e)
	}
}

// ancestors adds the model's call that asked for a command, else the processes above it.
func (w *explanation) ancestors(m *moment, e *audit.Exec) {
	for range maxAbove {
		if call := w.r.call(e.LLM); call != nil {
			w.cause(call, "asked for by", false)
			if first := w.r.opening(call.what.(*audit.LLM).Flow); first != nil {
				w.cause(first, "carried by", false)
			}
			break
		}
		if m.by < 0 {
			break
		}
		m = &w.r.moments[m.by]
		up, is := m.what.(*audit.Exec)
		if !is || !w.cause(m, "child of", !m.host()) {
			return
		}
		e = up
	}
	w.step(m)
}

// step adds the begin of the step that a record belongs to.
func (w *explanation) step(m *moment) {
	if at, known := w.r.steps[m.step]; known {
		w.cause(&w.r.moments[at], "in step", false)
	}
}

func (w *explanation) exec(m *moment, e *audit.Exec) {
	w.ancestors(m, e)
	n, known := w.r.places[m.seq]
	if !known {
		return
	}
	for i := int(n) + 1; i < len(w.r.moments) && len(w.Effects) < maxLinks; i++ {
		e := &w.r.moments[i]
		if e.by != n {
			continue
		}
		switch p := e.what.(type) {
		case *audit.Exec:
			w.effect(e, "ran", !e.host())
		case *audit.Exit:
			w.effect(e, "ended", !e.host())
		case *audit.File:
			w.effect(e, string(p.Op), !e.host())
		case *audit.Flow:
			if !e.enforced() {
				w.effect(e, "tried to reach", !e.host())
			}
		}
	}
	for i := range w.d.connections() {
		c := &w.d.connections()[i]
		if c.By != nil && c.By.Seq == m.seq && !c.By.Child && c.Observer == audit.Host {
			w.effect(w.r.at(c.Seq), "made the flow", !w.r.known.byHost)
		}
	}
	slices.SortStableFunc(w.Effects, func(a, b Link) int { return cmp.Compare(a.Seq, b.Seq) })
}

func fileRelation(op audit.FileOp) string {
	switch op {
	case audit.FileCreate:
		return "created by"
	case audit.FileWrite:
		return "written by"
	case audit.FileRead:
		return "read by"
	case audit.FileRename:
		return "renamed by"
	case audit.FileDelete:
		return "deleted by"
	case audit.FileChroot:
		return "made its root directory by"
	case audit.FileStat:
		return "described to"
	case audit.FileList:
		return "listed for"
	case audit.FilePack:
		return "packed for"
	case audit.FileWatch:
		return "watched for"
	case audit.FileUnpack:
		return "filled from an archive by"
	}
	return "done by"
}

// file adds what else happened to the path.
func (w *explanation) file(m *moment, f *audit.File) {
	for i := range w.r.moments {
		o := &w.r.moments[i]
		other, is := o.what.(*audit.File)
		if !is || o.seq == m.seq || other.Path != f.Path && (other.To == "" || other.To != f.Path) && (f.To == "" || other.Path != f.To) {
			continue
		}
		if o.seq < m.seq {
			if len(w.Causes) < maxCauses/2 {
				w.cause(o, "before that, "+string(other.Op), !o.host())
			}
		} else {
			w.effect(o, "after that, "+string(other.Op), !o.host())
		}
	}
}

func (w *explanation) flow(m *moment, f *audit.Flow) {
	if m.enforced() {
		w.verdict(f.Verdict, f.Rule, f.Reason, f.Generation)
		w.cause(w.answer(f.DNSSeq), "rests on the answer", false)
		if first := w.r.opening(f.ID); first != nil {
			w.cause(first, "opened by", false)
		}
	}
	w.asker(m, f)
	w.carried(m, f.ID)
	if !m.enforced() {
		w.sighting(m, f)
	}
}

// asker adds the process behind a flow, by its claim.
func (w *explanation) asker(m *moment, f *audit.Flow) {
	if !m.enforced() {
		w.process(m, "run by")
		return
	}
	if _, seq := w.r.claimant(m, f); seq != 0 {
		claim := w.r.at(seq)
		relation := "claimed by"
		if claim.host() {
			relation = "made by"
		}
		w.cause(claim, relation, !claim.host())
		w.process(claim, "run by")
		return
	}
	w.process(m, "run by")
}

// sighting adds what the host saw of an attempt.
func (w *explanation) sighting(m *moment, f *audit.Flow) {
	key, ok := tupleOf(f)
	if !ok && !m.host() {
		return
	}
	for i := range w.r.moments {
		o := &w.r.moments[i]
		seen, is := o.what.(*audit.Flow)
		if !is || !o.enforced() {
			continue
		}
		k, known := tupleOf(seen)
		if !ok { // the host observes attempts without their source ports
			k.srcPort = 0
		}
		if known && k == key && beganAt(seen, o.time()).Sub(m.time()).Abs() <= unsettled {
			w.effect(o, "seen by the host as", !m.host())
			w.carried(o, seen.ID)
		}
	}
}

// carried adds what went over a flow.
func (w *explanation) carried(m *moment, id string) {
	if id == "" {
		return
	}
	for i := range w.r.moments {
		o := &w.r.moments[i]
		if !o.host() || o.seq == m.seq {
			continue
		}
		switch p := o.what.(type) {
		case *audit.Flow:
			if p.ID == id {
				w.effect(o, string(p.State), false)
			}
		case *audit.HTTP:
			if p.Flow == id {
				w.effect(o, "carried", false)
			}
		case *audit.LLM:
			if p.Flow == id {
				w.effect(o, "carried", false)
			}
		case *audit.Secret:
			if p.Flow == id {
				w.effect(o, "carried the credential", false)
			}
		}
	}
}

// answer returns the host's record of an answer.
func (w *explanation) answer(seq uint64) *moment {
	if m := w.r.at(seq); m != nil && m.kind == audit.KindDNS && m.host() {
		return m
	}
	return nil
}

func (w *explanation) dns(m *moment, d *audit.DNS) {
	w.verdict(d.Verdict, d.Rule, d.Reason, d.Generation)
	for i := range w.r.moments {
		o := &w.r.moments[i]
		f, is := o.what.(*audit.Flow)
		if !is || !o.host() || f.DNSSeq != m.seq {
			continue
		}
		w.effect(o, "let flow", false)
		if len(w.Effects) == 1 {
			w.asker(o, f)
		}
	}
	w.step(m)
}

func (w *explanation) http(m *moment, h *audit.HTTP) {
	w.verdict(h.Verdict, h.Rule, h.Reason, h.Generation)
	w.overFlow(h.Flow)
	for i := range w.r.moments {
		o := &w.r.moments[i]
		switch p := o.what.(type) {
		case *audit.LLM:
			if h.LLM != "" && p.ID == h.LLM && o.host() {
				w.effect(o, "is the call", false)
			}
		case *audit.Secret:
			if h.Credential != "" && p.Op == audit.SecretUse && p.Flow == h.Flow && p.Name == h.Credential && o.host() && o.seq < m.seq {
				w.cause(o, "with the credential", false)
			}
		}
	}
}

// overFlow adds the flow that something went over, and what that rests on.
func (w *explanation) overFlow(id string) {
	first := w.r.opening(id)
	if first == nil || !w.cause(first, "carried by", false) {
		return
	}
	f := first.what.(*audit.Flow)
	w.cause(w.answer(f.DNSSeq), "rests on the answer", false)
	w.asker(first, f)
}

func (w *explanation) llm(m *moment, c *audit.LLM) {
	w.overFlow(c.Flow)
	for i := range w.r.moments {
		o := &w.r.moments[i]
		if e, is := o.what.(*audit.Exec); is && e.LLM != "" && e.LLM == c.ID {
			w.effect(o, "asked for", false)
		}
	}
}

// secret adds all records of the same credential's life.
func (w *explanation) secret(m *moment, p *audit.Secret) {
	w.Reason = p.Reason
	if p.Op == audit.SecretUse {
		w.overFlow(p.Flow)
	}
	for _, c := range w.d.credentials() {
		if c.Step != m.step || p.Name != "" && c.Name != p.Name || !slices.Contains(c.Seqs, m.seq) {
			continue
		}
		for _, seq := range c.Seqs {
			o := w.r.at(seq)
			if seq < m.seq {
				w.cause(o, "after its "+string(o.what.(*audit.Secret).Op), false)
			} else {
				w.effect(o, "then its "+string(o.what.(*audit.Secret).Op), false)
			}
		}
	}
	w.step(m)
}

func (w *explanation) policy(m *moment, p *audit.Policy) {
	w.Policy = &Policy{Generation: p.Generation, Digest: p.Digest, Seq: m.seq}
	if before := w.r.policy(p.Generation - 1); p.Generation > 1 {
		w.cause(before, "instead of", false)
	}
	for i := range w.r.moments {
		o := &w.r.moments[i]
		if f, is := o.what.(*audit.Flow); is && o.host() && f.State == audit.FlowRevoke && f.Generation == p.Generation {
			w.effect(o, "ended the flow", false)
		}
	}
}

// found adds the findings that a record is evidence of.
func (w *explanation) found(seq uint64) {
	for _, f := range w.d.findings() {
		if f.Seq != 0 && f.Seq != seq && slices.Contains(f.Evidence, seq) {
			w.effect(w.r.at(f.Seq), "shows the finding", false)
		}
	}
}
