package host

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/ship"
	"github.com/custody-project/custody/store"
)

// transport brings segments to the store: within this process, or over NATS.
type transport interface {
	Publish(ctx context.Context, seg store.Segment) error
	Republish(ctx context.Context, seg store.Segment) error
	Drain(ctx context.Context) error
	Stored(ctx context.Context, tenant, run string, deep bool) ([]ship.Held, error)
	Close()
}

// openTransport opens the transport into the store that host.yaml names. The caller closes it.
func (s Shipping) openTransport(ctx context.Context) (w transport, close func() error, err error) {
	if t := s.host.config.Transport; t != nil {
		name, err := s.host.Keys().name()
		if err != nil {
			return nil, nil, err
		}
		r, err := ship.Dial(ctx, s.config(*t, name))
		if err != nil {
			return nil, nil, err
		}
		return r, func() error { r.Close(); return nil }, nil
	}
	st, err := s.host.Store(ctx)
	if err != nil {
		return nil, nil, err
	}
	t := ship.Start(ctx, st)
	return t, func() error { t.Close(); return st.Close() }, nil
}

// direct writes segments of ended runs to a store on this host. It does not wait for a store that
// fails, for example because its disk is full: the next command ships the rest.
type direct struct {
	*ship.Transport
	store   store.Store
	refused []error
}

// Publish implements transport.
func (d *direct) Publish(ctx context.Context, seg store.Segment) error {
	return d.taken(d.store.Ingest(ctx, seg))
}

// Republish implements transport.
func (d *direct) Republish(ctx context.Context, seg store.Segment) error {
	return d.taken(d.store.Repair(ctx, seg))
}

func (d *direct) taken(err error) error {
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrMalformed) {
		d.refused = append(d.refused, err)
		err = nil // the store can take the segments after it
	}
	return err
}

// Drain implements transport. Each run's refusals are reported once.
func (d *direct) Drain(context.Context) error {
	err := errors.Join(d.refused...)
	d.refused = nil
	return err
}

// openDirect is openTransport for ended runs.
func (s Shipping) openDirect(ctx context.Context) (w transport, close func() error, err error) {
	if s.host.config.Transport != nil {
		return s.openTransport(ctx)
	}
	st, err := s.host.Store(ctx)
	if err != nil {
		return nil, nil, err
	}
	t := ship.Start(ctx, st)
	return &direct{Transport: t, store: st}, func() error { t.Close(); return st.Close() }, nil
}

// Config returns the settings of the transport from host.yaml; false if it names none.
func (s Shipping) Config() (ship.Config, bool, error) {
	t := s.host.config.Transport
	if t == nil {
		return ship.Config{Tenant: s.host.config.Tenant}, false, nil
	}
	name, err := s.host.Keys().name()
	if err != nil {
		return ship.Config{}, false, err
	}
	return s.config(*t, name), true, nil
}

func (s Shipping) config(t Transport, host string) ship.Config {
	return ship.Config{
		URL: t.URL, Tenant: s.host.config.Tenant, Host: host, CA: t.CA, Cert: t.Cert, Key: t.Key,
		Creds: t.Creds, NKey: t.NKey, Monitor: t.Monitor, Warn: s.host.warn,
	}
}

// forward brings a run's segments to the store, and their manifests to the host's log, as they are sealed. It returns
// when stop is closed and everything that was sealed before has arrived:
//
//	         .--Add--> in the host's log --Publish--> under a checkpoint --.
//	sealed --|                                                             |--> shipped
//	         '--Publish--> sent --Drain------> in the store --------------'
//
// The two paths are independent; at the end it waits for logged, which logManifests returned. ctx bounds the
// transport to the store. If differing is not nil, only the segments in it are sent, so that the store can repair
// its copies. The next process sends what is left.
func (s Shipping) forward(ctx context.Context, w transport, logged func() (closed bool, err error), f follower, differing map[uint64]bool, stop <-chan struct{}) error {
	c := carrier{follower: f, transport: w, differing: differing}
	err := c.run(ctx, stop)
	closed, logErr := logged()
	if err := errors.Join(err, logErr); err != nil || !closed {
		return err // the closing manifest may have appeared after one of them read the directory
	}
	return c.markShipped()
}

// logManifests enters a run's manifests into the host's log in the background, as they are sealed, until stop is closed. It
// waits for neither the transport nor the store. The returned function waits for its end, and reports whether the closing
// manifest was entered. Set again if another process may have entered some of them.
func (s Shipping) logManifests(ctx context.Context, log *manifestLog, f follower, again bool, stop <-chan struct{}) (wait func() (closed bool, err error)) {
	v := manifestLogger{follower: f, log: log, again: again}
	ended := make(chan error, 1)
	go func() { ended <- v.run(context.WithoutCancel(ctx), stop) }()
	return func() (bool, error) {
		err := <-ended
		return v.closed, err
	}
}

// manifestLogger enters a run's manifests into the host's log, and requests checkpoints over them.
type manifestLogger struct {
	follower
	log       *manifestLog
	again     bool
	top       uint64 // index of the last entry
	entered   bool   // there is an entry
	published time.Time
	open      bool      // there are entries that no checkpoint covers
	kept      time.Time // when a checkpoint was last kept with the run
}

// checkpointEvery is the interval of checkpoints over a live run's manifests: an attacker who takes over the host can change
// only manifests that are younger.
const checkpointEvery = 5 * time.Second

func (v *manifestLogger) run(ctx context.Context, stop <-chan struct{}) error {
	v.published = time.Now()
	var next time.Duration
	for last := false; ; {
		if !last {
			last = v.closed || v.wait(stop, next)
		}
		err := v.pass(ctx)
		if last {
			return errors.Join(err, v.publish(ctx))
		}
		if err == nil && v.open && time.Since(v.published) >= checkpointEvery {
			err = v.publish(ctx)
		}
		v.warn(err)
		next = v.due(err)
	}
}

// due returns the time until the next pass is needed even if no segment is sealed, 0 if none is needed.
func (v *manifestLogger) due(err error) time.Duration {
	switch {
	case err != nil:
		return retryEvery
	case v.open:
		return max(checkpointEvery-time.Since(v.published), time.Millisecond)
	}
	return 0
}

func (v *manifestLogger) pass(ctx context.Context) error {
	return v.eachSealed(ctx, func(m statement.Manifest, signed []byte, _ string) error {
		index, err := v.log.add(ctx, statement.ManifestLeaf(m.Run, m.Segment, statement.Digest(signed)), v.again)
		if err != nil {
			return fmt.Errorf("host log: %w", err)
		}
		v.top, v.entered, v.open = max(v.top, index), true, true
		return nil
	})
}

func (v *manifestLogger) publish(ctx context.Context) error {
	if !v.entered {
		return nil
	}
	v.published = time.Now()
	signed, err := v.log.publish(ctx, v.top)
	if err != nil {
		return fmt.Errorf("no checkpoint covers the run's last manifest yet: %w", err)
	}
	v.open = false
	if !v.closed && time.Since(v.kept) < witnessedEvery {
		return nil
	}
	v.kept = time.Now()
	return v.host.ManifestLog().keepWitnessed(v.follower.run, signed)
}

// carrier ships a run's segments to the store.
type carrier struct {
	follower
	transport transport
	differing map[uint64]bool // the indexes of the segments to ship; nil: all
	stored    uint64          // the number of segments that the store is known to have
}

func (c *carrier) run(ctx context.Context, stop <-chan struct{}) error {
	var next time.Duration
	for last := false; ; {
		if !last {
			last = c.closed || c.wait(stop, next)
		}
		err := c.pass(ctx)
		if last {
			return errors.Join(err, c.transport.Drain(ctx))
		}
		next = 0
		if c.stored < c.next {
			c.ask(ctx)
		}
		if c.stored < c.next {
			next = askEvery
		}
		if err != nil {
			next = retryEvery
		}
		c.warn(err)
	}
}

// pass ships what was sealed since the last pass. It does not read segments that need not be shipped: retention may
// have removed them.
func (c *carrier) pass(ctx context.Context) error {
	return c.eachSealed(ctx, func(m statement.Manifest, signed []byte, file string) error {
		if c.differing != nil && !c.differing[m.Segment] {
			return nil
		}
		seg, err := c.segment(m, signed, file)
		switch {
		case err != nil:
			return err
		case c.differing != nil:
			return c.transport.Republish(ctx, seg)
		}
		return c.transport.Publish(ctx, seg)
	})
}

// ask asks the store how many segments it has, and stores the number for the spool.
func (c *carrier) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	held, err := c.transport.Stored(ctx, c.host.RunLogs().tenantOf(c.follower.run), c.follower.run, false)
	if err != nil {
		return // the next pass asks again
	}
	n := uint64(0)
	for _, one := range held {
		if one.Index != n {
			break
		}
		n++
	}
	if n > c.stored {
		c.stored = n
		_ = regular.WriteFile(c.host.Shipping().storedFile(c.follower.run), strconv.AppendUint(nil, n, 10), 0o600) // if the number is lost, ask asks again
	}
}

// The carrier asks the store for the sent segments every askEvery. The store has askTimeout to answer.
const (
	askEvery   = 200 * time.Millisecond
	askTimeout = 2 * time.Second
)

// waitForStore is the time that the end of a run waits for a store elsewhere.
func (s Shipping) waitForStore() time.Duration {
	if t := s.host.config.Transport; t != nil && t.Wait > 0 {
		return time.Duration(t.Wait)
	}
	return 10 * time.Second
}

func (s Shipping) storedFile(run string) string { return filepath.Join(s.host.RunDir(run), "stored") }

// storedCount returns how many of a run's segments the store was last known to have.
func (s Shipping) storedCount(run string) uint64 {
	text, err := regular.ReadFile(s.storedFile(run))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n
}

// Ship ships to the store what it lacks of ended runs, and reports each such run to notice. With differ it compares all
// ended runs with the rows of the store, which then repairs missing and altered rows.
func (s Shipping) Ship(ctx context.Context, differ bool, notice func(string)) error {
	if differ {
		unlock, err := s.host.Deletions().readRuns(ctx)
		if err != nil {
			return err
		}
		defer unlock()
	}
	left, err := s.left(differ)
	if err != nil || len(left) == 0 {
		return err
	}
	if s.host.config.Transport != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, shipTimeout, errors.New("NATS or the store did not answer in time"))
		defer cancel()
	}
	w, closeTransport, err := s.openDirect(ctx)
	if err != nil {
		return err
	}
	log, err := s.host.ManifestLog().open(ctx)
	if err != nil {
		return errors.Join(err, closeTransport())
	}
	log.brief = true
	var errs []error
	for _, run := range left {
		if err := s.shipOne(ctx, w, log, run, differ, notice); err != nil {
			errs = append(errs, fmt.Errorf("run %s: %w", run, err))
		}
	}
	return errors.Join(append(errs, log.close(ctx), closeTransport())...)
}

// shipTimeout bounds one call of Ship; the next call continues.
const shipTimeout = 10 * time.Minute

// left lists the ended runs that are not known to be in the store; with all, it lists every
// ended run.
func (s Shipping) left(all bool) ([]string, error) {
	runs, err := s.host.RunLogs().all()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(runs, func(run string) bool {
		return !all && s.host.RunLogs().HasWhole(run) || wal.Locked(s.host.RunDir(run)) || !s.host.RunLogs().begun(run)
	}), nil
}

func (s Shipping) shipOne(ctx context.Context, w transport, log *manifestLog, run string, differ bool, notice func(string)) error {
	var differing map[uint64]bool
	if differ || s.host.Retention().IsPruned(run) { // a run that an earlier version pruned before its end cannot be shipped as a whole
		held, err := w.Stored(ctx, s.host.RunLogs().tenantOf(run), run, true)
		if err != nil {
			return err
		}
		differing, err = s.differing(ctx, run, held)
		if d, here := w.(*direct); here && differ && err == nil {
			err = s.alteredRows(ctx, run, d.store, differing, notice)
		}
		if err != nil || len(differing) == 0 && s.host.RunLogs().HasWhole(run) {
			return err
		}
	}
	done := make(chan struct{})
	close(done)
	f := follower{host: s.host, run: run}
	if err := s.forward(ctx, w, s.logManifests(ctx, log, f, true, done), f, differing, done); err != nil {
		return err
	}
	notice("run " + run + " is in the store now")
	return nil
}

// alteredRows adds the segments whose rows have the signed root but were altered in other columns, if the store can
// detect that.
func (s Shipping) alteredRows(ctx context.Context, run string, st store.Store, differing map[uint64]bool, notice func(string)) error {
	c, can := st.(comparing)
	if !can || s.host.Retention().IsPruned(run) {
		return nil
	}
	for seg, err := range s.segments(ctx, []string{run}) {
		if err != nil {
			return err
		}
		what, err := c.Differs(ctx, seg)
		if err != nil {
			return err
		}
		if what != "" {
			differing[seg.Index] = true
			notice(fmt.Sprintf("run %s, segment %d: %s", run, seg.Index, what))
		}
	}
	return nil
}

// differing returns the run's segments whose manifest the store lacks, or whose rows there do not have the signed root.
func (s Shipping) differing(ctx context.Context, run string, held []ship.Held) (map[uint64]bool, error) {
	byIndex := map[uint64]ship.Held{}
	for _, one := range held {
		byIndex[one.Index] = one
	}
	differing := map[uint64]bool{}
	f := follower{host: s.host, run: run}
	err := f.eachSealed(ctx, func(m statement.Manifest, signed []byte, _ string) error {
		one, there := byIndex[m.Segment]
		if !there || one.Manifest != sha256.Sum256(signed) || m.Count > 0 && one.Root != [32]byte(m.Root) {
			differing[m.Segment] = true
		}
		return nil
	})
	return differing, err
}
