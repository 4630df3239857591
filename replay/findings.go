package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/custody-project/custody/audit"
)

// Finding is a recorded finding, or a disagreement between guest and host that the model found.
type Finding struct {
	Seq      uint64     `json:"seq"` // 0: it stands in no record, the model derived it
	Time     time.Time  `json:"time"`
	Step     string     `json:"step,omitempty"`
	Rule     audit.Rule `json:"rule"`
	Detail   string     `json:"detail"`
	Evidence []uint64   `json:"evidence"` // seqs of the records that show it
	Secret   string     `json:"secret,omitempty"`
	Proc     string     `json:"proc,omitempty"`
	Action   string     `json:"action,omitempty"`
	Derived  bool       `json:"derived"`
}

// Findings are the findings of a run.
type Findings struct{ story *Story }

// Findings returns the index of the run's findings.
func (s *Story) Findings() Findings { return Findings{s} }

// All returns the recorded findings, and the derived ones that no recorded
// one repeats, by time. Callers must not change the list.
func (x Findings) All() []Finding {
	defer x.story.read()()
	return x.story.derived.findings()
}

// About returns the findings that stand in the record at seq, or have it as evidence, by time.
func (x Findings) About(seq uint64) []Finding {
	return x.where(func(f *Finding) bool { return f.Seq == seq || slices.Contains(f.Evidence, seq) })
}

// Derived returns the findings that stand in no record, by time.
func (x Findings) Derived() []Finding {
	return x.where(func(f *Finding) bool { return f.Derived })
}

func (x Findings) where(is func(*Finding) bool) []Finding {
	list := []Finding{}
	for _, f := range x.All() {
		list = take(list, f, is(&f))
	}
	return list
}

func makeFindings(r *records, disputes []disagreement) []Finding {
	list := []Finding{}
	recorded := map[evidence][]int{} // places in list
	for i := range r.moments {
		m := &r.moments[i]
		if f, is := m.what.(*audit.Finding); is && m.host() {
			recorded[evidence{f.Rule, f.Seq}] = append(recorded[evidence{f.Rule, f.Seq}], len(list))
			list = append(list, recordedFinding(m, f))
		}
	}
	for _, f := range group(disputes) {
		places := recorded[evidence{f.Rule, f.Evidence[0]}]
		if len(places) == 0 {
			list = append(list, f)
		}
		for _, i := range places { // its record names the first only
			list[i].Evidence = f.Evidence
		}
	}
	slices.SortStableFunc(list, func(a, b Finding) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Seq, b.Seq)) })
	return list
}

// evidence is what makes two findings one.
type evidence struct {
	rule audit.Rule
	seq  uint64
}

func recordedFinding(m *moment, f *audit.Finding) Finding {
	found := Finding{Seq: m.seq, Time: m.time(), Step: m.step, Rule: f.Rule, Detail: f.Detail, Evidence: []uint64{}, Secret: f.Secret, Proc: f.Proc, Action: f.Action}
	if f.Seq != 0 {
		found.Evidence = append(found.Evidence, f.Seq)
	}
	return found
}

// line is the finding as text, escaped.
func (f *Finding) line() string {
	text := orUnknown(string(f.Rule)) + ": " + f.Detail
	if f.Derived {
		text = "guest and host disagree: " + text
	}
	for i, seq := range f.Evidence {
		if i == maxListed {
			text += fmt.Sprintf(" and %d more", len(f.Evidence)-i)
			break
		}
		text += map[bool]string{true: " (see ", false: ", "}[i == 0] + strconv.FormatUint(seq, 10)
	}
	if len(f.Evidence) > 0 {
		text += ")"
	}
	if f.Action != "" {
		text += "; done: " + f.Action
	}
	return escape(text)
}
