package replay

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/custody-project/custody/store"
)

// Source is a store that can be asked again and again.
type Source interface {
	Run(ctx context.Context, tenant, name string) (store.Run, error)
	Records(ctx context.Context, q store.Query) Rows
}

const (
	// pollEvery is how often Follow asks for more.
	pollEvery = 200 * time.Millisecond
	// batch bounds the rows that Follow holds in memory.
	batch = 4096
)

// Follow writes the run's timeline as it grows, until the run has ended and all
// of it is written, or ctx ends, which is no error. An exec whose process has
// not ended yet gets a line, and its exit another one later.
func Follow(ctx context.Context, w io.Writer, src Source, run store.Run, opt Options) error {
	p := newPrinter(w, run, opt)
	p.index.stepWidth, p.seqWidth = maxStep, followSeq // what is yet to come may be longer
	p.header()
	err := follow(ctx, src, run.ID, p.out.Flush, func(rows []store.Row) {
		for _, row := range rows {
			p.learn(row)
		}
		for _, row := range rows {
			p.row(row)
		}
	})
	if err != nil {
		return err
	}
	p.footer()
	return p.out.Flush()
}

// FollowJSON is Follow for the records' exact bytes.
func FollowJSON(ctx context.Context, w io.Writer, src Source, run string, opt Options) error {
	var failed error
	err := follow(ctx, src, run, func() error { return failed }, func(rows []store.Row) {
		failed = errors.Join(failed, NDJSON(w, func(yield func(store.Row, error) bool) {
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
			}
		}, opt))
	})
	return err
}

// follow hands over all rows of the run in batches, and calls flush after each.
func follow(ctx context.Context, src Source, id string, flush func() error, take func([]store.Row)) error {
	var after uint64
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		// Asked for before the rows: a run that had ended then has no later rows.
		run, err := src.Run(ctx, "", id)
		n := 0
		if err == nil {
			n, err = drain(ctx, src, run, &after, take)
		}
		if ctx.Err() != nil {
			return flush()
		}
		if err := errors.Join(err, flush()); err != nil {
			return err
		}
		if n == 0 && run.Status != store.Running {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// drain hands over the rows behind after that are there now and returns their number.
func drain(ctx context.Context, src Source, run store.Run, after *uint64, take func([]store.Row)) (int, error) {
	total := 0
	for {
		var rows []store.Row
		for row, err := range src.Records(ctx, store.Query{Tenant: run.Tenant, Run: run.ID, AfterSeq: *after, Limit: batch}) {
			if err != nil {
				return total, err
			}
			rows = append(rows, row)
		}
		if len(rows) == 0 {
			return total, nil
		}
		*after = rows[len(rows)-1].Seq
		total += len(rows)
		take(rows)
	}
}
