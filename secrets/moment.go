package secrets

import (
	"time"

	"golang.org/x/sys/unix"
)

// moment is a point in time that does not depend on the host's clock settings. It includes the time in which the host
// sleeps, unlike the monotonic time of package time.
type moment struct {
	awake time.Time     // for its monotonic clock reading
	slept time.Duration // how long the host had slept by then
}

func (m moment) add(d time.Duration) moment {
	return moment{m.awake.Add(d), m.slept}
}

// sub returns the duration from o to m.
func (m moment) sub(o moment) time.Duration {
	return m.awake.Sub(o.awake) + m.slept - o.slept
}

func earlier(a, b moment) moment {
	if a.sub(b) < 0 {
		return a
	}
	return b
}

// slept returns how long the host has slept since its start: CLOCK_BOOTTIME includes that, CLOCK_MONOTONIC does not
// (clock_gettime(2)).
func slept() time.Duration {
	var boot, awake unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &awake) != nil {
		return 0
	}
	return time.Duration(boot.Nano() - awake.Nano())
}
