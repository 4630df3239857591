package replay

import (
	"sync"

	"github.com/custody-project/custody/store"
)

// Story is a run's records, read once and held in memory. It answers what all
// of them say together: the state at an instant, what changed between two, a
// picture over time, and what a record rests on. Each of its indexes (Processes,
// Connections, Files, Calls, Credentials, Findings, Steps, Output) answers
// questions about one subject.
//
// The methods of a Story and of its indexes may be called concurrently, also
// while it grows: each answer has the records that the Story had at the call.
// What they return is the caller's, but for text and lists of records, which callers
// must not change.
//
// Whatever the records say, a question costs time and memory in proportion to
// their number: a guest that lies about parents, clocks and names gains nothing.
type Story struct {
	mu      sync.RWMutex // guards everything below
	records *records
	derived *derived // what is made from the records when it is asked for; nil after Add
}

// Read reads all records of a run.
func Read(run store.Run, rows Rows) (*Story, error) {
	s := &Story{records: newRecords(run)}
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
		if s.records.add(row, r, err) {
			s.derived = nil
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.derived = nil
	s.records.summarize(run)
	return nil
}

// Run returns the run's summary.
func (s *Story) Run() store.Run {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.records.run
}

// Last returns the seq of the last record that the story has, 0 for none.
func (s *Story) Last() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.records.lastSeq
}

// Size is about how many bytes of memory the story takes, with what is made of
// it when questions are asked.
func (s *Story) Size() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.records.size + int64(len(s.records.moments))*derivedSize
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

func derive(r *records) *derived {
	d := &derived{}
	d.procs = sync.OnceValue(func() []Proc { return makeProcs(r) })
	d.disputes = sync.OnceValue(func() []disagreement { return makeDisagreements(r) })
	d.connections = sync.OnceValue(func() []Connection { return makeConnections(r, d.disputes()) })
	d.order = sync.OnceValue(func() []int32 { return sortPaths(r.paths.names) })
	d.files = sync.OnceValue(func() []FileHistory { return makeFiles(r, r.moments, d.order()) })
	d.calls = sync.OnceValue(func() []Call { return makeCalls(r) })
	d.credentials = sync.OnceValue(func() []Credential { return makeCredentials(r) })
	d.findings = sync.OnceValue(func() []Finding { return makeFindings(r, d.disputes()) })
	d.lanes = sync.OnceValue(func() []laneFull { return makeLanes(r, d) })
	d.stops = sync.OnceValues(func() (gaps, freezes []stop) { return makeStops(r) })
	return d
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
			s.derived = derive(s.records)
		}
		s.mu.Unlock()
	}
}
