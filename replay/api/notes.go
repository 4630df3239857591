package api

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/store"
)

// Notes records notes; host.AccessLog does. When Note returns nil the note is durable.
type Notes interface {
	Note(ctx context.Context, n audit.Note) (audit.Noted, error)
}

// NoteRequest is a note to be recorded, or the withdrawal of one. Its author is the principal of the request.
type NoteRequest struct {
	Seq       uint64     `json:"seq,omitempty"` // of the record that it is about; 0: the whole run
	Text      audit.Text `json:"text,omitempty"`
	Tags      []string   `json:"tags,omitempty"`
	Withdraws string     `json:"withdraws,omitempty"` // the id of a note; the text reports why
}

// RunNote is a note on a run, as the API has it.
type RunNote struct {
	replay.Note
	State NoteState    `json:"state"`
	Bound replay.Bound `json:"bound"`
	Mark  *store.Mark  `json:"verification,omitempty"` // set if its record, or its withdrawal's, differs from what was signed
}

// NoteState is the state of a note.
type NoteState string

// The states of a note.
const (
	NoteRecorded NoteState = "recorded" // it, or its withdrawal, is in this host's log only: its segment has not reached the store
	NoteStored   NoteState = "stored"   // its segment is sealed, signed and in the store
)

// maxNotes bounds how many notes on one run are read, their withdrawals included.
const maxNotes = 2000

// fresh has the notes that this Server recorded and the store may not have yet, oldest first.
type fresh struct {
	mu  sync.Mutex // guards all
	all []freshNote
}

type freshNote struct {
	run runKey
	replay.Note
}

// maxFresh bounds them: if the store is unavailable for longer, the list of notes lacks the oldest until it is back.
const maxFresh = 1000

func (f *fresh) add(run store.Run, n audit.Noted) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, freshNote{keyOf(run), replay.Note{Noted: n}})
	f.all = f.all[max(0, len(f.all)-maxFresh):]
}

// behind returns the run's notes that are not among stored, and forgets those that are.
func (f *fresh) behind(run store.Run, stored []replay.Note) (rest []replay.Note) {
	there := map[string]bool{}
	for _, n := range stored {
		there[n.ID] = true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = slices.DeleteFunc(f.all, func(n freshNote) bool { return n.run == keyOf(run) && there[n.ID] })
	for _, n := range f.all {
		if n.run == keyOf(run) {
			rest = append(rest, n.Note)
		}
	}
	return rest
}

// noteReader reads the notes on runs: those in the store, and those that this Server recorded since.
type noteReader struct {
	source Source
	fresh  fresh
}

// on returns the notes on a run; partial reports whether there are older ones.
func (nr *noteReader) on(ctx context.Context, run store.Run) (notes []replay.Note, waiting map[string]bool, partial bool, _ error) {
	ctx, cancel := context.WithTimeout(ctx, searchFor)
	defer cancel()
	rows := 0
	var stored []replay.Note
	for row, err := range nr.source.Search(ctx, replay.NotesQuery(run, maxNotes)) {
		if cut := new(store.CutError); errors.As(err, &cut) && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			partial = true
			break
		}
		if err != nil {
			return nil, nil, false, err
		}
		rows++
		if n, ok := replay.ReadNote(run, row); ok {
			stored = append(stored, n)
		}
	}
	rest := nr.fresh.behind(run, stored)
	waiting = map[string]bool{}
	for _, n := range rest {
		waiting[n.ID] = true
	}
	return replay.Notes(append(stored, rest...)), waiting, partial || rows == maxNotes, nil
}

// notesHandler answers the notes on a run, and records them.
type notesHandler struct {
	runFinder
	reader   *noteReader
	recorder Notes // nil: none can be recorded
	markers  *markers
	prove    func(ctx context.Context, run store.Run, seq uint64) (proof.RecordProof, error) // nil: there are no proofs
}

func (h *notesHandler) list(w http.ResponseWriter, r *request) error {
	run, err := h.find(r)
	if err != nil {
		return err
	}
	notes, waiting, partial, err := h.reader.on(r.Context(), run)
	if err != nil {
		return err
	}
	var list struct {
		Notes   []RunNote `json:"notes"`
		Partial bool      `json:"partial"`
	}
	list.Notes, list.Partial = []RunNote{}, partial
	marker := &lateMarker{markers: h.markers}
	defer marker.Close()
	bindings := map[uint64]store.Row{}
	for _, n := range notes {
		row, asked := bindings[n.Seq]
		if !asked && n.Seq != 0 {
			if row, err = recordAt(r.Context(), h.source, run, n.Seq); err != nil && !errors.Is(err, store.ErrNoRecord) {
				return err
			}
			bindings[n.Seq] = row
		}
		shown := runNote(n, waiting[n.ID] || n.Withdrawn != nil && waiting[n.Withdrawn.ID], n.Binding(row, row.Seq == n.Seq))
		shown.Mark = n.Mark(func(row store.Row) store.Mark { return marker.Row(r.Context(), row) })
		list.Notes = append(list.Notes, shown)
	}
	return answer(w, list)
}

func runNote(n replay.Note, waiting bool, bound replay.Bound) RunNote {
	n.Remote = "" // the author's address is only for readers of the access log
	state := NoteStored
	if waiting {
		state = NoteRecorded
	}
	return RunNote{Note: n, State: state, Bound: bound}
}

func (h *notesHandler) create(w http.ResponseWriter, r *request) error {
	if h.recorder == nil {
		return errNotHere("notes")
	}
	run, err := h.find(r)
	if err != nil {
		return err
	}
	var q NoteRequest
	if err := r.body(&q); err != nil {
		return err
	}
	n := audit.Note{Who: r.who.Name, Via: r.who.Via, Role: string(r.who.Role), Tenant: run.Tenant, About: run.ID,
		Seq: q.Seq, Text: q.Text, Tags: q.Tags, Withdraws: q.Withdraws, Remote: remote(r.RemoteAddr)}
	bound := replay.BoundRun
	switch {
	case q.Withdraws != "":
		err = h.mayWithdraw(r, run, q)
	case q.Seq != 0:
		var row store.Row
		if row, err = recordAt(r.Context(), h.source, run, q.Seq); err == nil {
			leaf := row.Frame().Leaf()
			n.Leaf, bound = hex.EncodeToString(leaf[:]), replay.BoundSame
		}
	}
	if err != nil {
		return err
	}
	if err := n.Check(); err != nil {
		return bad("a note has a text of at most 4,096 bytes, or tags of a-z, 0-9, '.', '_' and '-'", "%v", err)
	}
	noted, err := h.recorder.Note(r.Context(), n)
	if err != nil {
		return errNotNoted(err)
	}
	h.reader.fresh.add(run, noted)
	return answerWith(w, http.StatusCreated, runNote(replay.Note{Noted: noted}, true, bound))
}

// mayWithdraw: authors withdraw their own notes, administrators any.
func (h *notesHandler) mayWithdraw(r *request, run store.Run, q NoteRequest) error {
	if q.Seq != 0 || len(q.Tags) > 0 {
		return bad("give withdraws, and a text with the reason", "a withdrawal has no record and no tags")
	}
	notes, _, _, err := h.reader.on(r.Context(), run)
	if err != nil {
		return err
	}
	n, err := replay.Withdrawable(notes, q.Withdraws)
	switch {
	case errors.Is(err, replay.ErrNoNote):
		return access.NewProblem(http.StatusNotFound, "no-note", "the run has no such note", "GET its notes: they have their ids")
	case err != nil:
		return access.NewProblem(http.StatusConflict, "withdrawn", "the note was withdrawn before", "GET its notes, which name the user")
	case (n.Who != r.who.Name || n.Via != r.who.Via) && !r.who.Role.May(access.Admin):
		return access.NewProblem(http.StatusForbidden, "not-yours", "the note is someone else's", "its author or an admin can withdraw it; you can write one that answers it")
	}
	return nil
}

// errNotNoted is the answer for a note that could not be recorded.
func errNotNoted(err error) error {
	var p *access.Problem
	if errors.As(err, &p) {
		return err
	}
	return errors.Join(later(http.StatusServiceUnavailable, "not-recorded", "the note could not be recorded", "try again; custody doctor on the host shows the cause", 5*time.Second), err)
}

// remote is the address of a client, "" if it has none.
func remote(addr string) string {
	if p, err := netip.ParseAddrPort(addr); err == nil {
		return p.Addr().Unmap().String()
	}
	return ""
}

// proof answers with the proof of a note's record. It discloses no other record of its log.
func (h *notesHandler) proof(w http.ResponseWriter, r *request) error {
	if h.prove == nil {
		return errNotHere("proofs of records")
	}
	run, err := h.find(r)
	if err != nil {
		return err
	}
	notes, waiting, _, err := h.reader.on(r.Context(), run)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	known := slices.ContainsFunc(notes, func(n replay.Note) bool { return n.ID == id || n.Withdrawn != nil && n.Withdrawn.ID == id })
	switch {
	case !known:
		return access.NewProblem(http.StatusNotFound, "no-note", "the run has no such note", "GET its notes: they have their ids")
	case waiting[id]:
		return later(http.StatusConflict, "not-sealed", "the note's segment is not signed yet", "try again in a moment", time.Second)
	}
	name, seq, _ := audit.ParseNoteID(id)
	log, err := h.source.Run(r.Context(), "", name)
	if err != nil {
		return err
	}
	p, err := h.prove(r.Context(), log, seq)
	if err != nil {
		return err
	}
	return answerProof(w, p)
}
