package sandbox

import (
	"testing"
	"time"
)

// TestActivity: only processor time that has grown enough is progress, whatever the guest reports.
func TestActivity(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		reports []time.Duration // one each second
		want    time.Duration   // since the last progress
	}{
		"one report":    {[]time.Duration{ms}, 0},
		"asleep":        {[]time.Duration{ms, ms, ms}, 2 * time.Second},
		"wakes up":      {[]time.Duration{ms, 10 * ms, 19 * ms}, 2 * time.Second},
		"computes":      {[]time.Duration{ms, 500 * ms, 1000 * ms}, 0},
		"has computed":  {[]time.Duration{ms, 500 * ms, 500 * ms}, time.Second},
		"less":          {[]time.Duration{time.Hour, ms, ms}, 2 * time.Second},
		"not known":     {[]time.Duration{0, 0, 0}, 0},
		"known no more": {[]time.Duration{ms, ms, 0}, 0},
		"huge":          {[]time.Duration{ms, 1<<63 - 1, 1<<63 - 1}, time.Second},
	} {
		var a activity
		at := time.Now()
		for _, cpu := range c.reports {
			at = at.Add(time.Second)
			a.note(cpu, at)
		}
		if got := at.Sub(a.last); got != c.want {
			t.Errorf("%s: quiet for %v, want %v", name, got, c.want)
		}
	}
}
