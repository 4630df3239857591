package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// records are a run's records in order of seq, with tables that resolve what one
// refers to in the others.
type records struct {
	run     store.Run
	began   int64
	last    int64 // time of the latest record
	lastSeq uint64
	moments []moment
	places  map[uint64]int32 // of moments, by seq
	known   index
	holes   []hole
	size    int64 // in bytes, about

	procs    processTable
	paths    numbers[audit.Text]
	flows    flowTable
	steps    map[string]int32 // places of steps' starts
	policies map[uint32]int32 // places of policies, by generation
	llms     map[string]int32 // places of models' calls, by id
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

func newRecords(run store.Run) *records {
	return &records{run: run, known: newIndex(), places: map[uint64]int32{}, procs: newProcessTable(), paths: newNumbers[audit.Text](),
		flows: newFlowTable(), steps: map[string]int32{}, policies: map[uint32]int32{}, llms: map[string]int32{}}
}

// add takes in the next row, with its record as far as decode could read it, and reports whether it is new.
func (r *records) add(row store.Row, rec audit.Record, err error) bool {
	if row.Seq <= r.lastSeq {
		return false
	}
	place := int32(len(r.moments))
	m := moment{seq: row.Seq, at: nanos(row.Time), x: -1, by: -1}
	switch {
	case row.Erased != nil:
		m.state = erased
	case err != nil:
		m.state = unreadable
	default:
		m.kind, m.observer, m.step = rec.Kind, rec.Observer, rec.Step
		if g := rec.Guest; g != nil {
			m.claimed = nanos(g.Time) - g.OffsetNS
		}
		r.take(&m, place, &rec)
		r.known.learnRecord(&rec)
	}
	if row.Seq > r.lastSeq+1 {
		r.holes = append(r.holes, hole{span{r.lastSeq + 1, row.Seq - 1}, place})
	}
	if place == 0 {
		r.began, r.last = m.at, m.at
	}
	r.last, r.lastSeq = max(r.last, m.at), row.Seq
	r.places[m.seq] = place
	r.moments = append(r.moments, m)
	r.size += momentSize + int64(len(row.Body))
	return true
}

// summarize takes in the run's summary as it is now.
func (r *records) summarize(run store.Run) {
	r.run = run
	if !run.Began().IsZero() {
		r.began = nanos(run.Began())
	}
}

// take sets what and whom a record is about.
func (r *records) take(m *moment, place int32, rec *audit.Record) {
	switch {
	case rec.Exec != nil:
		m.what = rec.Exec
		r.procs.exec(m, place, rec.Exec)
	case rec.Exit != nil:
		m.what = rec.Exit
		if rec.Exit.Proc != "" {
			m.x = r.procs.number(rec.Exit.Proc)
			m.by = r.procs.seen[m.x].exec
		}
	case rec.File != nil:
		m.what = rec.File
		m.x, _ = r.paths.number(rec.File.Path)
		if rec.File.Op == audit.FileRename {
			r.paths.number(rec.File.To)
		}
		if rec.File.Source != "" {
			r.paths.number(rec.File.Source)
		}
		m.by, m.child = r.procs.actor(rec.File.Proc, rec.File.Parent)
	case rec.Flow != nil:
		m.what = rec.Flow
		if rec.Observer == audit.Host && rec.Flow.ID != "" {
			m.x = r.flows.number(rec.Flow.ID, place)
		}
		m.by, m.child = r.procs.actor(rec.Flow.Proc, rec.Flow.Parent)
	case rec.Lifecycle != nil:
		m.what = rec.Lifecycle
		if rec.Kind == audit.KindStep && rec.Observer == audit.Host && rec.Lifecycle.Phase == audit.PhaseStart {
			keep(r.steps, cmp.Or(rec.Lifecycle.Name, rec.Step), place)
		}
	case rec.DNS != nil:
		m.what = rec.DNS
	case rec.HTTP != nil:
		m.what = rec.HTTP
	case rec.LLM != nil:
		m.what = rec.LLM
		if rec.Observer == audit.Host {
			keep(r.llms, rec.LLM.ID, place)
		}
	case rec.Policy != nil:
		m.what = rec.Policy
		if rec.Observer == audit.Host {
			keep(r.policies, rec.Policy.Generation, place)
		}
	case rec.Probe != nil:
		m.what = rec.Probe
	case rec.Output != nil:
		m.what = rec.Output
	case rec.VM != nil:
		m.what = rec.VM
	case rec.Copy != nil:
		m.what = rec.Copy
	case rec.Secret != nil:
		m.what = rec.Secret
	case rec.Gap != nil:
		m.what = rec.Gap
	case rec.Finding != nil:
		m.what = rec.Finding
	case rec.Access != nil:
		m.what = rec.Access
	}
}

// keep sets what was not set.
func keep[K comparable](m map[K]int32, key K, place int32) {
	if _, known := m[key]; !known {
		m[key] = place
	}
}

// at returns the moment with that seq, nil if there is none.
func (r *records) at(seq uint64) *moment {
	if i, known := r.places[seq]; known {
		return &r.moments[i]
	}
	return nil
}

// from returns the place of the first moment whose seq is seq or higher, the number of moments if there is none.
func (r *records) from(seq uint64) int {
	i, _ := slices.BinarySearchFunc(r.moments, seq, func(m moment, seq uint64) int { return cmp.Compare(m.seq, seq) })
	return i
}

// opening returns the first record of a flow, nil if there is none.
func (r *records) opening(flow string) *moment {
	if place, known := r.flows.opening(flow); known {
		return &r.moments[place]
	}
	return nil
}

// policy returns the event of a generation of the policy, nil if there is none.
func (r *records) policy(generation uint32) *moment {
	if at, known := r.policies[generation]; known {
		return &r.moments[at]
	}
	return nil
}

// call returns the record of a model's call, nil if there is none.
func (r *records) call(id string) *moment {
	if at, known := r.llms[id]; known && id != "" {
		return &r.moments[at]
	}
	return nil
}

// actor names the process behind a record, nil if it names none.
func (r *records) actor(m *moment, proc string, pid int) *Actor {
	if proc == "" && pid == 0 {
		return nil
	}
	a := &Actor{Proc: proc, PID: pid, Child: m.child}
	if m.by >= 0 {
		by := &r.moments[m.by]
		a.Seq, a.Name = by.seq, programOf(by.what.(*audit.Exec))
	}
	return a
}

// claimant returns the process that the guest names for a flow that the host saw, and the seq of that claim.
func (r *records) claimant(m *moment, f *audit.Flow) (*Actor, uint64) {
	a, found := r.known.joins.of(f, m.time())
	if found && (f.Proc == "" || f.Proc == a.proc) {
		if claim := r.at(a.seq); claim != nil {
			if c, is := claim.what.(*audit.Flow); is {
				return r.actor(claim, c.Proc, c.PID), a.seq
			}
		}
	}
	return r.actor(m, f.Proc, f.PID), 0
}

// around returns the times of the records before and behind some that are not there.
func (r *records) around(missing span) (from, to int64) {
	i := r.from(missing.first)
	from, to = r.began, r.last
	if i > 0 {
		from = r.moments[i-1].at
	}
	if i < len(r.moments) {
		to = r.moments[i].at
	}
	return min(from, to), max(from, to)
}

// ms are the milliseconds from the run's begin to an instant.
func (r *records) ms(at int64) float64 {
	if d := at - r.began; (d < 0) == (at < r.began) {
		return float64(d) / 1e6
	}
	return (float64(at) - float64(r.began)) / 1e6 // too far apart for an int64
}

// ended returns when the run did and true, or the time of the latest record while it goes on.
func (r *records) ended() (int64, bool) {
	if r.run.End == nil {
		return r.last, false
	}
	return nanos(*r.run.End), true
}

// time of a moment.
func (m *moment) time() time.Time { return instantOf(m.at) }

// host reports whether code outside the VM saw it.
func (m *moment) host() bool { return m.observer == audit.Host }

// processObserver returns the observer of the run's processes.
func (r *records) processObserver() audit.Observer {
	if r.known.byHost {
		return audit.Host
	}
	return audit.Guest
}

// enforced reports whether the record is of the host, and not an attempt to connect: an attempt is what a process did, no matter who
// observed it, and all other records of flows are what the network's enforcers did.
func (m *moment) enforced() bool {
	f, is := m.what.(*audit.Flow)
	return m.host() && !(is && f.State == audit.FlowAttempt)
}
