package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/redact"
)

// writing is a run that is written. What it prints, a line each:
//
//	run ID             once, first
//	acked SEQ N        event N has that seq and is durable
//	dropped N          the log could not take event N just now, in degrade mode
//	stalled, resumed   the record cannot be written; it can again
//	closed             the record is closed
//	stored             and the store has all of it
type writing struct {
	mode  string
	rate  float64
	count int
	batch int
	long  time.Duration
	home  string

	out *bufio.Writer
}

func writeCommand(f *flag.FlagSet) func(context.Context) error {
	w := &writing{out: bufio.NewWriter(os.Stdout)}
	f.StringVar(&w.mode, "mode", "strict", "strict or degrade")
	f.Float64Var(&w.rate, "rate", 0, "events a second; 0: as many as go")
	f.IntVar(&w.count, "count", 0, "events; 0: until -for is over or a signal comes")
	f.IntVar(&w.batch, "batch", 16, "events that are posted before the last of them is waited for")
	f.DurationVar(&w.long, "for", 0, "how long")
	f.StringVar(&w.home, "home", "", "instead of $CUSTODY_HOME")
	return w.run
}

// openHome opens the directory given, or the usual one.
func openHome(dir string) (*host.Host, error) {
	usual, err := host.Dir()
	if err != nil {
		return nil, err
	}
	return host.Open(cmp.Or(dir, usual))
}

func (w *writing) run(ctx context.Context) error {
	h, err := openHome(w.home)
	if err != nil {
		return err
	}
	tag, err := h.TagKey()
	if err != nil {
		return err
	}
	began := time.Now()
	r, err := h.Begin(ctx, host.RunOptions{
		ID: host.NewRunID(began), Mode: wal.Mode(w.mode), Redactor: redact.New(tag),
		Facts:    statement.Facts{Tier: "none", Tenant: h.Config().Tenant},
		OnStall:  func(error) { fmt.Fprintln(os.Stderr, "stalled") },
		OnResume: func() { fmt.Fprintln(os.Stderr, "resumed") },
	})
	if err != nil {
		return err
	}
	w.say("run %s", r.ID)
	r.Ship(context.WithoutCancel(ctx)) // until Close
	work := w.work(ctx, r, h.Config().Tenant, began)
	// What has begun is ended properly even when the time is up.
	ctx = context.WithoutCancel(ctx)
	_, err = r.Record(ctx, ended(time.Now(), time.Since(began)))
	record, store := r.Close(ctx, wal.Sealed)
	if record == nil {
		w.say("closed")
	}
	if record == nil && store == nil {
		w.say("stored")
	}
	return errors.Join(work, err, record, store)
}

// work records events until there were enough of them.
func (w *writing) work(ctx context.Context, r *host.Run, tenant string, began time.Time) error {
	if w.long > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.long)
		defer cancel()
	}
	if _, err := r.Record(context.WithoutCancel(ctx), started(tenant, began)); err != nil {
		return err
	}
	for n := 0; w.count == 0 || n < w.count; n += w.batch {
		if err := w.pace(ctx, n, began); err != nil {
			return nil // the time is up
		}
		if err := w.group(ctx, r, n); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
	return nil
}

// group records the events from n on, and says of each what became of it. They
// are acknowledged together: the log is durable in the order of its seqs.
func (w *writing) group(ctx context.Context, r *host.Run, n int) error {
	last := n + w.batch
	if w.count > 0 {
		last = min(last, w.count)
	}
	seqs := make(map[int]uint64, w.batch)
	var err error
	for i := n; i < last; i++ {
		// The embedded Recorder, unlike the Run, tells a drop from an acknowledgement.
		record := r.Recorder.Post
		if i == last-1 {
			record = r.Recorder.Record
		}
		seqs[i], err = record(ctx, made(i, time.Now()))
		if errors.Is(err, wal.ErrDropped) {
			w.say("dropped %d", i)
			delete(seqs, i)
		} else if err != nil && !errors.Is(err, wal.ErrStalled) {
			return err
		}
	}
	if err != nil {
		return nil // stalled: what has its seq may become durable, but no one has said so
	}
	for i := n; i < last; i++ {
		if seq, ok := seqs[i]; ok {
			fmt.Fprintf(w.out, "acked %d %d\n", seq, i)
		}
	}
	return w.out.Flush()
}

// pace waits until event n is due.
func (w *writing) pace(ctx context.Context, n int, began time.Time) error {
	if w.rate <= 0 {
		return ctx.Err()
	}
	due := time.Until(began.Add(time.Duration(float64(n) / w.rate * float64(time.Second))))
	select {
	case <-time.After(max(0, due)):
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *writing) say(format string, args ...any) {
	fmt.Fprintf(w.out, format+"\n", args...)
	w.out.Flush()
}

func tidyCommand(f *flag.FlagSet) func(context.Context) error {
	dir := f.String("home", "", "instead of $CUSTODY_HOME")
	return func(ctx context.Context) error {
		h, err := openHome(*dir)
		if err != nil {
			return err
		}
		say := func(line string) { fmt.Println(line) }
		return errors.Join(h.Tidy(ctx, say), h.Shipping().Ship(ctx, false, say))
	}
}
