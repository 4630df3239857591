package replay

import (
	"time"

	"github.com/custody-project/custody/audit"
)

// Actor is a process as the guest's sensor claims it.
type Actor struct {
	Proc string     `json:"proc"`
	PID  int        `json:"pid,omitempty"`
	Name audit.Text `json:"name,omitempty"` // base name of argv[0] of its latest exec, or of its parent's with Child
	// Child is set when the process never called execve.
	Child bool   `json:"child,omitempty"`
	Seq   uint64 `json:"seq,omitempty"` // of that exec
}

// String returns the escaped form, such as "curl[102]".
func (a *Actor) String() string {
	return culprit{pid: a.PID, name: string(a.Name), child: a.Child && a.Name != ""}.String()
}

// Proc is a process of the whole run, one for each exec: the same proc id can come several times.
type Proc struct {
	Seq      uint64         `json:"seq"`                // of the exec
	ExitSeq  uint64         `json:"exit_seq,omitempty"` // 0 while it runs, or when another exec followed
	Proc     string         `json:"proc"`
	Parent   string         `json:"parent,omitempty"`     // proc id, as far as it is known
	Above    uint64         `json:"parent_seq,omitempty"` // seq of the exec that this one hangs below in the tree; 0 at the top
	PID      int            `json:"pid"`
	PPID     int            `json:"ppid"`
	Argv     []audit.Text   `json:"argv"`
	Exe      audit.Text     `json:"exe"`
	Cwd      audit.Text     `json:"cwd"`
	UID      int            `json:"uid"`
	Step     string         `json:"step"`
	Observer audit.Observer `json:"observer"`
	Start    time.Time      `json:"start"`
	End      *time.Time     `json:"end"` // nil while it runs
	Code     *int           `json:"code"`
	Signal   int            `json:"signal,omitempty"`
	// Synthetic is set when no exit was seen and the run's end stands in for it.
	Synthetic bool       `json:"synthetic,omitempty"`
	Replaced  bool       `json:"replaced,omitempty"` // ended by another exec of the same process
	LLM       string     `json:"llm,omitempty"`      // id of the model's call that asked for it
	ToolCall  audit.Text `json:"tool_call,omitempty"`
	Files     int        `json:"files"` // file records that name it
	Flows     int        `json:"flows"` // attempts that name it
}

// Processes are the processes of a run, as the guest's sensor claims.
type Processes struct{ story *Story }

// Processes returns the index of the run's processes.
func (s *Story) Processes() Processes { return Processes{s} }

// All returns the run's processes in order of seq. Callers must not change the list.
func (x Processes) All() []Proc {
	defer x.story.read()()
	return x.story.derived.procs()
}

func makeProcs(r *records) []Proc {
	list := make([]Proc, 0, len(r.procs.seen))
	at := map[int32]int{}                    // place of an exec -> index in list
	open := make([]int32, len(r.procs.seen)) // by number of process: 1 + index of its running exec
	for i := range r.moments {
		m := &r.moments[i]
		switch p := m.what.(type) {
		case *audit.Exec:
			if o := open[m.x]; o > 0 {
				end := m.time()
				list[o-1].End, list[o-1].Replaced = &end, true
			}
			at[int32(i)] = len(list)
			list = append(list, newProc(r, m, p))
			open[m.x] = int32(len(list))
		case *audit.Exit:
			if m.x >= 0 && open[m.x] > 0 {
				list[open[m.x]-1].exit(m, p)
				open[m.x] = 0
			}
		case *audit.File:
			if n, known := at[m.by]; known && !m.child {
				list[n].Files++
			}
		case *audit.Flow:
			if n, known := at[m.by]; known && !m.child && !m.enforced() {
				list[n].Flows++
			}
		}
	}
	if end, over := r.ended(); over {
		for _, o := range open {
			if o > 0 {
				t := instantOf(max(end, nanos(list[o-1].Start)))
				list[o-1].End, list[o-1].Synthetic = &t, true
			}
		}
	}
	return list
}

func newProc(r *records, m *moment, e *audit.Exec) Proc {
	p := Proc{Seq: m.seq, Proc: e.Proc, PID: e.PID, PPID: e.PPID, Argv: e.Argv, Exe: e.Exe, Cwd: e.Cwd, UID: e.UID,
		Step: m.step, Observer: m.observer, Start: m.time()}
	if p.Argv == nil {
		p.Argv = []audit.Text{}
	}
	if m.observer == audit.Host || e.LLM != "" {
		p.LLM, p.ToolCall = e.LLM, e.ToolCall
	}
	if up := r.procs.seen[m.x].parent; up >= 0 {
		p.Parent = r.procs.numbers.names[up]
	}
	if m.by >= 0 {
		p.Above = r.moments[m.by].seq
	}
	return p
}

func (p *Proc) exit(m *moment, x *audit.Exit) {
	end, code := m.time(), x.Code
	p.End, p.ExitSeq, p.Signal, p.Synthetic = &end, m.seq, x.Signal, x.Synthetic
	if !x.Synthetic {
		p.Code = &code
	}
}

// programOf is how a program is called for short.
func programOf(e *audit.Exec) audit.Text {
	name := e.Exe
	if len(e.Argv) > 0 {
		name = e.Argv[0]
	}
	return audit.Text(base(name))
}
