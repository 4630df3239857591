package replay

import (
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// State is what a run was at an instant, as far as its records tell.
type State struct {
	Run      string       `json:"run"`
	At       time.Time    `json:"at"`
	Phase    string       `json:"phase"` // not started, running, frozen, ended
	Events   uint64       `json:"events"`
	Steps    []StepState  `json:"steps"`
	Procs    []*Process   `json:"processes"` // running ones without a running parent
	Files    []FileState  `json:"files"`     // written so far and not deleted, by path
	Deleted  []audit.Text `json:"deleted"`
	Egress   Egress       `json:"egress"`
	Secrets  []Held       `json:"secrets"` // credentials that were alive, by step and name
	Output   []OutputLine `json:"output"`  // the last lines
	Gaps     []GapAt      `json:"gaps"`
	Findings []Finding    `json:"findings"` // recorded ones, and disagreements of guest and host that the model found
	// Observed names the observer of each list.
	Observed map[string]audit.Observer `json:"observed"`
	// Missing and Unreadable count records that could not be taken into account.
	Missing    uint64 `json:"missing"`
	Unreadable uint64 `json:"unreadable"`
}

// Process is a process that was running at the instant.
type Process struct {
	Proc     string         `json:"proc"`
	PID      int            `json:"pid"`
	Argv     []audit.Text   `json:"argv"`
	Exe      audit.Text     `json:"exe"`
	Cwd      audit.Text     `json:"cwd"` // at its last exec
	UID      int            `json:"uid"`
	Step     string         `json:"step"`
	Start    time.Time      `json:"start"` // of its first exec
	Seq      uint64         `json:"seq"`   // of its latest exec
	LLM      string         `json:"llm,omitempty"`
	Observer audit.Observer `json:"observer"`
	Children []*Process     `json:"children,omitempty"`
}

// FileState is a file as it was last closed after writing.
type FileState struct {
	Path     audit.Text     `json:"path"`
	Size     int64          `json:"size"`
	SHA256   string         `json:"sha256,omitempty"`
	Unhashed string         `json:"unhashed,omitempty"`
	Time     time.Time      `json:"time"`
	PID      int            `json:"pid,omitempty"`
	By       *Actor         `json:"by,omitempty"` // who wrote it
	Seq      uint64         `json:"seq"`          // of that record
	Observer audit.Observer `json:"observer"`
}

// GapAt is a gap, and who declared it.
type GapAt struct {
	audit.Gap
	Seq      uint64         `json:"seq"`
	Time     time.Time      `json:"time"`
	Observer audit.Observer `json:"observer"`
}

func gapAt(m *moment, g *audit.Gap) GapAt { return GapAt{*g, m.seq, m.time(), m.observer} }

// observed returns the field Observed of a State; processes is the observer of processes. The process of a flow is
// known from the same observer.
func observed(processes audit.Observer) map[string]audit.Observer {
	return map[string]audit.Observer{"steps": audit.Host, "processes": processes, "files": processes, "deleted": processes,
		"flows": audit.Host, "claims": processes, "names": audit.Host, "secrets": audit.Host, "output": audit.Host, "findings": audit.Host}
}

// StateAt returns the state that those of a run's records make whose time is t
// or earlier. rows are all records of the run. Of the output it keeps the last lines.
func StateAt(run store.Run, rows Rows, t time.Time, lines int) (State, error) {
	s, err := Read(run, rows)
	if err != nil {
		return State{}, err
	}
	return s.StateAt(t, lines), nil
}

// StateAt returns what the run was at t: what those of its records say, in order
// of seq, whose time is t or earlier. Of the output it has the last lines.
func (s *Story) StateAt(t time.Time, lines int) State {
	defer s.read()()
	n := scene{r: s.records, d: s.derived, st: State{Run: s.records.run.ID, At: t, Phase: "not started", Gaps: []GapAt{}, Findings: []Finding{}, Observed: observed(s.records.processObserver())},
		procs: make([]running, len(s.records.procs.numbers.names)), files: make([]int32, len(s.records.paths.names)), links: links{}, gone: make([]bool, len(s.records.paths.names)),
		flows: make([]openFlow, len(s.records.flows.numbers.names)), names: map[audit.Text]answers{}, held: heldFold{}}
	at := nanos(t)
	for i := range s.records.moments {
		if m := &s.records.moments[i]; m.at <= at {
			n.add(m, int32(i))
		}
	}
	return n.state(at, lines)
}

// scene is a State in the making: what stands where, as places of moments.
// Nothing in it is looked up by name, so that a whole run is folded in milliseconds.
type scene struct {
	r      *records
	d      *derived
	st     State
	frozen bool
	procs  []running // by number
	files  []int32   // by number of path: 1 + place of the write that it has its content of; 0: it is not known to be there
	gone   []bool
	links  links
	flows  []openFlow
	names  map[audit.Text]answers
	held   heldFold
}

// running is 1 + the place of a process's first and latest exec in its life; 0: it does not run.
type running struct{ first, latest int32 }

func (n *scene) add(m *moment, place int32) {
	n.st.Events++
	if m.state != readable {
		n.st.Unreadable++
		return
	}
	switch p := m.what.(type) { // what a guest may say
	case *audit.Exec:
		if n.procs[m.x].first == 0 {
			n.procs[m.x].first = place + 1
		}
		n.procs[m.x].latest = place + 1
	case *audit.Exit:
		if m.x >= 0 {
			n.procs[m.x] = running{}
		}
	case *audit.File:
		n.file(m, place, p)
		n.held.open(n.r, m, p)
	case *audit.Gap:
		n.st.Gaps = append(n.st.Gaps, gapAt(m, p))
	}
	if m.host() {
		n.addHost(m, place)
	}
}

// addHost takes what only the host can say.
func (n *scene) addHost(m *moment, place int32) {
	switch p := m.what.(type) {
	case *audit.Lifecycle:
		if m.kind == audit.KindStep {
			n.st.Steps = addStep(n.st.Steps, m, p)
			return
		}
		n.st.Phase = "running"
		if p.Phase == audit.PhaseEnd { // nothing runs without its sandbox
			n.st.Phase = "ended"
			clear(n.flows)
			clear(n.procs)
		}
	case *audit.VM:
		n.frozen = p.Op == "freeze" || n.frozen && p.Op != "thaw"
	case *audit.Flow:
		if m.enforced() {
			n.flow(m, place, p)
		}
	case *audit.DNS:
		n.dns(place, p)
	case *audit.HTTP:
		if p.Verdict == audit.Deny {
			n.st.Egress.Denied.Requests++
		}
	case *audit.Policy:
		n.st.Egress.Generation, n.st.Egress.Digest, n.st.Egress.Rules = p.Generation, p.Digest, p.Rules
	case *audit.Secret:
		n.held.add(m.seq, m.time(), m.step, p)
	}
}

func (n *scene) file(m *moment, place int32, f *audit.File) {
	if !f.Changes() {
		return
	}
	for _, name := range n.links.follow(&n.r.paths, m.x, f) {
		n.files[name], n.gone[name] = place+1, false
	}
	switch f.Op {
	case audit.FileDelete:
		n.files[m.x], n.gone[m.x] = 0, true
	case audit.FileRename:
		to := n.r.paths.of[f.To]
		moved := n.files[m.x]
		n.files[m.x] = 0
		n.gone[to] = false
		if moved != 0 {
			n.files[to] = moved
		}
	case audit.FileCreate, audit.FileWrite:
		n.files[m.x], n.gone[m.x] = place+1, false
		if known := n.of(f.Source); known != 0 {
			n.files[m.x] = known // a link has the content of what it names
		}
	}
}

// of is the entry in files of a path, 0 without one.
func (n *scene) of(path audit.Text) int32 {
	if path == "" {
		return 0
	}
	return n.files[n.r.paths.of[path]]
}

// state finishes the fold.
func (n *scene) state(at int64, lines int) State {
	s := n.st
	if n.frozen && s.Phase == "running" {
		s.Phase = "frozen"
	}
	if s.Steps == nil {
		s.Steps = []StepState{}
	}
	s.Procs = n.tree()
	s.Files, s.Deleted = n.listFiles()
	s.Egress = n.egress()
	s.Secrets = n.held.at(s.At)
	s.Output = lastLines(n.r.moments, at, lines)
	for _, f := range n.d.findings() {
		if nanos(f.Time) <= at {
			s.Findings = append(s.Findings, f)
		}
	}
	for _, h := range n.r.holes {
		if n.r.moments[h.after].at > at {
			continue
		}
		for _, hole := range n.r.known.undeclared(h.span) {
			s.Missing += hole.len()
		}
	}
	return s
}

func (n *scene) listFiles() ([]FileState, []audit.Text) {
	files, gone := []FileState{}, []audit.Text{}
	for _, path := range n.d.order() {
		if n.gone[path] {
			gone = append(gone, n.r.paths.names[path])
		}
		if place := n.files[path]; place != 0 {
			m := &n.r.moments[place-1]
			f := m.what.(*audit.File)
			files = append(files, FileState{Path: n.r.paths.names[path], Size: f.Size, SHA256: f.SHA256, Unhashed: f.Unhashed, Time: m.time(), PID: f.PID,
				By: n.r.actor(m, f.Proc, f.PID), Seq: m.seq, Observer: m.observer})
		}
	}
	return files, gone
}

// lastLines returns the last lines of the output up to an instant.
func lastLines(moments []moment, at int64, lines int) []OutputLine {
	t := newTail(lines)
	for i := range moments {
		m := &moments[i]
		if o, is := m.what.(*audit.Output); is && m.at <= at && m.host() {
			t.add(m.step, o)
		}
	}
	return t.last()
}
