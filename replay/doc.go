// Package replay turns the records of a run back into what happened: a table a
// person can read, the state at an instant, a list of runs, and the comparison
// of a store with the log it was made from.
//
// A Story has a run's records in memory, and derives views from them: the
// state at an instant, what changed between two, lanes over time, and what each
// record rests on and led to. It has an index for each subject, with questions of
// its own: processes, connections, files, LLM API calls, credentials, findings,
// steps and output. The command line, the API and reports all use it. It
// distinguishes guest and host throughout, and their disagreements are findings.
//
// Its functions are pure: rows in, text or a model out. They read no flags, no
// clock and no terminal. Everything that a guest could have chosen (argv, paths,
// output, names) is shown with every control, format and otherwise invisible
// character escaped, so that no record can steer the terminal it is read on.
package replay

import (
	"iter"
	"slices"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Rows are the records of one run in order of seq, as a store returns them.
// Some functions range over them twice: see their comments.
type Rows = iter.Seq2[store.Row, error]

// Options describe how text is laid out.
type Options struct {
	// Width in characters that lines are cut to, 0 for no limit.
	Width int
	// Color puts in SGR sequences. No other control sequence is ever written.
	Color bool
	// Relative shows times since the run's start instead of a clock's.
	Relative bool
	// Zone in which times are shown; nil is UTC.
	Zone *time.Location
	// From and Until bound the records that are shown by their time: From inclusive, Until exclusive, zero is unbounded.
	From, Until time.Time
	// Kinds are the kinds of records to show, all when empty. Gaps are always shown.
	Kinds []audit.Kind
	// Notes on the run; Timeline shows each below the record that it is about.
	Notes []Note
	// Withheld reports whether the exporter of a bundle did not show a record; nil: all are shown.
	Withheld func(seq uint64) bool
	// Mark reports whether a row is what was signed, MarkRun whether a run's summary is, and End the last seq that is signed
	// for. Rows and runs that differ are marked. Nil: nothing is marked.
	Mark    func(store.Row) store.Mark
	MarkRun func(store.Run) store.Mark
	End     func(store.Run) uint64

	markup bool // HTML instead of SGR sequences
}

// shows reports whether the output has records of kind k.
func (o Options) shows(k audit.Kind) bool {
	return len(o.Kinds) == 0 || slices.Contains(o.Kinds, k)
}

// withholds reports whether the exporter of a bundle did not show any record of s.
func (o Options) withholds(s span) bool {
	if o.Withheld == nil {
		return false
	}
	for seq := s.first; seq <= s.last; seq++ {
		if !o.Withheld(seq) {
			return false
		}
	}
	return true
}
