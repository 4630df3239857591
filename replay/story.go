package replay

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Story is a run's records, read once and held in memory, and the answers that
// they give. Its methods may be called concurrently; what they return is the
// caller's, but for text and lists of records, which no one may change.
//
// Whatever the records say, a question costs time and memory in proportion to
// their number: a guest that lies about parents, clocks and names gains nothing.
type Story struct {
	mu      sync.RWMutex // guards everything below
	run     store.Run
	began   int64
	last    int64 // time of the latest record
	lastSeq uint64
	moments []moment
	places  map[uint64]int32 // of moments, by seq
	known   index
	holes   []hole
	size    int64

	procs    numbers[string]
	paths    numbers[audit.Text]
	flows    numbers[string]
	execs    []procSeen       // by number of process
	opened   []int32          // by number of flow: the place of its first record
	steps    map[string]int32 // places of steps' starts
	policies map[uint32]int32 // places of policies, by generation
	llms     map[string]int32 // places of models' calls, by id

	derived *derived // what is made from all of that when it is asked for; nil after Add
}

// moment is a record of a story.
type moment struct {
	seq      uint64
	at       int64 // nanoseconds since 1970
	claimed  int64 // when a guest's event happened, by its clock less its offset to the host's; 0: unknown
	kind     audit.Kind
	observer audit.Observer
	step     string
	what     any // payload: *audit.Exec and so on; nil where there is none of the kind
	state    reading
	// x is the number of the process, path or flow that it is about, -1 for none.
	x int32
	// by is the place of the exec of the process that did it, or of its nearest
	// ancestor with one (child); of an exec, of the one that it hangs below. -1: unknown.
	by    int32
	child bool
}

// reading is how far a record could be read.
type reading uint8

const (
	readable reading = iota
	unreadable
	erased
)

// hole is a stretch of seqs that no row had.
type hole struct {
	span
	after int32 // place of the moment behind it
}

// procSeen is what is known of a process, as far as the records were read.
type procSeen struct {
	parent int32 // number, -1: none
	exec   int32 // place of its latest exec, -1: none
}

// numbers gives out one number to each different name.
type numbers[T comparable] struct {
	of    map[T]int32
	names []T
}

func newNumbers[T comparable]() numbers[T] { return numbers[T]{of: map[T]int32{}} }

func (n *numbers[T]) number(name T) (int32, bool) {
	if i, known := n.of[name]; known {
		return i, false
	}
	i := int32(len(n.names))
	n.of[name] = i
	n.names = append(n.names, name)
	return i, true
}

// Read reads all records of a run.
func Read(run store.Run, rows Rows) (*Story, error) {
	s := &Story{run: run, known: newIndex(), places: map[uint64]int32{},
		procs: newNumbers[string](), paths: newNumbers[audit.Text](), flows: newNumbers[string](), steps: map[string]int32{}, policies: map[uint32]int32{}, llms: map[string]int32{}}
	return s, s.Add(run, rows)
}

// Add takes in what a run that goes on has recorded since, in order of seq, and
// its summary as it is now. Rows that the story has already are passed over.
// After an error the rows before it are part of the story.
func (s *Story) Add(run store.Run, rows Rows) error {
	for row, err := range rows {
		if err != nil {
			return err
		}
		r, err := decode(row) // outside the lock: it takes longest
		s.mu.Lock()
		s.add(row, r, err)
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run, s.derived = run, nil
	if !run.Began().IsZero() {
		s.began = nanos(run.Began())
	}
	return nil
}

func (s *Story) add(row store.Row, r audit.Record, err error) {
	if row.Seq <= s.lastSeq {
		return
	}
	place := int32(len(s.moments))
	m := moment{seq: row.Seq, at: nanos(row.Time), x: -1, by: -1}
	switch {
	case row.Erased != nil:
		m.state = erased
	case err != nil:
		m.state = unreadable
	default:
		m.kind, m.observer, m.step = r.Kind, r.Observer, r.Step
		if g := r.Guest; g != nil {
			m.claimed = nanos(g.Time) - g.OffsetNS
		}
		s.take(&m, place, &r)
		s.known.learnRecord(&r)
	}
	if row.Seq > s.lastSeq+1 {
		s.holes = append(s.holes, hole{span{s.lastSeq + 1, row.Seq - 1}, place})
	}
	if place == 0 {
		s.began, s.last = m.at, m.at
	}
	s.last, s.lastSeq, s.derived = max(s.last, m.at), row.Seq, nil
	s.places[m.seq] = place
	s.moments = append(s.moments, m)
	s.size += momentSize + int64(len(row.Body))
}

// take sets what and whom a record is about.
func (s *Story) take(m *moment, place int32, r *audit.Record) {
	switch {
	case r.Exec != nil:
		m.what = r.Exec
		s.exec(m, place, r.Exec)
	case r.Exit != nil:
		m.what = r.Exit
		if r.Exit.Proc != "" {
			m.x = s.proc(r.Exit.Proc)
			m.by = s.execs[m.x].exec
		}
	case r.File != nil:
		m.what = r.File
		m.x, _ = s.paths.number(r.File.Path)
		if r.File.Op == audit.FileRename {
			s.paths.number(r.File.To)
		}
		if r.File.Source != "" {
			s.paths.number(r.File.Source)
		}
		m.by, m.child = s.actor(r.File.Proc, r.File.Parent)
	case r.Flow != nil:
		m.what = r.Flow
		if r.Observer == audit.Host && r.Flow.ID != "" {
			m.x = s.flow(r.Flow.ID, place)
		}
		m.by, m.child = s.actor(r.Flow.Proc, r.Flow.Parent)
	case r.Lifecycle != nil:
		m.what = r.Lifecycle
		if r.Kind == audit.KindStep && r.Observer == audit.Host && r.Lifecycle.Phase == audit.PhaseStart {
			keep(s.steps, cmp.Or(r.Lifecycle.Name, r.Step), place)
		}
	case r.DNS != nil:
		m.what = r.DNS
	case r.HTTP != nil:
		m.what = r.HTTP
	case r.LLM != nil:
		m.what = r.LLM
		if r.Observer == audit.Host {
			keep(s.llms, r.LLM.ID, place)
		}
	case r.Policy != nil:
		m.what = r.Policy
		if r.Observer == audit.Host {
			keep(s.policies, r.Policy.Generation, place)
		}
	case r.Probe != nil:
		m.what = r.Probe
	case r.Output != nil:
		m.what = r.Output
	case r.VM != nil:
		m.what = r.VM
	case r.Copy != nil:
		m.what = r.Copy
	case r.Secret != nil:
		m.what = r.Secret
	case r.Gap != nil:
		m.what = r.Gap
	case r.Finding != nil:
		m.what = r.Finding
	case r.Access != nil:
		m.what = r.Access
	}
}

// keep sets what was not set.
func keep[K comparable](m map[K]int32, key K, place int32) {
	if _, known := m[key]; !known {
		m[key] = place
	}
}

func (s *Story) exec(m *moment, place int32, e *audit.Exec) {
	uid := e.Proc
	if uid == "" { // cannot be distinguished from others, nor be ended; shown all the same
		uid = fmt.Sprintf("seq %d", m.seq)
	}
	m.x = s.proc(uid)
	p := &s.execs[m.x]
	first := p.exec < 0
	p.exec = place
	if first && e.Parent != "" && e.Parent != uid {
		parent := s.proc(e.Parent) // may move execs
		s.execs[m.x].parent = parent
	}
	m.by = s.above(m.x)
}

// above returns the place of the exec of the nearest ancestor that has one.
// Parents are claims and may form a circle.
func (s *Story) above(proc int32) int32 {
	up := s.execs[proc].parent
	for range maxAbove {
		if up < 0 || up == proc {
			return -1
		}
		if at := s.execs[up].exec; at >= 0 {
			return at
		}
		up = s.execs[up].parent
	}
	return -1
}

// maxAbove bounds how far up an ancestor is looked for.
const maxAbove = 64

func (s *Story) proc(uid string) int32 {
	n, fresh := s.procs.number(uid)
	if fresh {
		s.execs = append(s.execs, procSeen{-1, -1})
	}
	return n
}

func (s *Story) flow(id string, place int32) int32 {
	n, fresh := s.flows.number(id)
	if fresh {
		s.opened = append(s.opened, place)
	}
	return n
}

// actor returns the place of the exec of a process that a record names, or of the parent that it names.
func (s *Story) actor(proc, parent string) (place int32, child bool) {
	if n, known := s.procs.of[proc]; known && proc != "" && s.execs[n].exec >= 0 {
		return s.execs[n].exec, false
	}
	if n, known := s.procs.of[parent]; known && parent != "" && s.execs[n].exec >= 0 {
		return s.execs[n].exec, true
	}
	return -1, false
}

// Run returns the run's summary.
func (s *Story) Run() store.Run {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.run
}

// Last returns the seq of the last record that the story has, 0 for none.
func (s *Story) Last() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.lastSeq
}

// Size is about how many bytes of memory the story takes, with what is made of
// it when questions are asked.
func (s *Story) Size() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.size + int64(len(s.moments))*derivedSize
}

// What a record takes besides its text, measured over a run with all kinds of
// records (TestSize holds Size to what the runtime says).
const (
	momentSize  = 400
	derivedSize = 300
)

// derived is what answers are made of: each part when it is first asked for,
// while the story stands still.
type derived struct {
	procs       func() []Proc
	connections func() []Connection
	files       func() []FileHistory
	calls       func() []Call
	credentials func() []Credential
	findings    func() []Finding
	disputes    func() []disagreement
	lanes       func() []laneFull
	stops       func() (gaps, freezes []stop)
	order       func() []int32 // numbers of paths, sorted
}

func (s *Story) derive() *derived {
	return &derived{
		procs: sync.OnceValue(s.makeProcs), connections: sync.OnceValue(s.makeConnections), files: sync.OnceValue(s.makeFiles),
		calls: sync.OnceValue(s.makeCalls), credentials: sync.OnceValue(s.makeCredentials), findings: sync.OnceValue(s.makeFindings),
		disputes: sync.OnceValue(s.makeDisagreements), lanes: sync.OnceValue(s.makeLanes), stops: sync.OnceValues(s.makeStops), order: sync.OnceValue(s.sortPaths),
	}
}

// read begins an answer: the story stands still until the returned function is called.
func (s *Story) read() func() {
	for {
		s.mu.RLock()
		if s.derived != nil {
			return s.mu.RUnlock
		}
		s.mu.RUnlock()
		s.mu.Lock()
		if s.derived == nil {
			s.derived = s.derive()
		}
		s.mu.Unlock()
	}
}

// ended says when the run did, if it has.
func (s *Story) ended() (int64, bool) {
	if s.run.End == nil {
		return s.last, false
	}
	return nanos(*s.run.End), true
}

// time of a moment.
func (m *moment) time() time.Time { return instantOf(m.at) }

// host reports whether code outside the VM saw it.
func (m *moment) host() bool { return m.observer == audit.Host }
