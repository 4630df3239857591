package secrets

import (
	"time"

	"golang.org/x/sys/unix"
)

// moment is a point in time that no setting of the host's clock moves. It goes on while
// the host sleeps, which the monotonic time of package time does not.
type moment struct {
	awake time.Time     // for its monotonic reading
	slept time.Duration // how long the host had slept by then
}

func (m moment) add(d time.Duration) moment {
	return moment{m.awake.Add(d), m.slept}
}

// sub is the time from o to m.
func (m moment) sub(o moment) time.Duration {
	return m.awake.Sub(o.awake) + m.slept - o.slept
}

func earlier(a, b moment) moment {
	if a.sub(b) < 0 {
		return a
	}
	return b
}

// slept is how long the host has slept since it was started: CLOCK_BOOTTIME counts that,
// CLOCK_MONOTONIC does not (clock_gettime(2)).
func slept() time.Duration {
	var boot, awake unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &awake) != nil {
		return 0
	}
	return time.Duration(boot.Nano() - awake.Nano())
}
