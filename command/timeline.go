package command

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/replay/notebook"
	"github.com/custody-project/custody/replay/show"
	"github.com/custody-project/custody/store"
)

// Timeline shows what a run did.
type Timeline struct {
	Name     string   // the run, a prefix of its ID, or last
	Key      []string `json:",omitempty"` // of a bundle
	Kind     []string `json:",omitempty"`
	At       string   `json:",omitempty"`
	From     string   `json:",omitempty"`
	Until    string   `json:",omitempty"`
	Follow   bool     `json:",omitempty"`
	JSON     bool     `json:",omitempty"`
	HTML     bool     `json:",omitempty"`
	Notes    bool     `json:",omitempty"`
	Relative bool     `json:",omitempty"`
	ZoneFlag
}

// Path implements Command.
func (Timeline) Path() string { return "timeline" }

func (c Timeline) access() access {
	a := access{action: "view", about: c.Name, query: c}
	if c.Follow {
		a.action = "follow"
	}
	return a
}

// Check returns an error in the flags.
func (c Timeline) Check() error {
	if _, err := ParseKinds(c.Kind); err != nil {
		return err
	}
	if _, err := c.Location(); err != nil {
		return err
	}
	if c.At != "" && (c.From != "" || c.Until != "" || c.Follow) {
		return Usage(errors.New("--at is one instant: give it without --from, --until and --follow"))
	}
	if c.HTML && (c.JSON || c.At != "" || c.Follow) {
		return Usage(errors.New("--html is the whole timeline as a page: give it without --json, --at and --follow"))
	}
	return nil
}

// Execute implements Command.
func (c Timeline) Execute(ctx context.Context, e *Env) error {
	if err := c.Check(); err != nil {
		return err
	}
	if len(c.Key) > 0 {
		return Usage(errors.New("--key is for the file of a bundle; custody verify RUN --key checks a run"))
	}
	h, st, err := e.Reader(ctx)
	if err != nil {
		return err
	}
	run, err := st.Run(ctx, "", c.Name)
	if err != nil {
		return errors.Join(noRun(c.Name, err), st.Close())
	}
	src, err := show.Run(ctx, h, st, run, c.Follow, e.Layout)
	if err != nil {
		return err
	}
	return c.Show(ctx, e, src)
}

// Show shows a run or a bundle, and closes it.
func (c Timeline) Show(ctx context.Context, e *Env, src *show.Source) error {
	defer src.Close()
	kinds, err := ParseKinds(c.Kind)
	if err != nil {
		return err
	}
	zone, err := c.Location()
	if err != nil {
		return err
	}
	st, run, opt := src.Reader, src.Run, src.Options
	opt.Relative, opt.Kinds, opt.Zone = c.Relative, kinds, zone
	if opt.From, opt.Until, err = replay.ParseRunSpan(c.In(c.From), c.In(c.Until), run, time.Now()); err != nil {
		return Usage(err)
	}
	rows := st.Records(ctx, store.Query{Tenant: run.Tenant, Run: run.ID})
	switch {
	case c.At != "":
		return c.stateAt(e, run, rows, opt)
	case c.Follow && c.JSON:
		return replay.FollowJSON(ctx, e.Stdout, st, run.ID, opt)
	case c.Follow:
		return replay.Follow(ctx, e.Stdout, st, run, opt)
	case c.JSON:
		return c.json(ctx, e, src, rows, opt)
	}
	all, err := e.NotesOn(ctx, st, run)
	if err != nil {
		return err
	}
	opt.Notes = replay.Notes(all)
	if c.HTML {
		return replay.HTML(e.Stdout, run, rows, opt, src.Verdict)
	}
	return replay.Timeline(e.Stdout, run, rows, opt)
}

// json writes the records, and those of notes.
func (c Timeline) json(ctx context.Context, e *Env, src *show.Source, rows replay.Rows, opt replay.Options) error {
	if src.Doubtful() {
		e.Say(src.Verdict.Text)
	}
	if err := replay.NDJSON(e.Stdout, rows, opt); err != nil || !c.Notes {
		return err
	}
	opt.Kinds = nil
	return replay.NDJSON(e.Stdout, func(yield func(store.Row, error) bool) {
		for row, err := range src.Search(ctx, replay.NotesQuery(src.Run, notebook.Max)) {
			if _, ok := replay.ReadNote(src.Run, row); (ok || err != nil) && !yield(row, err) {
				return
			}
		}
	}, opt)
}

// tailLines is the number of lines of output in a state.
const tailLines = 10

func (c Timeline) stateAt(e *Env, run store.Run, rows replay.Rows, opt replay.Options) error {
	now := time.Now()
	at, err := replay.ParseInstant(c.In(c.At), run, now)
	if err != nil {
		return Usage(err)
	}
	if text := replay.OutsideOf(at, run, now, opt.Zone); text != "" {
		e.Say(text)
	}
	state, err := replay.MarkedStateAt(run, rows, at, tailLines, opt)
	if err != nil {
		return err
	}
	opt = opt.Second(at)
	if c.JSON {
		return state.WriteJSON(e.Stdout, rows, opt)
	}
	if err := state.Write(e.Stdout, run.Began(), opt); err != nil {
		return err
	}
	return replay.Records(e.Stdout, run, rows, opt)
}

// runID matches run ids and their prefixes, and no file names.
var runID = regexp.MustCompile(`^[ar]-[0-9a-z]+$`)

// noRun adds to the error of a missing run that there is no such file either.
func noRun(name string, err error) error {
	if errors.Is(err, store.ErrNotFound) && name != store.Last && !runID.MatchString(name) {
		return fmt.Errorf("%s: %w; there is no such file either", name, err)
	}
	return fmt.Errorf("%s: %w", name, err)
}
