package replay

import (
	"cmp"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// index is what is known of a run beyond a single record.
type index struct {
	procs     map[string]*known // by uid
	gaps      spans             // seqs that gap records of the host declare as lost
	stepWidth int
	end       *audit.Lifecycle // of the run
	joins     joins
	byHost    bool // the host observed the processes; otherwise what is known of them is the guest's claim
}

// known is a process.
type known struct {
	parent   string
	pid      int
	name     string // argv[0], not escaped
	depth    int
	lastExec uint64 // seq of its latest exec, 0 if none was seen
	exit     *audit.Exit
	exitSeq  uint64
	open     bool // its exec was shown before its exit was known
	hidden   bool // its latest exec is not in the time that is shown
}

func newIndex() index { return index{procs: map[string]*known{}, joins: newJoins()} }

// widen makes room for a step's name.
func (x *index) widen(step string) {
	x.stepWidth = max(x.stepWidth, min(textWidth(escape(step)), maxStep))
}

func (x *index) learnRecord(r *audit.Record) {
	switch {
	case r.Kind == audit.KindExec && r.Exec != nil:
		x.byHost = x.byHost || r.Observer == audit.Host
		x.exec(r.Seq, r.Exec)
	case r.Kind == audit.KindExit && r.Exit != nil && r.Exit.Proc != "":
		k := x.proc(r.Exit.Proc)
		k.exit, k.exitSeq = r.Exit, r.Seq
	case r.Kind == audit.KindFlow && r.Flow != nil:
		x.flow(r)
	case r.Kind == audit.KindGap && r.Observer == audit.Host && r.Gap != nil && r.Gap.First > 0 && r.Gap.Last >= r.Gap.First:
		x.declare(span{r.Gap.First, r.Gap.Last})
	case r.Kind == audit.KindRun && r.Observer == audit.Host && r.Lifecycle != nil && r.Lifecycle.Phase == audit.PhaseEnd:
		x.end = r.Lifecycle
	}
}

func (x *index) exec(seq uint64, e *audit.Exec) {
	k := x.proc(e.Proc)
	k.lastExec, k.pid = seq, e.PID
	k.name = string(e.Exe)
	if len(e.Argv) > 0 {
		k.name = string(e.Argv[0])
	}
	if k.parent != "" || e.Parent == e.Proc {
		return // it was placed by an earlier exec, or claims to be its own parent
	}
	k.parent = e.Parent
	if parent := x.procs[e.Parent]; parent != nil {
		k.depth = parent.depth + 1
	}
}

func (x *index) flow(r *audit.Record) {
	switch {
	case r.Flow.State == audit.FlowAttempt:
		x.joins.claim(r.Flow, r.Seq, r.Time, x.culprit(r.Flow), r.Observer == audit.Host)
	case r.Observer == audit.Host:
		x.joins.flow(r.Flow, r.Time)
	}
}

// culprit names the process of a flow that an event itself names.
func (x *index) culprit(f *audit.Flow) culprit {
	c := culprit{pid: f.PID}
	if k := x.procs[f.Proc]; k != nil && k.lastExec > 0 {
		c.name, c.pid = k.name, cmp.Or(f.PID, k.pid)
	} else if k := x.procs[f.Parent]; k != nil && k.lastExec > 0 {
		c.name, c.child = k.name, true
	}
	return c
}

// by names the process of a flow that the host observed, "" if none is known.
func (x *index) by(f *audit.Flow, at time.Time) string {
	a, found := x.joins.of(f, at)
	switch {
	case found && (f.Proc == "" || f.Proc == a.proc):
		return a.by.String()
	case f.Proc == "":
		return ""
	}
	return x.culprit(f).String()
}

func (x *index) proc(uid string) *known {
	k := x.procs[uid]
	if k == nil {
		k = &known{}
		x.procs[uid] = k
	}
	return k
}

// pidOf returns the number of a process whose exec was seen, else 0.
func (x *index) pidOf(proc string) int {
	if k := x.procs[proc]; k != nil {
		return k.pid
	}
	return 0
}

// exitOf returns the exit that belongs to the exec at seq, nil if its process
// went on with another program or has not ended.
func (x *index) exitOf(seq uint64, proc string) *audit.Exit {
	k := x.procs[proc]
	if proc == "" || k == nil || k.lastExec != seq || k.exitSeq < seq {
		return nil
	}
	return k.exit
}

// shownWithExec reports whether the exit at seq is part of its exec's line.
func (x *index) shownWithExec(seq uint64, proc string) bool {
	k := x.procs[proc]
	return k != nil && proc != "" && !k.open && !k.hidden && k.exitSeq == seq && k.lastExec > 0 && k.lastExec < seq
}

// declare notes that the host has recorded the loss of these seqs.
func (x *index) declare(g span) { x.gaps.add(g) }

// undeclared returns what of hole no gap covers.
func (x *index) undeclared(hole span) []span { return x.gaps.beyond(hole) }

func (x *index) statusOf(run store.Run) string {
	switch {
	case x.end != nil && x.end.Status != "":
		return escape(string(x.end.Status))
	case x.end != nil:
		return "ended"
	}
	return escape(string(run.Status))
}
