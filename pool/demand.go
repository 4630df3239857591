package pool

import (
	"math"
	"time"
)

// rate is an exponentially weighted rate of events: an event that is a window old weighs 1/e of one that is new. After
// a window of a constant rate, 63 % of it are reached; the rate needs no list of events.
type rate struct {
	value float64 // events per second at the time of the last
	last  time.Time
}

// add counts an event.
func (r *rate) add(now time.Time, window time.Duration) {
	r.value = r.read(now, window) + 1/window.Seconds()
	r.last = now
}

// read returns the events per second.
func (r *rate) read(now time.Time, window time.Duration) float64 {
	if r.value == 0 {
		return 0
	}
	return r.value * math.Exp(-max(0, now.Sub(r.last).Seconds())/window.Seconds())
}

// stock returns how many sandboxes of a key are kept, idle or in the making, with one-for-one replacement (base stock).
// load is how many callers arrive while one is made: rate times time, by Little's law. The square root of it is one
// standard deviation if callers arrive at random (Poisson). The result is at least 1 and at most bound, if that is
// greater than 0.
func stock(load float64, bound int) int {
	if bound <= 0 {
		return 0
	}
	want := math.Ceil(load + math.Sqrt(load))
	switch {
	case want >= float64(bound):
		return bound
	case want >= 1:
		return int(want)
	}
	return 1 // also of a load that is not a number
}
