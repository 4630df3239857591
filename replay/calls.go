package replay

import (
	"slices"
	"time"

	"github.com/custody-project/custody/audit"
)

// Call is an LLM API call, with the commands that the model requested.
type Call struct {
	Seq   uint64     `json:"seq"`
	Start time.Time  `json:"start"`
	End   time.Time  `json:"end"`
	Step  string     `json:"step,omitempty"`
	LLM   audit.LLM  `json:"llm"`
	Execs []uint64   `json:"execs"`
	By    *Actor     `json:"by,omitempty"`
	Flow  uint64     `json:"flow_seq,omitempty"`
	Tools []ToolUsed `json:"tools"`
}

// ToolUsed is a tool's call and the commands that it caused.
type ToolUsed struct {
	Name  audit.Text `json:"name"`
	Execs []uint64   `json:"execs"`
}

// Calls are the LLM API calls of a run, as the gateway saw them.
type Calls struct{ story *Story }

// Calls returns the index of the run's LLM API calls.
func (s *Story) Calls() Calls { return Calls{s} }

// All returns the LLM API calls in order of seq. Callers must not change the list.
func (x Calls) All() []Call {
	defer x.story.read()()
	return x.story.derived.calls()
}

func makeCalls(r *records) []Call {
	list := []Call{}
	of := map[string]int{} // by the call's id
	for i := range r.moments {
		m := &r.moments[i]
		if c, is := m.what.(*audit.LLM); is && m.host() {
			if _, again := of[c.ID]; !again {
				of[c.ID] = len(list)
			}
			list = append(list, newCall(m, c))
		}
	}
	for i := range list {
		if first := r.opening(list[i].LLM.Flow); first != nil {
			list[i].Flow = first.seq
			list[i].By, _ = r.claimant(first, first.what.(*audit.Flow))
		}
	}
	for i := range r.moments {
		if e, is := r.moments[i].what.(*audit.Exec); is && e.LLM != "" {
			if n, known := of[e.LLM]; known {
				list[n].exec(r.moments[i].seq, e.ToolCall)
			}
		}
	}
	return list
}

func newCall(m *moment, l *audit.LLM) Call {
	c := Call{Seq: m.seq, Start: m.time().Add(-max(0, time.Duration(l.DurationNS))), End: m.time(), Step: m.step, LLM: *l,
		Execs: []uint64{}, Tools: make([]ToolUsed, len(l.ToolCalls))}
	for i, t := range l.ToolCalls {
		c.Tools[i] = ToolUsed{Name: t.Name, Execs: []uint64{}}
	}
	return c
}

func (c *Call) exec(seq uint64, tool audit.Text) {
	c.Execs = append(c.Execs, seq)
	i := slices.IndexFunc(c.LLM.ToolCalls, func(t audit.ToolCall) bool { return t.ID == tool })
	if i >= 0 {
		c.Tools[i].Execs = append(c.Tools[i].Execs, seq)
	}
}
