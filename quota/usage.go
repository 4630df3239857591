package quota

import (
	"math"
	"time"
)

// usage is what is in use of the limits of the host, a tenant or a project. Queue.mu guards it.
type usage struct {
	sandboxes, cpus, memory int64
	starts                  bucket
	tokens                  daily
	life                    time.Duration // of a lease, averaged; 0 until the first has ended
}

// lack is a limit that does not allow a start now. The zero lack is none.
type lack struct {
	quota       Quota
	limit, used int64
	want        int64
	until       time.Time // when the limit allows it; zero if that depends on the end of sandboxes
}

// lacks returns the first limit that does not allow the start now.
func (u *usage) lacks(l Limits, r *Request, now time.Time) lack {
	switch {
	case l.Sandboxes > 0 && u.sandboxes >= l.Sandboxes:
		return lack{Sandboxes, l.Sandboxes, u.sandboxes, 1, time.Time{}}
	case l.CPUs > 0 && u.cpus > l.CPUs-r.CPUs:
		return lack{CPUs, l.CPUs, u.cpus, r.CPUs, time.Time{}}
	case l.Memory > 0 && u.memory > l.Memory-r.Memory:
		return lack{Memory, l.Memory, u.memory, r.Memory, time.Time{}}
	}
	return u.waits(l, 1, now)
}

// waits returns the first limit of a rate that does not allow the nth start from now on.
func (u *usage) waits(l Limits, n int, now time.Time) lack {
	if l.TokensPerDay > 0 && u.tokens.on(now) >= l.TokensPerDay {
		return lack{Tokens, l.TokensPerDay, u.tokens.on(now), 1, tomorrow(now)}
	}
	if l.StartsPerMinute > 0 {
		if until := u.starts.next(l.StartsPerMinute, n, now); until.After(now) {
			return lack{Starts, l.StartsPerMinute, u.starts.taken(l.StartsPerMinute, now), 1, until}
		}
	}
	return lack{}
}

// exceeds returns the limit that a start exceeds by itself.
func (l Limits) exceeds(r *Request) lack {
	switch {
	case l.CPUs > 0 && r.CPUs > l.CPUs:
		return lack{quota: CPUs, limit: l.CPUs, want: r.CPUs}
	case l.Memory > 0 && r.Memory > l.Memory:
		return lack{quota: Memory, limit: l.Memory, want: r.Memory}
	}
	return lack{}
}

// start counts a sandbox.
func (u *usage) start(l Limits, r *Request, now time.Time) {
	u.sandboxes++
	u.cpus += r.CPUs
	u.memory += r.Memory
	if l.StartsPerMinute > 0 {
		u.starts.take(l.StartsPerMinute, now)
	}
}

// end counts the end of a sandbox.
func (u *usage) end(r *Request, life time.Duration) {
	u.sandboxes--
	u.cpus -= r.CPUs
	u.memory -= r.Memory
	if u.life == 0 {
		u.life = life
	}
	u.life += (life - u.life) / 8
}

// unused reports whether nothing would be lost if u were forgotten.
func (u *usage) unused(now time.Time, keepTokens bool) bool {
	return u.sandboxes == 0 && !u.starts.full.After(now) && !(keepTokens && u.tokens.on(now) > 0)
}

// Bounds of estimates.
const (
	defaultLife              = 10 * time.Second
	minEstimate, maxEstimate = time.Second, 10 * time.Minute
)

// ends estimates when n sandboxes will have ended.
func (u *usage) ends(n int, now time.Time) time.Time {
	life := u.life
	if life == 0 {
		life = defaultLife
	}
	wait := float64(life) * float64(n) / float64(max(1, u.sandboxes))
	return now.Add(max(minEstimate, time.Duration(min(wait, float64(maxEstimate)))))
}

// bucket is a token bucket that holds the starts of a minute and fills evenly. full is when it is full: each start takes it one
// interval further.
type bucket struct{ full time.Time }

func interval(perMinute int64) time.Duration { return time.Minute / time.Duration(perMinute) }

// next returns when the bucket allows the nth start from now on.
func (b bucket) next(perMinute int64, n int, now time.Time) time.Time {
	return later(b.full, now).Add(time.Duration(int64(n)-perMinute) * interval(perMinute))
}

func (b *bucket) take(perMinute int64, now time.Time) {
	b.full = later(b.full, now).Add(interval(perMinute))
}

// taken returns how many starts the bucket lacks.
func (b bucket) taken(perMinute int64, now time.Time) int64 {
	step := interval(perMinute)
	return int64((later(b.full, now).Sub(now) + step - 1) / step)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// daily is a count that begins at 0 on each day of UTC.
type daily struct{ day, count int64 }

const secondsOfDay = 24 * 60 * 60

func (d *daily) on(now time.Time) int64 {
	if day := now.Unix() / secondsOfDay; day != d.day {
		*d = daily{day: day}
	}
	return d.count
}

func (d *daily) add(n int64, now time.Time) { d.count = d.on(now) + min(n, math.MaxInt64-d.on(now)) }

// tomorrow returns the beginning of the next day of UTC.
func tomorrow(now time.Time) time.Time {
	return time.Unix((now.Unix()/secondsOfDay+1)*secondsOfDay, 0)
}
