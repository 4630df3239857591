package fleet_test

import (
	"slices"
	"sync"
	"time"

	"github.com/custody-project/custody/fleet"
)

// testClock is a clock that a test moves. It is safe for concurrent use.
type testClock struct {
	mu     sync.Mutex // guards the fields below
	now    time.Time
	timers []*testTimer
}

type testTimer struct {
	clock *testClock
	at    time.Time // zero: stopped, or it has fired
	f     func()
}

// Now implements fleet.Clock.
func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc implements fleet.Clock.
func (c *testClock) AfterFunc(d time.Duration, f func()) fleet.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &testTimer{c, c.now.Add(max(d, 1)), f}
	c.timers = append(c.timers, t)
	return t
}

// Stop implements fleet.Timer.
func (t *testTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	ran := !t.at.IsZero()
	t.at = time.Time{}
	return ran
}

// Reset implements fleet.Timer.
func (t *testTimer) Reset(d time.Duration) bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	ran := !t.at.IsZero()
	t.at = t.clock.now.Add(max(d, 1))
	return ran
}

// pass lets time pass, and calls what is due, in order.
func (c *testClock) pass(d time.Duration) {
	c.mu.Lock()
	end := c.now.Add(d)
	for {
		due := slices.DeleteFunc(slices.Clone(c.timers), func(t *testTimer) bool { return t.at.IsZero() || t.at.After(end) })
		if len(due) == 0 {
			break
		}
		first := slices.MinFunc(due, func(a, b *testTimer) int { return a.at.Compare(b.at) })
		c.now, first.at = first.at, time.Time{}
		c.mu.Unlock()
		first.f()
		c.mu.Lock()
	}
	c.now = end
	c.mu.Unlock()
}
