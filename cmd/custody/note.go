//go:build linux

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/command"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/replay/notebook"
	"github.com/custody-project/custody/store"
)

type noteCmd struct {
	Name     string   `arg:"" name:"run" predictor:"run" help:"The run, a prefix of its id, or last."`
	Text     string   `arg:"" optional:"" help:"The note's text; optional with a tag."`
	Seq      uint64   `name:"seq" placeholder:"SEQ" help:"The record that the note is about (default: the whole run)."`
	At       string   `placeholder:"TIME" help:"The last record at an instant: a date and time, HH:MM[:SS] of the run's day, or +1.5s from its start."`
	Tag      []string `short:"t" placeholder:"TAG" help:"A tag, such as case-7. It can be given up to 8 times."`
	Zone     string   `placeholder:"ZONE" help:"The zone of --at, if it names none: Europe/Berlin, +01:00 or local (default: UTC)."`
	Withdraw string   `placeholder:"NOTE" help:"Withdraw this note, as custody notes names it. Both stay in the record; the text is the reason."`
}

// viaCLI is the recorded origin of notes from the command line.
const viaCLI = "cli"

func (c noteCmd) Run(a *app) error {
	if c.Seq != 0 && c.At != "" {
		return command.Usage(errors.New("give --seq or --at, not both"))
	}
	h, st, err := a.env().Reader(a.ctx)
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
	n := audit.Note{Who: host.CallerName(), Via: viaCLI, Tenant: run.Tenant, About: run.ID, Text: audit.Text(c.Text), Tags: c.Tag, Withdraws: c.Withdraw}
	book := notebook.Notebook{Host: h, Reader: st, Version: version()}
	if err := c.place(a, book, run, &n); err != nil {
		return err
	}
	id, err := book.Write(a.ctx, n)
	if err != nil {
		return err
	}
	fmt.Fprintln(a.stdout, id)
	return nil
}

// place finds the record that the note is about, or the note to withdraw.
func (c noteCmd) place(a *app, book notebook.Notebook, run store.Run, n *audit.Note) error {
	switch {
	case c.Withdraw != "" && (c.Seq != 0 || c.At != "" || len(c.Tag) > 0):
		return command.Usage(errors.New("--withdraw needs a text, and allows no other flag"))
	case c.Withdraw != "":
		return book.Withdraw(a.ctx, run, c.Withdraw)
	case c.Seq != 0:
		return book.AboutSeq(a.ctx, run, n, c.Seq)
	case c.At != "":
		at, err := replay.ParseInstant(replay.WithZone(c.At, c.Zone), run, time.Now())
		if err != nil {
			return err
		}
		return book.AboutTime(a.ctx, run, n, at)
	}
	return nil
}

type notesCmd struct {
	Name string `arg:"" name:"run" predictor:"run" help:"The run, a prefix of its id, or last." default:"last" optional:""`
	JSON bool   `name:"json" help:"One JSON object per note."`
	command.ZoneFlag
}

func (c notesCmd) Run(a *app) error {
	zone, err := c.Location()
	if err != nil {
		return err
	}
	h, st, err := a.env().Reader(a.ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	run, err := st.Run(a.ctx, "", c.Name)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	all, err := a.env().NotesOn(a.ctx, st, run)
	if err != nil {
		return err
	}
	notes := replay.Notes(all)
	opt, err := a.env().Marking(a.ctx, h, st)
	if err != nil {
		return err
	}
	book := notebook.Notebook{Host: h, Reader: st}
	if c.JSON {
		return book.WriteJSON(a.ctx, a.stdout, run, notes, opt)
	}
	if len(notes) == 0 {
		a.Say(run.ID + " has no notes")
	}
	opt.Zone = zone
	at := func(seq uint64) (store.Row, bool, error) { return book.Record(a.ctx, run, seq) }
	return replay.NoteList(a.stdout, notes, at, opt)
}
