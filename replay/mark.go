package replay

import (
	"bufio"
	"fmt"
	"io"
	"time"

	"github.com/custody-project/custody/store"
)

// mark of a row; without Options.Mark it holds.
func (o Options) mark(row store.Row) store.Mark {
	if o.Mark == nil {
		return store.Mark{State: store.Holds}
	}
	return o.Mark(row)
}

// markRun is mark for a run's summary.
func (o Options) markRun(run store.Run) store.Mark {
	if o.MarkRun == nil {
		return store.Mark{State: store.Holds}
	}
	return o.MarkRun(run)
}

// markWord is how a mark is shown; nothing of what is good.
func markWord(m store.Mark) (style, string) {
	switch m.State {
	case store.Holds, store.Live:
		return plain, ""
	case store.Fails:
		return alarm, "!! NOT WHAT WAS SIGNED"
	case store.Unsigned:
		return alarm, "!! NOTHING SIGNED"
	case store.Cannot:
		return yellow, "cannot be judged"
	}
	return yellow, "not checked"
}

// putMark writes a mark with its reason, if there is one to write.
func (l *line) putMark(m store.Mark) {
	if s, word := markWord(m); word != "" {
		l.put(s, word+": "+escape(m.Text))
	}
}

// Marked is a state with what is said of the run and of the records that it was made of; it has no mark if all of them are good.
type Marked struct {
	State
	Mark *store.Mark `json:"verification,omitempty"`
}

// MarkedStateAt is StateAt, and has the mark of the first of the run's records that is not good, those first that are
// known not to be what was signed; else that of the run's summary.
func MarkedStateAt(run store.Run, rows Rows, t time.Time, lines int, opt Options) (Marked, error) {
	var worst *store.Mark
	note := func(m store.Mark, text string) {
		if !m.Good() && (worst == nil || m.Wrong() && !worst.Wrong()) {
			m.Text = text + m.Text
			worst = &m
		}
	}
	state, err := StateAt(run, func(yield func(store.Row, error) bool) {
		for row, err := range rows {
			if err == nil {
				note(opt.mark(row), fmt.Sprintf("record %d: ", row.Seq))
			}
			if !yield(row, err) {
				return
			}
		}
	}, t, lines)
	note(opt.markRun(run), "")
	return Marked{state, worst}, err
}

// Write is State's, with the mark before all else.
func (m Marked) Write(w io.Writer, began time.Time, opt Options) error {
	if m.Mark != nil {
		l := newLine(bufio.NewWriter(w), opt)
		l.limit = 0
		l.putMark(*m.Mark)
		l.end()
		if err := l.out.Flush(); err != nil {
			return err
		}
	}
	return m.State.Write(w, began, opt)
}
