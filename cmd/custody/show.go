package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/replay/notebook"
	"github.com/custody-project/custody/replay/show"
	"github.com/custody-project/custody/store"
)

type runsCmd struct {
	JSON    bool   `name:"json" help:"One JSON object per run."`
	Limit   int    `short:"n" help:"Show at most this many." default:"0"`
	Status  string `enum:",running,sealed,interrupted" default:"" help:"Only runs with this status."`
	From    string `placeholder:"TIME" help:"Only runs that began at this time or later: 2026-11-03, 2026-11-03 14:32 or RFC 3339."`
	Until   string `placeholder:"TIME" help:"Only runs that began before this time; a date includes that day."`
	Project string `placeholder:"NAME" help:"Only runs of this project."`
	Tenant  string `placeholder:"NAME" help:"Only runs of this tenant; (none) are those without one."`
	Access  bool   `help:"List the access logs of custody serve instead."`
	Deleted bool   `help:"List the runs that retention deleted, from this host's signed statements, instead."`
	zoneFlag
}

func (c runsCmd) Run(a *app) error {
	filter, zone, err := c.filter()
	if err != nil {
		return err
	}
	h, st, err := a.openReader()
	if err != nil {
		return err
	}
	defer st.Close()
	if c.Deleted {
		return c.deleted(a, h)
	}
	opt, err := a.marking(h, st)
	if err != nil {
		return err
	}
	opt.Zone = zone
	runs, err := st.Runs(a.ctx, filter)
	if err != nil {
		return err
	}
	if c.JSON {
		return replay.RunsJSON(a.stdout, runs, opt)
	}
	if len(runs) == 0 && filter == (store.Filter{Class: filter.Class, Limit: filter.Limit}) {
		a.Say("there are no runs yet: custody run -- CMD makes the first")
		return nil
	}
	if len(runs) == 0 {
		a.Say("no run matches")
		return nil
	}
	return replay.Runs(a.stdout, runs, time.Now(), opt)
}

// filter returns the filter that the flags select.
func (c runsCmd) filter() (f store.Filter, zone *time.Location, err error) {
	f = store.Filter{Class: store.Sandboxes, Limit: c.Limit, Status: store.Status(c.Status), Project: c.Project, Tenant: c.Tenant}
	if c.Access {
		f.Class = store.Accesses
	}
	if zone, err = c.location(); err != nil {
		return f, nil, err
	}
	f.From, f.To, err = c.span(c.From, c.Until)
	return f, zone, err
}

// openReader opens the source of the runs to show, after updating it.
func (a *app) openReader() (*host.Host, host.Reader, error) {
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
	n, err := h.Shipping().Rebuild(a.ctx)
	if err != nil {
		return err
	}
	a.Say(fmt.Sprintf("the store was rebuilt from %d segments; the old one is custody.db.damaged", n))
	return h.Tidy(a.ctx, a.Say)
}

type timelineCmd struct {
	Name     string   `arg:"" name:"run|file" predictor:"run" help:"The run, a prefix of its id, or last; or the file of a bundle, - for standard input." default:"last" optional:""`
	Key      []string `placeholder:"KEY|FILE" help:"Of a bundle: show it only if it verifies with this public key (default: this host's keys)."`
	Kind     []string `short:"k" help:"Only records of these kinds." placeholder:"KIND,..."`
	At       string   `placeholder:"TIME" help:"The state at an instant, and the records of its second: a date and time, HH:MM[:SS] of the run's day, or +1.5s from its start."`
	From     string   `placeholder:"TIME" help:"Only records of this time or later, in the same forms."`
	Until    string   `placeholder:"TIME" help:"Only records until the end of this millisecond, or of this date."`
	Follow   bool     `short:"f" help:"Continue until the run ends."`
	JSON     bool     `name:"json" help:"The records' exact bytes, one per line; a marked one is an object with its mark."`
	HTML     bool     `name:"html" help:"One HTML page without scripts that needs no other file."`
	Notes    bool     `name:"notes" help:"With --json: also the records of notes on the run, after its own."`
	Relative bool     `short:"r" help:"Times since the run's start."`
	zoneFlag
}

func (c timelineCmd) Run(a *app) error {
	kinds, err := parseKinds(c.Kind)
	if err != nil {
		return err
	}
	zone, err := c.location()
	if err != nil {
		return err
	}
	if c.At != "" && (c.From != "" || c.Until != "" || c.Follow) {
		return usageError{errors.New("--at is one instant: give it without --from, --until and --follow")}
	}
	if c.HTML && (c.JSON || c.At != "" || c.Follow) {
		return usageError{errors.New("--html is the whole timeline as a page: give it without --json, --at and --follow")}
	}
	src, err := c.open(a)
	if err != nil {
		return err
	}
	defer src.Close()
	st, run, opt := src.Reader, src.Run, src.Options
	opt.Relative, opt.Kinds, opt.Zone = c.Relative, kinds, zone
	if opt.From, opt.Until, err = replay.ParseRunSpan(c.in(c.From), c.in(c.Until), run, time.Now()); err != nil {
		return usageError{err}
	}
	rows := st.Records(a.ctx, store.Query{Tenant: run.Tenant, Run: run.ID})
	switch {
	case c.At != "":
		return a.stateAt(run, rows, c, opt)
	case c.Follow && c.JSON:
		return replay.FollowJSON(a.ctx, a.stdout, st, run.ID, opt)
	case c.Follow:
		return replay.Follow(a.ctx, a.stdout, st, run, opt)
	case c.JSON:
		if src.Doubtful() {
			a.Say(src.Verdict.Text)
		}
		if err := replay.NDJSON(a.stdout, rows, opt); err != nil || !c.Notes {
			return err
		}
		opt.Kinds = nil
		return replay.NDJSON(a.stdout, func(yield func(store.Row, error) bool) {
			for row, err := range st.Search(a.ctx, replay.NotesQuery(run, notebook.Max)) {
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
	if c.HTML {
		return replay.HTML(a.stdout, run, rows, opt, src.Verdict)
	}
	return replay.Timeline(a.stdout, run, rows, opt)
}

// open opens the run or the bundle that the command names.
func (c timelineCmd) open(a *app) (*show.Source, error) {
	if c.Name != store.Last {
		if file, err := isFile(c.Name); err != nil {
			return nil, err
		} else if file {
			b, err := a.openBundle(c.Name, c.Key)
			if err != nil {
				return nil, err
			}
			return show.Bundle(b, a.layout()), nil
		}
	}
	if len(c.Key) > 0 {
		return nil, usageError{errors.New("--key is for the file of a bundle; custody verify RUN --key checks a run")}
	}
	h, st, err := a.openReader()
	if err != nil {
		return nil, err
	}
	run, err := st.Run(a.ctx, "", c.Name)
	if err != nil {
		return nil, errors.Join(noRun(c.Name, err), st.Close())
	}
	return show.Run(a.ctx, h, st, run, c.Follow, a.layout())
}

// tailLines is the number of lines of output in a state.
const tailLines = 10

func (a *app) stateAt(run store.Run, rows replay.Rows, c timelineCmd, opt replay.Options) error {
	now := time.Now()
	at, err := replay.ParseInstant(c.in(c.At), run, now)
	if err != nil {
		return usageError{err}
	}
	if text := replay.OutsideOf(at, run, now, opt.Zone); text != "" {
		a.Say(text)
	}
	state, err := replay.MarkedStateAt(run, rows, at, tailLines, opt)
	if err != nil {
		return err
	}
	opt = opt.Second(at)
	if c.JSON {
		return state.WriteJSON(a.stdout, rows, opt)
	}
	if err := state.Write(a.stdout, run.Began(), opt); err != nil {
		return err
	}
	return replay.Records(a.stdout, run, rows, opt)
}

// marking is layout, and marks rows of r that differ from what was signed.
func (a *app) marking(h *host.Host, r host.Reader) (replay.Options, error) {
	return show.Marking(a.ctx, h, r, a.layout())
}

// layout formats tables for their destination: width and colour only for a terminal.
func (a *app) layout() replay.Options {
	width, ok := console.TerminalWidth(a.stdout)
	if !ok {
		return replay.Options{}
	}
	return replay.Options{Width: width, Color: os.Getenv("NO_COLOR") == ""}
}
