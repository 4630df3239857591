// Package show opens what a timeline is shown from: a run of a host, or a bundle's file, with the marks of what is not as a
// host signed it.
package show

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/replay/serve"
	"github.com/custody-project/custody/store"
)

// Source is a run that is shown, with the reader of its records. It must be closed.
type Source struct {
	host.Reader
	Run     store.Run
	Options replay.Options
	Verdict replay.Verdict

	doubtful bool
	close    []func() error
}

// Doubtful reports whether the source is a bundle that was not verified.
func (s *Source) Doubtful() bool { return s.doubtful }

// Close implements host.Reader.
func (s *Source) Close() error {
	var errs []error
	for _, f := range slices.Backward(s.close) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// Bundle is the run of an opened bundle. layout has the width and the colours.
func Bundle(b *serve.Bundle, layout replay.Options) *Source {
	text := Describe(b)
	layout.Withheld, layout.End = b.Withheld, b.Last
	if b.Doubt != nil {
		layout.Mark = func(store.Row) store.Mark {
			return store.Mark{State: store.Unchecked, Text: "the bundle was not verified"}
		}
		layout.MarkRun = func(store.Run) store.Mark { return store.Mark{State: store.Unchecked, Text: text} }
	}
	return &Source{Reader: b, Run: b.Shown, Options: layout, Verdict: replay.Verdict{Good: b.Doubt == nil, Text: text}, doubtful: b.Doubt != nil, close: []func() error{b.Close}}
}

// Run is a run that st, a reader of the host, has. With ahead the source also has the records of a live run whose segments are
// not sealed yet. The source closes st; after an error st is closed.
func Run(ctx context.Context, h *host.Host, st host.Reader, run store.Run, ahead bool, layout replay.Options) (*Source, error) {
	s := &Source{Reader: st, Run: run, close: []func() error{st.Close}}
	s.Verdict.Text = "shown from the store of the host; custody verify " + run.ID + " checks its record"
	var err error
	if ahead && run.End == nil {
		if s.Reader, err = h.Ahead(ctx, st, run); err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.close = append(s.close, s.Reader.Close)
	}
	if s.Options, err = Marking(ctx, h, s.Reader, layout); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Marking returns layout with marks for what r shows that is not as a host signed it.
func Marking(ctx context.Context, h *host.Host, r host.Reader, layout replay.Options) (replay.Options, error) {
	marks, err := h.Checks().Marks(r)
	if err != nil {
		return replay.Options{}, err
	}
	layout.Mark = func(row store.Row) store.Mark { return marks.Row(ctx, row) }
	layout.MarkRun = func(run store.Run) store.Mark { return marks.Run(ctx, run) }
	layout.End = func(run store.Run) uint64 { return marks.End(ctx, run) }
	return layout, nil
}

// Describe returns in a sentence whether a bundle was verified, and what it shows.
func Describe(b *serve.Bundle) string {
	if b.Doubt != nil {
		return fmt.Sprintf("NOT VERIFIED: %v; anyone could have made these records. --key FILE verifies the bundle", b.Doubt)
	}
	text := "verified with the key " + b.Report.KeyName
	if s := b.Report.Selected; s != nil {
		text += fmt.Sprintf("; it shows %d of %d records (%s), chosen by %s", b.Report.Shown(), b.Report.Records, s.What, s.By)
	}
	return text
}
