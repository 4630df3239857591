package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/store"
	"github.com/custody-project/custody/home"
	"github.com/custody-project/custody/replay"
)

type runsCmd struct {
	JSON   bool   `name:"json" help:"One JSON object a run."`
	Limit  int    `short:"n" help:"Show this many at the most." default:"0"`
	Status string `enum:",running,sealed,interrupted" default:"" help:"Only runs with this status."`
	Access bool   `help:"The logs of who looked at runs through custody serve, instead."`
}

func (c runsCmd) Run(a *app) error {
	h, st, err := a.openReader()
	if err != nil {
		return err
	}
	defer st.Close()
	opt, err := a.marking(h, st)
	if err != nil {
		return err
	}
	class := store.Sandboxes
	if c.Access {
		class = store.Accesses
	}
	runs, err := st.Runs(a.ctx, store.Filter{Class: class, Limit: c.Limit, Status: store.Status(c.Status)})
	if err != nil {
		return err
	}
	if c.JSON {
		return replay.RunsJSON(a.stdout, runs, opt)
	}
	if len(runs) == 0 {
		a.say("there are no runs yet: custody run -- CMD makes the first")
		return nil
	}
	return replay.Runs(a.stdout, runs, time.Now(), opt)
}

// openReader opens what runs are shown from, after it was brought up to date.
func (a *app) openReader() (*home.Home, home.Reader, error) {
	h, err := a.open()
	if err != nil {
		return nil, nil, err
	}
	r, err := h.Reader(a.ctx)
	return h, r, err
}

type rebuildCmd struct{}

func (rebuildCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	n, err := h.Rebuild(a.ctx)
	if err != nil {
		return err
	}
	a.say(fmt.Sprintf("the store was made anew from %d segments; the old one is custody.db.damaged", n))
	return h.Tidy(a.ctx, a.say)
}

type timelineCmd struct {
	Name     string   `arg:"" name:"run" help:"The run, a beginning of its name, or last." default:"last" optional:""`
	Kind     []string `short:"k" help:"Only records of these kinds." placeholder:"KIND,..."`
	At       string   `placeholder:"TIME" help:"The state at an instant: a date and time, HH:MM[:SS] of the run's day, or +1.5s from its start."`
	Follow   bool     `short:"f" help:"Go on while the run goes on."`
	JSON     bool     `name:"json" help:"The records' exact bytes, one a line; a marked one is an object with its mark."`
	Notes    bool     `name:"notes" help:"With --json: the records of the notes on the run too, behind its own."`
	Relative bool     `short:"r" help:"Times since the run's start."`
}

func (c timelineCmd) Run(a *app) error {
	kinds, err := kindsOf(c.Kind)
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
	if c.Follow && run.End == nil {
		if st, err = h.Ahead(a.ctx, st, run); err != nil {
			return err
		}
		defer st.Close()
	}
	opt, err := a.marking(h, st)
	if err != nil {
		return err
	}
	opt.Relative, opt.Kinds = c.Relative, kinds
	rows := st.Records(a.ctx, store.Query{Tenant: run.Tenant, Run: run.ID})
	switch {
	case c.At != "":
		return a.stateAt(run, rows, c, opt)
	case c.Follow && c.JSON:
		return replay.FollowJSON(a.ctx, a.stdout, st, run.ID, opt)
	case c.Follow:
		return replay.Follow(a.ctx, a.stdout, st, run, opt)
	case c.JSON:
		if err := replay.NDJSON(a.stdout, rows, opt); err != nil || !c.Notes {
			return err
		}
		opt.Kinds = nil
		return replay.NDJSON(a.stdout, func(yield func(store.Row, error) bool) {
			for row, err := range st.Search(a.ctx, replay.NotesQuery(run, maxNotes)) {
				if _, ok := replay.ReadNote(run, row); (ok || err != nil) && !yield(row, err) {
					return
				}
			}
		}, opt)
	}
	all, err := a.notesOn(st, run)
	if err != nil {
		return err
	}
	opt.Notes = replay.Notes(all)
	return replay.Timeline(a.stdout, run, rows, opt)
}

// tailLines is how much of the output a state shows.
const tailLines = 10

func (a *app) stateAt(run store.Run, rows replay.Rows, c timelineCmd, opt replay.Options) error {
	at, err := replay.ParseInstant(c.At, run, time.Now())
	if err != nil {
		return err
	}
	state, err := replay.MarkedStateAt(run, rows, at, tailLines, opt)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(a.stdout).Encode(state)
	}
	return state.Write(a.stdout, run.Began(), opt)
}

func kindsOf(names []string) ([]audit.Kind, error) {
	var kinds []audit.Kind
	for _, name := range names {
		if !audit.Kind(name).Known() {
			known := make([]string, len(audit.Kinds()))
			for i, k := range audit.Kinds() {
				known[i] = string(k)
			}
			return nil, fmt.Errorf("%q is not a kind of record: there are %s", name, strings.Join(known, ", "))
		}
		kinds = append(kinds, audit.Kind(name))
	}
	return kinds, nil
}

// marking is layout, and marks what r shows where it is not what was signed.
func (a *app) marking(h *home.Home, r home.Reader) (replay.Options, error) {
	marks, err := h.Marks(r)
	if err != nil {
		return replay.Options{}, err
	}
	opt := a.layout()
	opt.Mark = func(row store.Row) store.Mark { return marks.Row(a.ctx, row) }
	opt.MarkRun = func(run store.Run) store.Mark { return marks.Run(a.ctx, run) }
	opt.End = func(run store.Run) uint64 { return marks.End(a.ctx, run) }
	return opt, nil
}

// layout fits tables to where they go: width and colour only for a terminal.
func (a *app) layout() replay.Options {
	f, ok := a.stdout.(*output)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return replay.Options{}
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		width = 0
	}
	return replay.Options{Width: width, Color: os.Getenv("NO_COLOR") == ""}
}
