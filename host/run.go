package host

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/sealer"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/audit/wal/remote"
	"github.com/custody-project/custody/internal/flock"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/ship"
)

// RunOptions are the settings of a run's log.
type RunOptions struct {
	ID       string
	Mode     wal.Mode
	Facts    statement.Facts
	Redactor *redact.Redactor
	// Sighted, if set, is called with the places where secret values occur.
	Sighted audit.Sighted
	// Posted, if set, is called with each redacted event.
	Posted audit.Posted
	// OnStall is called when the record cannot be written, OnResume when it can be written again.
	OnStall  func(error)
	OnResume func()
	// OnCommit, if set, is called after each commit to the disk with the number of records and bytes and its
	// duration.
	OnCommit func(records, bytes int, took time.Duration)
	// KeyWait is the time that Close waits for a key that cannot sign, for example because Vault is unavailable; default 30 s.
	KeyWait time.Duration
}

// Run is a live run's record: recorder, log, and shipping to the store.
type Run struct {
	*audit.Recorder
	ID  string
	Dir string

	// Files gives a worker the files of the log.
	Files *remote.Server

	host    *Host
	options RunOptions
	key     hostkey.Key
	log     *wal.Log      // nil: a worker writes it
	last    atomic.Uint64 // the last durable seq, if a worker writes the log
	watch   *sealer.Watch // of log
	claim   claim

	toLog, toStore signal // set when a segment was sealed
	toTail         signal // set when records have become durable
	shipping       sync.WaitGroup
	stopShip       context.CancelFunc
	shipped        error        // set before shipping ends
	manifests      *manifestLog // of shipping, until Release; set before shipping ends
}

// Begin creates the log of a new run. While the disk is full, it calls OnStall
// and waits.
func (h *Host) Begin(ctx context.Context, o RunOptions) (*Run, error) {
	r, err := reserve(ctx, h, o)
	if err != nil {
		return nil, err
	}
	if err := r.open(); err != nil {
		r.claim.free()
		return nil, fmt.Errorf("begin run: %w", err)
	}
	return r, nil
}

// Reserve is like Begin for a run whose log a worker creates and writes: with Files, and with Signer. The run's methods that record are
// not used.
func Reserve(ctx context.Context, h *Host, o RunOptions) (*Run, error) {
	r, err := reserve(ctx, h, o)
	if err != nil {
		return nil, err
	}
	if err := WaitForRoom(ctx, o.OnStall, o.OnResume, r.writeFacts); err != nil {
		err = errors.Join(err, r.removeUnborn())
		r.claim.free()
		return nil, fmt.Errorf("begin run: %w", err)
	}
	return r, nil
}

// reserve excludes that the run's directory is removed.
func reserve(ctx context.Context, h *Host, o RunOptions) (*Run, error) {
	if !isRun(o.ID) {
		return nil, fmt.Errorf("begin run: %.80q is not a run ID", o.ID)
	}
	r := &Run{
		ID: o.ID, Dir: h.RunDir(o.ID), host: h, options: o, toLog: newSignal(), toStore: newSignal(), toTail: newSignal(),
		Files: remote.NewServer(h.RunDir(o.ID)),
	}
	err := WaitForRoom(ctx, o.OnStall, o.OnResume, func() (err error) {
		if err := os.MkdirAll(h.path("runs"), 0o700); err != nil {
			return err
		}
		if r.key, err = h.Keys().Signing(); err != nil {
			return err
		}
		return r.claim.take(ctx, h)
	})
	if err != nil {
		r.claim.free()
		return nil, fmt.Errorf("begin run: %w", err)
	}
	return r, nil
}

// claim keeps what a run needs until its end: its directory, and a log that takes its manifests.
type claim struct {
	held  *os.File // see ManifestLog.hold
	alive *os.File // a shared lock on the directory of runs, see removeUnborn
}

// take waits for the locks. After an error it can be called again.
func (c *claim) take(ctx context.Context, h *Host) (err error) {
	c.free()
	if c.held, err = h.ManifestLog().hold(ctx); err != nil {
		return err
	}
	if c.alive, err = os.Open(h.path("runs")); err != nil {
		return err
	}
	return flock.Lock(ctx, c.alive, unix.LOCK_SH)
}

// free gives the locks up.
func (c *claim) free() {
	letGo(c.alive)
	letGo(c.held)
}

// open creates the log.
func (r *Run) open() (err error) {
	o := r.options
	r.watch = &sealer.Watch{Sealer: r.host.Keys().sealer(r.key, o.ID, o.Facts), Wait: o.KeyWait}
	r.log, err = wal.Create(r.Dir, wal.Options{
		Run: o.ID, Mode: o.Mode, Sealer: r.watch, OnStall: o.OnStall, OnResume: o.OnResume, Room: r.Room,
		OnCommit: r.committed, OnSeal: r.Sealed,
	})
	if err != nil {
		return err
	}
	r.Recorder = audit.NewRecorder(r.log, o.Redactor)
	r.OnSighted(o.Sighted)
	r.OnPosted(o.Posted)
	return nil
}

// Committed is called when a worker has made records durable, the last of them with the seq durable.
func (r *Run) Committed(records, bytes int, took time.Duration, durable uint64) {
	r.last.Store(durable)
	r.committed(records, bytes, took)
}

// durable returns the seq of the last durable record.
func (r *Run) durable() uint64 {
	if r.log != nil {
		return r.log.Durable()
	}
	return r.last.Load()
}

// committed is called after each commit to the disk.
func (r *Run) committed(records, bytes int, took time.Duration) {
	r.toTail.set()
	if r.options.OnCommit != nil {
		r.options.OnCommit(records, bytes, took)
	}
}

// Sealed is called after each seal of a segment.
func (r *Run) Sealed() {
	r.toLog.set()
	r.toStore.set()
}

// Room returns an error while the host may not store more records.
func (r *Run) Room() error { return r.host.Shipping().room() }

// Signer returns the signer of the run's segments, for a worker that writes the log.
func (r *Run) Signer() *sealer.Signer { return sealer.NewSigner(r.key, r.ID, r.options.Facts) }

// Record returns when the event is durable. In degrade mode it also returns
// when the record cannot be written; the gap is declared later.
func (r *Run) Record(ctx context.Context, ev audit.Event) (uint64, error) {
	seq, err := r.Recorder.Record(ctx, ev)
	return seq, goOn(err)
}

// Post returns when the event is in the queue, or was dropped in degrade mode.
func (r *Run) Post(ctx context.Context, ev audit.Event) (uint64, error) {
	seq, err := r.Recorder.Post(ctx, ev)
	return seq, goOn(err)
}

// Sync returns when the record with that seq is durable, with the exception of Record.
func (r *Run) Sync(ctx context.Context, seq uint64) error { return goOn(r.log.Sync(ctx, seq)) }

// Flush returns when all events so far are durable, with the exception of Record.
func (r *Run) Flush(ctx context.Context) error { return goOn(r.log.Flush(ctx)) }

// goOn removes the errors that report dropped events in degrade mode.
func goOn(err error) error {
	if errors.Is(err, wal.ErrStalled) || errors.Is(err, wal.ErrDropped) {
		return nil
	}
	return err
}

// Recorded returns the seq of the first durable record for which find returns true.
func (r *Run) Recorded(find func(record []byte) bool) (seq uint64, ok bool) {
	for f, err := range r.host.RunLogs().Frames(r.ID) {
		if err != nil {
			break // the rest is being written
		}
		if find(f.Body) {
			return f.Seq, true
		}
	}
	return 0, false
}

// Ship starts to ship sealed segments to the store, in the background,
// until Close. The next process ships what is left.
func (r *Run) Ship(ctx context.Context) {
	ctx, r.stopShip = context.WithCancel(ctx)
	r.shipping.Go(func() { r.shipped = r.ship(ctx) })
}

// follower reads the run's segments as they are sealed.
func (r *Run) follower(sealed signal) follower {
	return follower{host: r.host, run: r.ID, sealed: sealed}
}

func (r *Run) ship(ctx context.Context) (err error) {
	keep := context.WithoutCancel(ctx)
	log, err := r.host.ManifestLog().open(keep)
	if err != nil {
		return err
	}
	r.manifests = log
	logged := r.host.Shipping().logManifests(keep, log, r.follower(r.toLog), false, ctx.Done())
	bounded, cancel := r.bounded(ctx)
	defer cancel()
	w, closeTransport, err := r.host.Shipping().openTransport(bounded)
	if err != nil {
		_, logErr := logged()
		return errors.Join(err, logErr)
	}
	defer func() { err = errors.Join(err, closeTransport()) }()
	switch w := w.(type) {
	case *ship.Remote:
		defer r.carryLeft(bounded, w, log)()
		defer r.publishLive(keep, w, ctx.Done())()
	case *ship.Transport:
		var stop context.CancelFunc
		bounded, stop = patient(ctx, w)
		defer stop()
	}
	return r.host.Shipping().forward(bounded, w, logged, r.follower(r.toStore), nil, ctx.Done())
}

// bounded returns a context that ends some time after ctx, if the store is elsewhere:
// the end of a run waits for the store, but not without limit.
func (r *Run) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	keep, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	if r.host.config.Transport == nil {
		return keep, func() { cancel(nil) }
	}
	late := func() { cancel(errors.New("NATS or the store did not answer in time")) }
	timer := time.AfterFunc(math.MaxInt64, late)
	stop := context.AfterFunc(ctx, func() { timer.Reset(r.host.Shipping().waitForStore()) })
	return keep, func() {
		stop()
		timer.Stop()
		cancel(nil)
	}
}

// publishLive publishes records on the transport as soon as they are durable. The returned function waits until the last
// one was published.
func (r *Run) publishLive(ctx context.Context, remote *ship.Remote, stop <-chan struct{}) (wait func()) {
	t := livePublisher{run: r, tail: remote.Tail(r.options.Facts.Tenant, r.ID), next: 1}
	var publishing sync.WaitGroup
	publishing.Go(func() { t.follow(ctx, stop) })
	return publishing.Wait
}

// carryLeft ships what earlier runs did not, while this run is live. The returned
// function stops it and waits for its end.
func (r *Run) carryLeft(ctx context.Context, w transport, log *manifestLog) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var carrying sync.WaitGroup
	carrying.Go(func() {
		left, err := r.host.Shipping().left(false)
		for _, run := range left {
			if ctx.Err() == nil && err == nil {
				err = r.host.Shipping().shipOne(ctx, w, log, run, false, r.host.warn)
			}
		}
		if err != nil && ctx.Err() == nil {
			r.host.warn("earlier runs are not in the store yet: " + err.Error())
		}
	})
	return func() {
		cancel()
		carrying.Wait()
	}
}

// Close is End and Release.
func (r *Run) Close(ctx context.Context, closing wal.Closing) (record, store error) {
	record, store = r.End(ctx, closing)
	return record, errors.Join(store, r.Release())
}

// Release closes the host's log of manifests, after End. All that End has added to it is durable before.
func (r *Run) Release() error {
	if r.manifests == nil {
		return nil
	}
	return r.manifests.close(context.Background())
}

// End closes the log with its closing manifest and waits until the store has everything, and a checkpoint covers it. If a worker writes the
// log, it must have ended. It returns an error of the store separately, because the record is then complete all the same. It waits for a key
// that cannot sign as long as RunOptions states; after that, the next process that can sign closes the log. The caller releases the Run.
func (r *Run) End(ctx context.Context, closing wal.Closing) (record, store error) {
	if r.log != nil {
		record = r.watch.Close(ctx, r.log, closing)
	}
	record = errors.Join(record, r.Files.Close(), r.removeUnborn())
	letGo(r.claim.alive)
	defer letGo(r.claim.held)
	if r.stopShip != nil {
		r.stopShip()
		r.shipping.Wait()
		store = r.shipped
	}
	return record, store
}

func isFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}
