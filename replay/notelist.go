package replay

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/custody-project/custody/store"
)

// ReadNotes reads the notes on the run, and their withdrawals, out of rows that NotesQuery found.
func ReadNotes(run store.Run, rows Rows) ([]Note, error) {
	var all []Note
	for row, err := range rows {
		if err != nil {
			return nil, err
		}
		if n, ok := ReadNote(run, row); ok {
			all = append(all, n)
		}
	}
	return all, nil
}

// NoteList writes notes, two lines or more each. at finds the record that a note is about, false if there is none.
func NoteList(w io.Writer, notes []Note, at func(seq uint64) (store.Row, bool, error), opt Options) error {
	p := newPrinter(w, store.Run{}, opt)
	for _, n := range notes {
		row, there, err := store.Row{}, false, error(nil)
		if n.Seq != 0 {
			if row, there, err = at(n.Seq); err != nil {
				return err
			}
		}
		l := newLine(p.out, p.opt)
		l.put(dim, p.opt.stamp(n.Time, stampLayout+zoneLayout)+"  ")
		l.put(bold, escape(n.Who))
		l.put(dim, " by "+escape(n.Via))
		if n.Seq == 0 {
			l.put(plain, "  on the run")
		} else {
			l.put(plain, fmt.Sprintf("  on record %d", n.Seq))
		}
		l.put(dim, "  "+escape(n.ID))
		l.end()
		p.noteText(n, n.Binding(row, there), "    ")
	}
	return p.out.Flush()
}

// notesOn writes the notes on a record below it; of the row of seq 0, those on the whole run.
func (p *printer) notesOn(row store.Row) {
	for _, n := range p.notes[row.Seq] {
		p.noteLine(n, n.Binding(row, true))
	}
	delete(p.notes, row.Seq)
}

// strayNotes writes the notes on records up to last that are not there.
func (p *printer) strayNotes(last uint64) {
	if len(p.opt.Kinds) > 0 || p.opt.windowed() {
		return // they may be there and not be shown
	}
	var seqs []uint64
	for seq := range p.notes {
		if seq <= last {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	for _, seq := range seqs {
		for _, n := range p.notes[seq] {
			p.noteLine(n, BoundMissing)
		}
	}
}

// noteLine writes a note among the records of its run.
func (p *printer) noteLine(n Note, b Bound) {
	l := newLine(p.out, p.opt)
	margin := strings.Repeat(" ", p.margin()-2) + "| "
	l.put(yellow, margin+"note by ")
	l.put(bold, escape(n.Who))
	l.put(dim, "  "+p.opt.stamp(n.Time, stampLayout+zoneLayout)+"  "+escape(n.ID))
	l.end()
	p.noteText(n, b, margin)
}

// noteText writes what a note says, and what is to be known of it.
func (p *printer) noteText(n Note, b Bound, margin string) {
	l := newLine(p.out, p.opt)
	text := strings.TrimSpace(escape(string(n.Text)) + tags(n.Tags))
	mood := plain
	if n.Withdrawn != nil {
		mood = dim
	}
	l.put(yellow, margin)
	l.put(mood, text)
	l.end()
	if w := n.Withdrawn; w != nil {
		l.put(yellow, margin)
		l.put(dim, "withdrawn by "+escape(w.Who)+"  "+p.opt.stamp(w.Time, stampLayout+zoneLayout))
		if w.Text != "" {
			l.put(plain, "  "+escape(string(w.Text)))
		}
		l.end()
	}
	if mark := n.Mark(p.opt.mark); mark != nil {
		l.limit = 0
		l.put(yellow, margin)
		l.putMark(*mark)
		l.end()
	}
	if warning := b.warning(n.Seq); warning != "" {
		l.limit = 0
		l.put(yellow, margin)
		l.put(alarm, "!! "+warning)
		l.end()
	}
}

// warning describes what is wrong with the record that a note is about, "" if nothing is.
func (b Bound) warning(seq uint64) string {
	switch b {
	case BoundOther:
		return fmt.Sprintf("THE NOTE WAS WRITTEN ABOUT ANOTHER RECORD than the present record %d", seq)
	case BoundMissing:
		return fmt.Sprintf("THE NOTE IS ABOUT RECORD %d, which does not exist", seq)
	}
	return ""
}
