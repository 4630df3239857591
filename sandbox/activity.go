package sandbox

import (
	"context"
	"sync"
	"time"
)

// activity is what the processes of a sandbox do, from the processor time that the guest reports. A guest that reports too much can only
// keep its sandbox from being idle.
type activity struct {
	warm *Warm

	mu   sync.Mutex    // guards the fields below
	cpu  time.Duration // that was reported last
	at   time.Time     // when; zero: nothing was reported
	last time.Time     // when the processes have done something last
}

// Processes that use less processor time than both between two reports do nothing: some wake up now and then to look.
const (
	leastCPU   = 20 * time.Millisecond
	leastShare = 100 // one hundredth of the time
)

// note takes a report. Processor time that has become less is no progress; one that is not known counts as progress.
func (a *activity) note(cpu time.Duration, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	used := cpu - a.cpu
	if a.at.IsZero() || cpu == 0 || used >= leastCPU && used >= at.Sub(a.at)/leastShare {
		a.last = at
	}
	a.cpu, a.at = cpu, at
}

// Quiet asks the guest, and returns for how long the processes of the sandbox have done nothing.
func (a *activity) Quiet(ctx context.Context) (time.Duration, error) {
	cpu, err := a.warm.guest().Ping(ctx)
	if err != nil {
		return 0, err
	}
	now := time.Now()
	a.note(cpu, now)
	a.mu.Lock()
	defer a.mu.Unlock()
	return now.Sub(a.last), nil
}
