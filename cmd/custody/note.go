package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os/user"
	"strconv"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/redact/pattern"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
)

type noteCmd struct {
	Name     string   `arg:"" name:"run" predictor:"run" help:"The run, a beginning of its name, or last."`
	Text     string   `arg:"" optional:"" help:"What to note; it can be left out where there is a tag."`
	Seq      uint64   `name:"seq" placeholder:"SEQ" help:"The record that the note is about (default: the whole run)."`
	At       string   `placeholder:"TIME" help:"The last record at an instant: a date and time, HH:MM[:SS] of the run's day, or +1.5s from its start."`
	Tag      []string `short:"t" placeholder:"TAG" help:"A tag, such as case-7. It can be given up to 8 times."`
	Zone     string   `placeholder:"ZONE" help:"The zone of --at, if it names none: Europe/Berlin, +01:00 or local (default: UTC)."`
	Withdraw string   `placeholder:"NOTE" help:"Withdraw this note, as custody notes names it. Both stay in the record; the text says why."`
}

// viaCLI is how a note has come that was written on the command line.
const viaCLI = "cli"

func (c noteCmd) Run(a *app) error {
	if c.Seq != 0 && c.At != "" {
		return usageError{errors.New("give --seq or --at, not both")}
	}
	h, st, err := a.openReader()
	if err != nil {
		return err
	}
	defer st.Close()
	run, err := st.Run(a.ctx, "", c.Name)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	if run.Class() != store.Sandboxes {
		return fmt.Errorf("%s is an access log, which takes no notes", run.ID)
	}
	n := audit.Note{Who: callerName(), Via: viaCLI, Tenant: run.Tenant, About: run.ID, Text: audit.Text(c.Text), Tags: c.Tag, Withdraws: c.Withdraw}
	if err := c.place(a, st, run, &n); err != nil {
		return err
	}
	id, err := a.note(h, n)
	if err != nil {
		return err
	}
	fmt.Fprintln(a.stdout, id)
	return nil
}

// place finds the record that the note is about, or the note that it withdraws.
func (c noteCmd) place(a *app, st host.Reader, run store.Run, n *audit.Note) error {
	if c.Withdraw != "" {
		if c.Seq != 0 || c.At != "" || len(c.Tag) > 0 {
			return usageError{errors.New("--withdraw goes with a text, and with nothing else")}
		}
		notes, err := a.notesOn(st, run)
		if err == nil {
			_, err = replay.Withdrawable(replay.Notes(notes), c.Withdraw)
		}
		return err
	}
	q := store.Query{Tenant: run.Tenant, Run: run.ID}
	switch {
	case c.Seq != 0:
		q.AfterSeq, q.Limit = c.Seq-1, 1
	case c.At != "":
		at, err := replay.ParseInstant(replay.WithZone(c.At, c.Zone), run, time.Now())
		if err != nil {
			return err
		}
		q.To = at.Add(1)
	default:
		return nil
	}
	for row, err := range st.Records(a.ctx, q) {
		if err != nil {
			return err
		}
		leaf := row.Frame().Leaf()
		n.Seq, n.Leaf = row.Seq, hex.EncodeToString(leaf[:])
	}
	if n.Seq == 0 || c.Seq != 0 && n.Seq != c.Seq {
		return fmt.Errorf("%s has no such record: %w", run.ID, store.ErrNoRecord)
	}
	return nil
}

// note records n in an access log of its own, which is sealed and carried to the store before it returns.
func (a *app) note(h *host.Host, n audit.Note) (string, error) {
	if err := n.Check(); err != nil {
		return "", err
	}
	tag, err := h.TagKey()
	if err != nil {
		return "", err
	}
	redactor, err := pattern.NewRedactor(tag)
	if err != nil {
		return "", err
	}
	log := h.AccessLog(redactor, version())
	noted, err := log.Note(a.ctx, n)
	return noted.ID, errors.Join(err, log.Close())
}

// callerName names the user of this host who acts: of root, the one who called sudo.
func callerName() string {
	uid := strconv.Itoa(host.Caller())
	if u, err := user.LookupId(uid); err == nil {
		return u.Username
	}
	return "uid " + uid
}

type notesCmd struct {
	Name string `arg:"" name:"run" predictor:"run" help:"The run, a beginning of its name, or last." default:"last" optional:""`
	JSON bool   `name:"json" help:"One JSON object a note."`
	zoneFlag
}

// maxNotes bounds how many notes on one run are read.
const maxNotes = 10_000

func (c notesCmd) Run(a *app) error {
	zone, err := c.location()
	if err != nil {
		return err
	}
	h, st, err := a.openReader()
	if err != nil {
		return err
	}
	defer st.Close()
	run, err := st.Run(a.ctx, "", c.Name)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	all, err := a.notesOn(st, run)
	if err != nil {
		return err
	}
	at := func(seq uint64) (store.Row, bool, error) {
		for row, err := range st.Records(a.ctx, store.Query{Tenant: run.Tenant, Run: run.ID, AfterSeq: seq - 1, Limit: 1}) {
			return row, row.Seq == seq, err
		}
		return store.Row{}, false, nil
	}
	notes := replay.Notes(all)
	opt, err := a.marking(h, st)
	if err != nil {
		return err
	}
	if c.JSON {
		return c.lines(a, notes, at, opt)
	}
	if len(notes) == 0 {
		a.Say(run.ID + " has no notes")
	}
	opt.Zone = zone
	return replay.NoteList(a.stdout, notes, at, opt)
}

func (c notesCmd) lines(a *app, notes []replay.Note, at func(uint64) (store.Row, bool, error), opt replay.Options) error {
	out := json.NewEncoder(a.stdout)
	for _, n := range notes {
		row, there, err := at(max(n.Seq, 1))
		if err != nil {
			return err
		}
		if err := out.Encode(struct {
			replay.Note
			Bound replay.Bound `json:"bound"`
			Mark  *store.Mark  `json:"verification,omitempty"`
		}{n, n.Binding(row, there), n.Mark(opt.Mark)}); err != nil {
			return err
		}
	}
	return nil
}

// notesOn reads the notes on a run, and their withdrawals.
func (a *app) notesOn(st host.Reader, run store.Run) ([]replay.Note, error) {
	all, err := replay.ReadNotes(run, st.Search(a.ctx, replay.NotesQuery(run, maxNotes)))
	if err == nil && len(all) == maxNotes {
		a.Say(fmt.Sprintf("the run has more notes than %d: the oldest are left out", maxNotes))
	}
	return all, err
}
