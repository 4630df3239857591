package hostd

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/custody-project/custody/internal/heartbeat"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/worker"
)

// minSilence is the shortest time for which a worker may give no sign of life, whatever limits.silence is.
const minSilence = 5 * time.Second

// pulse observes whether a worker answers, and kills one that does not, such as one that hangs or was stopped. Its sandbox ends with it.
//
//	newPulse --> watching --the worker ends------> ended
//	                |                                ^
//	                +--no answer: it is killed-------+
type pulse struct {
	process *privsep.Process
	report  func(error) // see Parts.Silent
	limits  chan time.Duration
	done    chan struct{} // closed when the goroutine has ended

	mu    sync.Mutex // guards the fields below
	name  string     // of what has the worker
	limit time.Duration
	err   error // ErrSilent; nil: the worker was not killed
}

// newPulse observes the worker of a machine, which has no run yet. The caller ends the worker, and then calls end.
func newPulse(p *privsep.Process, machine string, report func(error)) *pulse {
	w := &pulse{process: p, report: report, limits: make(chan time.Duration), done: make(chan struct{}), name: "machine " + machine, limit: worker.DefaultSilence}
	go w.watch()
	return w
}

// begin gives the worker to a run. limit is its limits.silence, 0: the default.
func (p *pulse) begin(run string, limit time.Duration) {
	if limit <= 0 {
		limit = worker.DefaultSilence
	}
	limit = max(limit, minSilence)
	p.mu.Lock()
	p.name, p.limit = "run "+run, limit
	p.mu.Unlock()
	select {
	case p.limits <- limit:
	case <-p.done:
	}
}

// end waits until the worker is not observed any more, and returns ErrSilent if it was killed.
func (p *pulse) end() error {
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// watch asks the worker for signs of life until it ends. Beats do not count while this process carries out so many of its calls that an
// answer waits behind them.
func (p *pulse) watch() {
	defer close(p.done)
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		heartbeat.Watch{
			Ask:     func(ctx context.Context) error { return worker.Alive(ctx, p.process.Conn) },
			Excused: p.process.Busy,
			Silent:  p.kill,
			Limits:  p.limits,
		}.Run(ctx, worker.DefaultSilence)
	})
	<-p.process.Ended()
	cancel()
	watching.Wait()
}

// kill kills the worker, and reports it.
func (p *pulse) kill() {
	p.mu.Lock()
	p.err = fmt.Errorf("%w: none in %s (limits.silence); it was killed, and its sandbox with it", worker.ErrSilent, p.limit)
	err := fmt.Errorf("%s: %w", p.name, p.err)
	p.mu.Unlock()
	if failed := p.process.Kill(); failed != nil {
		err = fmt.Errorf("%w (%w)", err, failed)
	}
	if p.report != nil {
		p.report(err)
	}
}
