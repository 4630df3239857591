package export

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// Options of an Exporter. Name, Dir, Source, Format and Sink are required.
type Options struct {
	Name   string // of the sink, for which the cursor is stored
	Dir    string // of the exporters' files; created if it does not exist
	Source Source
	Format Format
	Sink   Sink
	Filter Filter

	Batch      Batch         // for 0 the sink's default is used, else 500 events and 1 MiB
	Poll       time.Duration // interval at which the store is read when there is nothing new; 500 ms
	Retry      Retry         // 500 ms and one minute
	Timeout    time.Duration // of one Send; two minutes
	MaxRefused int           // refusals in a row, after which it halts instead of filling the dead letters; 1000
	DeadBytes  int64         // of one file of dead letters; 16 MiB
	DeadFiles  int           // 4
	Log        *slog.Logger  // nil: nothing is logged
}

func (o *Options) defaults() {
	var own Batch
	if b, ok := o.Sink.(Batcher); ok {
		own = b.Batch()
	}
	o.Batch.Items = first(o.Batch.Items, own.Items, defaultItems)
	o.Batch.Bytes = first(o.Batch.Bytes, own.Bytes, defaultBytes)
	o.Batch.Segments = o.Batch.Segments || own.Segments
	o.Poll = first(o.Poll, 500*time.Millisecond)
	o.Retry.First = first(o.Retry.First, 500*time.Millisecond)
	o.Retry.Max = first(o.Retry.Max, time.Minute)
	o.Timeout = first(o.Timeout, 2*time.Minute)
	o.MaxRefused = first(o.MaxRefused, 1000)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Log = o.Log.With("sink", o.Name)
}

// first returns the first that is above zero.
func first[T int | time.Duration](of ...T) T {
	for _, v := range of {
		if v > 0 {
			return v
		}
	}
	return 0
}

// Exporter exports a store's feed to one sink: at least once, each event always with the same id,
// those of a run in order. It keeps at most two batches and two pages of records
// in memory, however long the sink blocks, and is independent of other exporters.
//
//	         reads, formats               sends
//	store -----------------> batch ------------------> sink
//	                                  |
//	                                  '-- cursor, once the whole batch was accepted or buried
type Exporter struct {
	o      Options
	lock   *os.File
	dead   *Dead
	told   *tally
	cursor Cursor // of the sending goroutine; equal to the file
}

// Open locks the name and reads its cursor. The error is a *LockedError
// if another exporter has the lock. The caller closes the sink, after Close.
func Open(o Options) (*Exporter, error) {
	if !validName.MatchString(o.Name) {
		return nil, fmt.Errorf("%.80q: %w", o.Name, ErrName)
	}
	o.defaults()
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	dead, err := OpenDead(o.Dir, o.Name, o.DeadBytes, o.DeadFiles)
	if err != nil {
		return nil, err
	}
	l, err := lock(context.Background(), o.Dir, o.Name)
	if err != nil {
		return nil, fmt.Errorf("open exporter: %w", err)
	}
	x := &Exporter{o: o, lock: l, dead: dead, told: &tally{s: Stats{Name: o.Name}}}
	if err = x.goOn(); err == nil {
		err = x.countDead(0)
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("open exporter %s: %w", o.Name, err)
	}
	return x, nil
}

// goOn reads the cursor and statistics of the previous process.
func (x *Exporter) goOn() error {
	p, err := readProgress(x.o.Dir, x.o.Name)
	if err != nil {
		return err
	}
	before, _ := ReadStats(x.o.Dir, x.o.Name) // without them the time of the first failure is unknown
	x.cursor = p.Cursor
	x.told.change(func(s *Stats) {
		s.Sent, s.Dead, s.LastSuccess = p.Sent, p.Dead, p.Delivered
		s.LastError, s.LastErrorAt, s.FailingSince = before.LastError, before.LastErrorAt, before.FailingSince
	})
	return nil
}

// Close releases the lock. Follow and CatchUp must have returned.
func (x *Exporter) Close() error {
	x.told.change(func(s *Stats) { s.Running = false })
	return errors.Join(x.writeStatus(), x.lock.Close())
}

// Follow exports the existing and all new records, until ctx is done.
func (x *Exporter) Follow(ctx context.Context) error { return x.run(ctx, true) }

// CatchUp exports the existing records, and returns nil when all were accepted or buried.
func (x *Exporter) CatchUp(ctx context.Context) error { return x.run(ctx, false) }

// Stats is safe for concurrent use.
func (x *Exporter) Stats() Stats {
	s := x.told.read()
	s.At = time.Now()
	if w, ok := x.o.Sink.(Warner); ok {
		s.Warning = w.Warning()
	}
	return s
}

// Behind counts the records that the sink does not have yet. It is safe for concurrent use.
func (x *Exporter) Behind(ctx context.Context) (Behind, error) {
	c, err := ReadCursor(x.o.Dir, x.o.Name)
	if err != nil {
		return Behind{}, err
	}
	return Measure(ctx, x.o.Source, c, x.o.Filter)
}

// Dead returns the sink's dead letters.
func (x *Exporter) Dead() *Dead { return x.dead }

func (x *Exporter) run(ctx context.Context, follow bool) error {
	x.told.change(func(s *Stats) { s.Running = true })
	caller := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	batches := make(chan batch) // one being sent, one being built
	done := make(chan error, 1)
	go func() { // ends with ctx, or with the feed; waited for below
		defer close(batches)
		done <- newFeeder(x, batches).run(ctx, follow)
	}()
	err := x.sendAll(ctx, batches)
	cancel(err)
	for range batches { // unsent batches are read again later
	}
	err = errors.Join(err, <-done, x.writeStatus())
	if err == nil && !follow && caller.Err() != nil {
		err = context.Cause(caller) // the feed had ended, and its last batch was not sent
	}
	return err
}

// sendAll delivers batches in order, and advances the cursor after each.
func (x *Exporter) sendAll(ctx context.Context, batches <-chan batch) error {
	c := &courier{sink: x.o.Sink, timeout: x.o.Timeout, retry: x.o.Retry, maxRefused: x.o.MaxRefused, bury: x.bury, told: x.told}
	told := time.NewTicker(time.Second)
	defer told.Stop()
	statusDone := make(chan struct{})
	stop := make(chan struct{})
	go func() { // waited for below; the sender may block while other goroutines need the status
		defer close(statusDone)
		x.tellStatus(told.C, stop)
	}()
	defer func() { close(stop); <-statusDone }()
	for b := range batches {
		if err := x.sendOne(ctx, c, b); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
	return nil
}

func (x *Exporter) sendOne(ctx context.Context, c *courier, b batch) error {
	for _, l := range b.misfits {
		if err := x.buryLetter(ctx, l); err != nil {
			return err
		}
	}
	if err := c.deliver(ctx, b.items); err != nil {
		return err
	}
	if b.at == x.cursor {
		return nil
	}
	s := x.told.read()
	if err := writeProgress(x.o.Dir, x.o.Name, progress{Cursor: b.at, Sent: s.Sent, Dead: s.Dead, Delivered: s.LastSuccess}); err != nil {
		// The events were delivered, so continuing loses nothing: they are sent again if the process ends now.
		x.told.failed(fmt.Errorf("write cursor: %w", err))
		x.o.Log.Error("the cursor cannot be written: events will be sent again after a restart", "err", err)
		return nil
	}
	x.cursor = b.at
	return nil
}

// bury writes a dead letter. After an error the event is not given up.
func (x *Exporter) bury(ctx context.Context, i Item, reason string) error {
	return x.buryNow(ctx, letter(i, x.o.Format.Name(), reason, time.Now()))
}

// buryLetter writes a dead letter, and waits if the disk is full.
func (x *Exporter) buryLetter(ctx context.Context, l Letter) error {
	for {
		err := x.buryNow(ctx, l)
		if err == nil {
			return nil
		}
		x.told.failed(fmt.Errorf("write dead letter: %w", err))
		if err := sleep(ctx, x.o.Retry.First); err != nil {
			return err
		}
	}
}

func (x *Exporter) buryNow(ctx context.Context, l Letter) error {
	dropped, err := x.dead.add(ctx, l)
	if err != nil {
		return err
	}
	x.told.change(func(s *Stats) { s.Dead++ })
	x.o.Log.Warn("an event went to the dead letters", "id", l.ID, "reason", l.Reason)
	if dropped > 0 {
		x.o.Log.Error("the dead letters are full: the oldest were dropped", "count", dropped)
	}
	return x.countDead(dropped)
}

func (x *Exporter) countDead(dropped uint64) error {
	n, err := x.dead.Count()
	x.told.change(func(s *Stats) { s.DeadKept, s.DeadDropped = n, s.DeadDropped+dropped })
	return err
}

func (x *Exporter) tellStatus(tick <-chan time.Time, stop <-chan struct{}) {
	for {
		x.writeStatus() // a status that cannot be written stays, and its time shows that it is old
		select {
		case <-stop:
			return
		case <-tick:
		}
	}
}

func (x *Exporter) writeStatus() error {
	return writeFile(filepath.Join(x.o.Dir, x.o.Name+statusSuffix), x.Stats(), false)
}
