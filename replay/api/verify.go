package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/store"
)

const (
	// checkedRuns is the number of runs whose last verification is kept.
	checkedRuns = 10_000
	// checkAgain is how long a verification is valid, checkSoon how long one without a result is.
	checkAgain, checkSoon = time.Hour, 10 * time.Minute
	// checkFor bounds one verification.
	checkFor = 10 * time.Minute
	// waitForCheck is how long an answer waits for one.
	waitForCheck = 8 * time.Second
	// maxWanted bounds the runs whose requested verification waits.
	maxWanted = 64
	// lookEvery is how often the worker looks for runs that it has not checked, and how many of the newest it examines.
	lookEvery, lookAt = 10 * time.Second, 200
)

// runKey names a run of a tenant.
type runKey struct{ tenant, run string }

func keyOf(run store.Run) runKey { return runKey{run.Tenant, run.ID} }

// checked is a verification and the state of the run at that time.
type checked struct {
	Verification
	report proof.Report
	events uint64
	status store.Status
}

// current reports whether c is about the run as it is now, and not too old.
func (c checked) current(run store.Run, now time.Time) bool {
	age := checkAgain
	if c.State == Cannot {
		age = checkSoon
	}
	return c.about(run) && now.Sub(c.At) < age
}

func (c checked) about(run store.Run) bool { return c.events == run.Events && c.status == run.Status }

// checks verifies runs, one at a time: first those that were requested, then the newest.
//
//	unchecked -- ask, or the worker's turn --> checking --> holds | fails | cannot
//	    ^------------- the run has grown (not after fails) -------'
type checks struct {
	verify func(context.Context, store.Run) (proof.Report, error)
	source Source
	now    func() time.Time
	log    *slog.Logger
	wake   chan struct{}   // capacity 1: a verification was requested
	look   chan struct{}   // capacity 1: there may be an unverified run
	ended  <-chan struct{} // closed when the Server ends

	mu     sync.Mutex // guards the fields below
	known  *lru.Cache[runKey, checked]
	wanted []*check
	busy   *check // being checked
}

// check is the verification of a run; done is closed at its end.
type check struct {
	run  store.Run
	done chan struct{}
}

func newChecks(verify func(context.Context, store.Run) (proof.Report, error), source Source, now func() time.Time, log *slog.Logger, ended <-chan struct{}) *checks {
	known, err := lru.New[runKey, checked](checkedRuns)
	if err != nil {
		panic(err) // the size is valid
	}
	return &checks{verify: verify, source: source, now: now, log: log, ended: ended, known: known, wake: make(chan struct{}, 1), look: make(chan struct{}, 1)}
}

// of returns the last verification of the run. A run that failed stays failed until another check succeeds.
func (c *checks) of(run store.Run) Verification {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, known := c.known.Peek(keyOf(run))
	switch {
	case known && (was.about(run) || was.State == Fails):
		return was.Verification
	case c.pending(run) != nil:
		return Verification{State: Checking, Text: "the record is being checked"}
	case run.End == nil:
		return Verification{State: Unchecked, Text: "the run is live: its record is checked when it has ended"}
	case known:
		return Verification{State: Unchecked, Text: "the record has grown since it was last checked"}
	}
	return Verification{State: Unchecked, Text: "the record has not been checked yet"}
}

// report is what a check of the run as it is now has established, nil if there was none.
func (c *checks) report(run store.Run) *proof.Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, known := c.known.Peek(keyOf(run))
	if !known || !was.about(run) || was.report.Run == "" {
		return nil
	}
	return &was.report
}

func (c *checks) pending(run store.Run) *check {
	key := keyOf(run)
	if c.busy != nil && keyOf(c.busy.run) == key {
		return c.busy
	}
	if i := slices.IndexFunc(c.wanted, func(w *check) bool { return keyOf(w.run) == key }); i >= 0 {
		return c.wanted[i]
	}
	return nil
}

// ask requests a verification unless there is a current one; again requests it in any case. The
// channel is closed at its end.
func (c *checks) ask(run store.Run, again bool) (<-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was, known := c.known.Get(keyOf(run)); known && !again && was.current(run, c.now()) {
		done := make(chan struct{})
		close(done)
		return done, nil
	}
	if p := c.pending(run); p != nil {
		return p.done, nil
	}
	if len(c.wanted) == maxWanted {
		return nil, later(http.StatusServiceUnavailable, "too-many", "too many records wait for a check", "try again when some are done", 10*time.Second)
	}
	p := &check{run, make(chan struct{})}
	c.wanted = append(c.wanted, p)
	select {
	case c.wake <- struct{}{}:
	default: // it was signalled already
	}
	return p.done, nil
}

// next returns the next requested check, nil if there is none.
func (c *checks) next() *check {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.wanted) == 0 {
		return nil
	}
	c.busy, c.wanted = c.wanted[0], c.wanted[1:]
	return c.busy
}

// begin makes a check of the worker's own the busy one, false if there is no need.
func (c *checks) begin(run store.Run) *check {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was, known := c.known.Peek(keyOf(run)); known && was.current(run, c.now()) {
		return nil
	}
	if c.pending(run) != nil {
		return nil
	}
	c.busy = &check{run, make(chan struct{})}
	return c.busy
}

// judge carries out the busy check. Its error is for the log.
func (c *checks) judge(ctx context.Context, p *check) error {
	ctx, cancel := context.WithTimeout(ctx, checkFor)
	defer cancel()
	report, err := c.verify(ctx, p.run)
	v := Judge(report, err, c.now())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = nil
	if !errors.Is(ctx.Err(), context.Canceled) {
		c.known.Add(keyOf(p.run), checked{v, report, p.run.Events, p.run.Status})
	}
	close(p.done)
	if v.State == Cannot && v.Name == "" {
		return err
	}
	return nil
}

// work is the worker. It rests after each check of its own as long as that took, up to 10 s.
func (c *checks) work(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		c.checkWanted(ctx)
		c.checkNewest(ctx)
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-c.look:
		case <-tick.C:
		}
	}
}

func (c *checks) checkWanted(ctx context.Context) {
	for ctx.Err() == nil {
		p := c.next()
		if p == nil {
			return
		}
		c.check(ctx, p)
	}
}

func (c *checks) check(ctx context.Context, p *check) {
	if err := c.judge(ctx, p); err != nil && ctx.Err() == nil {
		c.log.Warn("a record could not be checked", "run", p.run.ID, "err", err)
	}
}

func (c *checks) checkNewest(ctx context.Context) {
	runs, err := c.source.Runs(ctx, store.Filter{Class: store.Sandboxes, Limit: lookAt})
	if err != nil {
		return // requests report that the store is away
	}
	for _, run := range runs {
		if run.End == nil || ctx.Err() != nil {
			continue
		}
		if p := c.begin(run); p != nil {
			began := time.Now()
			c.check(ctx, p)
			c.rest(ctx, time.Since(began))
		}
		c.checkWanted(ctx)
	}
}

// rest waits until its time is over or a verification is requested.
func (c *checks) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(min(max(d, 20*time.Millisecond), 10*time.Second))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-c.wake:
	case <-timer.C:
	}
}

// verification is the state of a run's record in a list. The worker is asked to check it if nothing has.
func (c *checks) verification(run store.Run) Verification {
	v := c.of(run)
	v.Report = nil
	if v.State == Unchecked && run.End != nil {
		select {
		case c.look <- struct{}{}:
		default: // it was signalled already
		}
	}
	return v
}

// item is a run in a list.
func (c *checks) item(run store.Run) RunItem {
	return RunItem{Run: run, Class: run.Class(), Live: run.End == nil, Verification: c.verification(run)}
}

// await has a run checked, if that was not done lately, and waits for it until ctx or the Server ends.
func (c *checks) await(ctx context.Context, run store.Run) {
	done, err := c.ask(run, false)
	if err != nil {
		return // too many wait: the report lists the run as unchecked
	}
	select {
	case <-done:
	case <-ctx.Done():
	case <-c.ended:
	}
}

// checksHandler answers how a run's record stands.
type checksHandler struct {
	runFinder
	checks *checks
}

func (h *checksHandler) verify(w http.ResponseWriter, r *request) error {
	if h.checks.verify == nil {
		return errNotHere("verification")
	}
	run, err := h.find(r)
	if err != nil {
		return err
	}
	done, err := h.checks.ask(run, r.Method == http.MethodPost)
	if err != nil {
		return err
	}
	timer := time.NewTimer(waitForCheck)
	defer timer.Stop()
	select {
	case <-done:
		return answer(w, h.checks.of(run))
	case <-timer.C:
	case <-h.checks.ended:
	case <-r.Context().Done():
	}
	return answerWith(w, http.StatusAccepted, Verification{State: Checking, Text: "the record is being checked: ask again"})
}
