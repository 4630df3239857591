package replay

import (
	"slices"
	"time"

	"github.com/custody-project/custody/audit"
)

// Call is a call of a model, with the commands that it asked for.
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

// Calls returns the LLM API calls in order of seq. No one may change the list.
func (s *Story) Calls() []Call {
	defer s.read()()
	return s.derived.calls()
}

func (s *Story) makeCalls() []Call {
	list := []Call{}
	of := map[string]int{} // by the call's id
	for i := range s.moments {
		m := &s.moments[i]
		if c, is := m.what.(*audit.LLM); is && m.host() {
			if _, again := of[c.ID]; !again {
				of[c.ID] = len(list)
			}
			list = append(list, newCall(m, c))
		}
	}
	for i := range list {
		if first := s.openingOf(list[i].LLM.Flow); first != nil {
			list[i].Flow = first.seq
			list[i].By, _ = s.claimant(first, first.what.(*audit.Flow))
		}
	}
	for i := range s.moments {
		if e, is := s.moments[i].what.(*audit.Exec); is && e.LLM != "" {
			if n, known := of[e.LLM]; known {
				list[n].exec(s.moments[i].seq, e.ToolCall)
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

// openingOf returns the first record of a flow, nil if there is none.
func (s *Story) openingOf(flow string) *moment {
	if n, known := s.flows.of[flow]; known && flow != "" {
		return &s.moments[s.opened[n]]
	}
	return nil
}
