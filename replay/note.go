package replay

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Note is a note on a run or on one of its records, as an access log has it.
type Note struct {
	audit.Noted
	Withdrawn *Withdrawal `json:"withdrawn,omitempty"`

	row store.Row // the record that the note is, where it was read from a store
}

// Withdrawal tells who withdrew a note. It is a record of its own.
type Withdrawal struct {
	ID   string     `json:"id"`
	Time time.Time  `json:"time"`
	Who  string     `json:"who"`
	Via  string     `json:"via"`
	Text audit.Text `json:"text,omitempty"`

	row store.Row // the record that it is
}

// Mark returns the first mark that is not good of the note's record and of its withdrawal's, nil if both are what was
// signed. A note that was not read from a store has none.
func (n Note) Mark(mark func(store.Row) store.Mark) *store.Mark {
	rows := []store.Row{n.row}
	if n.Withdrawn != nil {
		rows = append(rows, n.Withdrawn.row)
	}
	for _, row := range rows {
		if row.Run == "" {
			continue
		}
		if m := mark(row); !m.Good() {
			return &m
		}
	}
	return nil
}

// NotesQuery finds the records of which Notes makes the run's notes.
func NotesQuery(run store.Run, limit int) store.Search {
	return store.Search{Path: run.ID, Kinds: []audit.Kind{audit.KindNote}, Limit: limit}
}

// ReadNote reads a row as a note on the run, false if it is none. Only a host can take notes, and only in
// an access log of the run's tenant or of a host that has no tenant: else a writer of one tenant's records
// could forge notes of another tenant's users.
func ReadNote(run store.Run, row store.Row) (Note, bool) {
	if !strings.HasPrefix(row.Run, store.AccessPrefix) || row.Tenant != "" && row.Tenant != run.Tenant || row.Erased != nil {
		return Note{}, false
	}
	var r audit.Record
	if json.Unmarshal(row.Body, &r) != nil || r.Kind != audit.KindNote || r.Note == nil || r.Observer != audit.Host {
		return Note{}, false
	}
	n := Note{Noted: audit.Noted{ID: audit.NoteID(row.Run, row.Seq), Time: row.Time, Note: *r.Note}, row: row}
	return n, n.About == run.ID && n.Tenant == run.Tenant && n.Who != ""
}

// Notes puts notes on one run and their withdrawals together, oldest first. A withdrawal without its note is left out.
func Notes(all []Note) []Note {
	var notes []Note
	place := map[string]int{}
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Note) int { return a.compare(b) })
	for _, n := range all {
		if n.Withdraws == "" {
			place[n.ID] = len(notes)
			notes = append(notes, n)
		}
	}
	for _, w := range all {
		if i, ok := place[w.Withdraws]; ok && w.Withdraws != "" && notes[i].Withdrawn == nil {
			notes[i].Withdrawn = &Withdrawal{w.ID, w.Time, w.Who, w.Via, w.Text, w.row}
		}
	}
	return notes
}

// compare is negative where n was recorded before o.
func (n Note) compare(o Note) int {
	if c := n.Time.Compare(o.Time); c != 0 {
		return c
	}
	log, seq, _ := audit.ParseNoteID(n.ID)
	otherLog, otherSeq, _ := audit.ParseNoteID(o.ID)
	return cmp.Or(strings.Compare(log, otherLog), cmp.Compare(seq, otherSeq))
}

// Withdrawable returns the note on a run that has this id, or why it cannot be withdrawn.
func Withdrawable(notes []Note, id string) (Note, error) {
	i := slices.IndexFunc(notes, func(n Note) bool { return n.ID == id })
	switch {
	case i < 0:
		return Note{}, fmt.Errorf("%w: %.140q", ErrNoNote, id)
	case notes[i].Withdrawn != nil:
		return Note{}, fmt.Errorf("%w: %.140q, by %s", ErrWithdrawn, id, notes[i].Withdrawn.Who)
	}
	return notes[i], nil
}

// Why a note cannot be withdrawn.
var (
	ErrNoNote    = errors.New("the run has no such note")
	ErrWithdrawn = errors.New("the note was withdrawn before")
)

// Bound describes how a note stands to the record that it was written about.
type Bound string

// What Binding can say.
const (
	BoundRun     Bound = "run"     // it is about the whole run
	BoundSame    Bound = "same"    // that record, erased or not, is the one that the note was written about
	BoundOther   Bound = "other"   // another record stands there now
	BoundMissing Bound = "missing" // there is no record there
)

// Binding compares the record at the note's seq with the one that the note was written about.
func (n Note) Binding(row store.Row, there bool) Bound {
	switch leaf := row.Frame().Leaf(); {
	case n.Seq == 0:
		return BoundRun
	case !there || row.Seq != n.Seq:
		return BoundMissing
	case hex.EncodeToString(leaf[:]) == n.Leaf:
		return BoundSame
	}
	return BoundOther
}

// note shows what someone said about a run.
func note(n *audit.Note) entry {
	e := entry{result: "note", mood: yellow}
	e.add(bold, escape(orUnknown(n.Who)))
	on := "  on " + n.About
	if n.Seq != 0 {
		on += fmt.Sprintf(" record %d", n.Seq)
	}
	if n.Withdraws != "" {
		e.result = "withdraw"
		on += ", withdraws " + n.Withdraws
	}
	e.add(dim, escape(on)+"  ")
	e.add(plain, escape(string(n.Text)))
	e.add(cyan, tags(n.Tags))
	for _, f := range []struct{ name, value string }{{"as ", n.Role}, {"of tenant ", n.Tenant}, {"by ", n.Via}, {"from ", n.Remote}} {
		if f.value != "" {
			e.add(dim, "  "+f.name+escape(f.value))
		}
	}
	return e
}

// tags shows tags behind a text.
func tags(list []string) string {
	var b strings.Builder
	for _, t := range list {
		b.WriteString("  #" + escape(t))
	}
	return b.String()
}
