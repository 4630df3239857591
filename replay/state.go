package replay

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/store"
)

// State is what a run was at an instant, as far as its records tell.
type State struct {
	Run      string          `json:"run"`
	At       time.Time       `json:"at"`
	Phase    string          `json:"phase"` // not started, running, frozen, ended
	Events   uint64          `json:"events"`
	Steps    []StepState     `json:"steps"`
	Procs    []*Process      `json:"processes"` // running ones without a running parent
	Files    []FileState     `json:"files"`     // written so far and not deleted, by path
	Deleted  []audit.Text    `json:"deleted"`
	Egress   Egress          `json:"egress"`
	Secrets  []Held          `json:"secrets"` // credentials that were alive, by step and name
	Output   []OutputLine    `json:"output"`  // the last lines
	Gaps     []audit.Gap     `json:"gaps"`
	Findings []audit.Finding `json:"findings"`
	// Missing and Unreadable count records that could not be taken into account.
	Missing    uint64 `json:"missing"`
	Unreadable uint64 `json:"unreadable"`
}

// StepState is a step at the instant.
type StepState struct {
	Name     string       `json:"name"`
	Argv     []audit.Text `json:"argv"`
	Start    time.Time    `json:"start"`
	End      *time.Time   `json:"end,omitempty"`
	ExitCode *int         `json:"exit_code,omitempty"`
	Status   audit.Status `json:"status,omitempty"`
}

// Process is a process that was running at the instant.
type Process struct {
	Proc     string       `json:"proc"`
	PID      int          `json:"pid"`
	Argv     []audit.Text `json:"argv"`
	Exe      audit.Text   `json:"exe"`
	Cwd      audit.Text   `json:"cwd"` // at its last exec
	UID      int          `json:"uid"`
	Step     string       `json:"step"`
	Start    time.Time    `json:"start"` // of its first exec
	Children []*Process   `json:"children,omitempty"`
}

// FileState is a file as it was last closed after writing.
type FileState struct {
	Path     audit.Text `json:"path"`
	Size     int64      `json:"size"`
	SHA256   string     `json:"sha256,omitempty"`
	Unhashed string     `json:"unhashed,omitempty"`
	Time     time.Time  `json:"time"`
	PID      int        `json:"pid,omitempty"`
}

// OutputLine is a line that a step wrote.
type OutputLine struct {
	Stream string     `json:"stream"`
	Text   audit.Text `json:"text"`
}

// StateAt folds those of a run's records whose time is t or earlier. rows are all
// records of the run. Of the output it keeps the last lines, as many as asked for.
func StateAt(run store.Run, rows Rows, t time.Time, lines int) (State, error) {
	f := newFold(run, t, lines)
	for row, err := range rows {
		if err != nil {
			return State{}, err
		}
		f.known.learn(row)
		f.add(row)
	}
	return f.state(), nil
}

// fold is a State in the making.
type fold struct {
	s      State
	next   uint64
	holes  []span
	known  index // what the records tell of each other, even after the instant
	frozen bool
	procs  map[string]*Process
	parent map[string]string // of every process, running or not
	pids   map[int]string    // the latest process with that pid
	files  map[audit.Text]FileState
	gone   map[audit.Text]bool
	tail   tail
	net    *netFold
	held   heldFold
}

func newFold(run store.Run, t time.Time, lines int) *fold {
	return &fold{s: State{Run: run.ID, At: t, Phase: "not started"}, next: 1, known: newIndex(),
		procs: map[string]*Process{}, parent: map[string]string{}, pids: map[int]string{},
		files: map[audit.Text]FileState{}, gone: map[audit.Text]bool{}, tail: newTail(lines), net: newNetFold(), held: heldFold{}}
}

func (f *fold) add(row store.Row) {
	before := f.next
	f.next = max(f.next, row.Seq+1)
	if row.Time.After(f.s.At) {
		return
	}
	if row.Seq > before {
		f.holes = append(f.holes, span{before, row.Seq - 1})
	}
	f.s.Events++
	var r audit.Record
	if json.Unmarshal(row.Body, &r) != nil {
		f.s.Unreadable++
		return
	}
	if r.Observer == audit.Host {
		f.net.add(r)
		f.held.add(r)
	}
	switch {
	case r.Kind == audit.KindRun && r.Lifecycle != nil && r.Observer == audit.Host:
		f.s.Phase = map[bool]string{true: "ended", false: "running"}[r.Lifecycle.Phase == audit.PhaseEnd]
	case r.Kind == audit.KindStep && r.Lifecycle != nil && r.Observer == audit.Host:
		f.step(r)
	case r.Kind == audit.KindExec && r.Exec != nil:
		f.exec(r)
	case r.Kind == audit.KindExit && r.Exit != nil:
		delete(f.procs, r.Exit.Proc)
	case r.Kind == audit.KindFile && r.File != nil:
		f.file(r.Time, r.File)
	case r.Kind == audit.KindOutput && r.Output != nil:
		f.tail.add(r.Output)
	case r.Kind == audit.KindVM && r.VM != nil && r.Observer == audit.Host:
		f.frozen = r.VM.Op == "freeze" || f.frozen && r.VM.Op != "thaw"
	case r.Kind == audit.KindGap && r.Gap != nil:
		f.s.Gaps = append(f.s.Gaps, *r.Gap)
	case r.Kind == audit.KindFinding && r.Finding != nil:
		f.s.Findings = append(f.s.Findings, *r.Finding)
	}
}

func (f *fold) step(r audit.Record) {
	name := cmp.Or(r.Lifecycle.Name, r.Step)
	if r.Lifecycle.Phase == audit.PhaseStart {
		f.s.Steps = append(f.s.Steps, StepState{Name: name, Argv: r.Lifecycle.Argv, Start: r.Time})
		return
	}
	for i := range f.s.Steps {
		if s := &f.s.Steps[i]; s.Name == name && s.End == nil {
			s.End, s.ExitCode, s.Status = &r.Time, r.Lifecycle.ExitCode, r.Lifecycle.Status
			return
		}
	}
}

func (f *fold) exec(r audit.Record) {
	e := r.Exec
	uid := e.Proc
	if uid == "" { // cannot be told from others, nor be ended; shown all the same
		uid = fmt.Sprintf("seq %d", r.Seq)
	}
	p := f.procs[uid]
	if p == nil {
		p = &Process{Proc: e.Proc, Start: r.Time}
		f.procs[uid] = p
		f.parent[uid] = cmp.Or(e.Parent, f.pids[e.PPID])
		f.pids[e.PID] = uid
	}
	p.PID, p.Argv, p.Exe, p.Cwd, p.UID, p.Step = e.PID, e.Argv, e.Exe, e.Cwd, e.UID, r.Step
}

func (f *fold) file(t time.Time, file *audit.File) {
	switch file.Op {
	case audit.FileDelete:
		delete(f.files, file.Path)
		f.gone[file.Path] = true
	case audit.FileRename:
		moved, known := f.files[file.Path]
		delete(f.files, file.Path)
		delete(f.gone, file.To)
		if known {
			moved.Path = file.To
			f.files[file.To] = moved
		}
	case audit.FileCreate, audit.FileWrite:
		delete(f.gone, file.Path)
		f.files[file.Path] = FileState{Path: file.Path, Size: file.Size, SHA256: file.SHA256,
			Unhashed: file.Unhashed, Time: t, PID: file.PID}
	}
}

// state finishes the fold.
func (f *fold) state() State {
	s := f.s
	if f.frozen && s.Phase == "running" {
		s.Phase = "frozen"
	}
	s.Procs = f.tree()
	s.Files = slices.SortedFunc(maps.Values(f.files), func(a, b FileState) int { return cmp.Compare(a.Path, b.Path) })
	s.Deleted = slices.Sorted(maps.Keys(f.gone))
	s.Egress = f.net.state(&f.known)
	s.Secrets = f.held.at(s.At)
	s.Output = f.tail.last()
	for _, h := range f.holes {
		for _, hole := range f.known.undeclared(h) {
			s.Missing += hole.len()
		}
	}
	return s
}

// tree links the running processes. One whose parent has ended, or is not
// known, hangs below its nearest running ancestor or stands at the top.
func (f *fold) tree() []*Process {
	var roots []*Process
	ordered := slices.SortedFunc(maps.Keys(f.procs), func(a, b string) int {
		x, y := f.procs[a], f.procs[b]
		return cmp.Or(x.Start.Compare(y.Start), cmp.Compare(x.PID, y.PID), cmp.Compare(a, b))
	})
	placed := map[*Process]*Process{}
	for _, uid := range ordered {
		p := f.procs[uid]
		above := f.ancestor(uid)
		if above == nil || below(placed, above, p) {
			roots = append(roots, p)
			continue
		}
		placed[p] = above
		above.Children = append(above.Children, p)
	}
	return roots
}

// ancestor returns the nearest running process above uid. Parents are the
// guest's claims and may form a circle, hence the bound.
func (f *fold) ancestor(uid string) *Process {
	for up, steps := f.parent[uid], 0; up != "" && up != uid && steps < 1000; up, steps = f.parent[up], steps+1 {
		if p := f.procs[up]; p != nil {
			return p
		}
	}
	return nil
}

// below reports whether p was placed somewhere below top, or is it.
func below(placed map[*Process]*Process, p, top *Process) bool {
	for ; p != nil; p = placed[p] {
		if p == top {
			return true
		}
	}
	return false
}
