package lifecycle_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/custody-project/custody/state/lifecycle"
)

const (
	minute = time.Minute
	hour   = time.Hour
	day    = lifecycle.Day
)

var created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// status is a status with times after the creation; a negative one is the zero time.
func status(s lifecycle.State, active, paused time.Duration) lifecycle.Status {
	st := lifecycle.Status{State: s, Created: created}
	if active >= 0 {
		st.Active = created.Add(active)
	}
	if paused >= 0 {
		st.Paused = created.Add(paused)
	}
	return st
}

// TestNext: times are after the creation.
func TestNext(t *testing.T) {
	usual := lifecycle.Policy{Pause: 5 * minute, Archive: 7 * day, Delete: 30 * day, Keep: 90 * day}
	for _, c := range []struct {
		name   string
		policy lifecycle.Policy
		status lifecycle.Status
		now    time.Duration
		action lifecycle.Action
		at     time.Duration
	}{
		{"idle", usual, status(lifecycle.Running, hour, -1), hour + minute, lifecycle.Pause, hour + 5*minute},
		{"idle for long enough", usual, status(lifecycle.Running, hour, -1), 2 * hour, lifecycle.Pause, hour + 5*minute},
		{"active", usual, status(lifecycle.Running, -1, -1), hour, lifecycle.Delete, 90 * day},
		{"active too long", usual, status(lifecycle.Running, -1, -1), 91 * day, lifecycle.Delete, 90 * day},
		{"idle at the end", usual, status(lifecycle.Running, 90*day-minute, -1), 90*day - minute, lifecycle.Delete, 90 * day},
		{"paused", usual, status(lifecycle.Paused, -1, hour), 2 * hour, lifecycle.Archive, hour + 7*day},
		{"paused for long enough", usual, status(lifecycle.Paused, -1, hour), 8 * day, lifecycle.Archive, hour + 7*day},
		{"paused too long", usual, status(lifecycle.Paused, -1, hour), 31 * day, lifecycle.Delete, hour + 30*day},
		{"archived", usual, status(lifecycle.Archived, -1, hour), 8 * day, lifecycle.Delete, hour + 30*day},
		{"paused late", usual, status(lifecycle.Paused, -1, 80*day), 81 * day, lifecycle.Archive, 87 * day},
		{"paused later", usual, status(lifecycle.Paused, -1, 85*day), 86 * day, lifecycle.Delete, 90 * day},
		{"deleted", usual, status(lifecycle.Deleted, -1, -1), day, lifecycle.None, -1},
		{"the clock was set back", usual, status(lifecycle.Paused, -1, hour), -day, lifecycle.Archive, hour + 7*day},
		{"no pause", lifecycle.Default(), status(lifecycle.Running, hour, -1), day, lifecycle.Delete, 90 * day},
		{"no archive", lifecycle.Default(), status(lifecycle.Paused, -1, hour), day, lifecycle.Delete, hour + 7*day},
		{"nothing", lifecycle.Policy{}, status(lifecycle.Paused, -1, hour), day, lifecycle.Delete, 90 * day},
		{"archive after delete", lifecycle.Policy{Archive: 8 * day, Delete: 7 * day, Keep: 90 * day}, status(lifecycle.Paused, -1, 0), day, lifecycle.Delete, 7 * day},
	} {
		action, at := lifecycle.Next(c.policy, c.status, created.Add(c.now))
		want := created.Add(c.at)
		if c.at < 0 {
			want = time.Time{}
		}
		if action != c.action || !at.Equal(want) {
			t.Errorf("%s: %q %v after the creation, want %q %v", c.name, action, at.Sub(created), c.action, c.at)
		}
	}
}

// TestPaths lets a clock run from action to action.
func TestPaths(t *testing.T) {
	for _, c := range []struct {
		policy lifecycle.Policy
		want   []lifecycle.Action
		end    time.Duration
	}{
		{lifecycle.Policy{Pause: minute, Archive: day, Delete: 2 * day, Keep: 90 * day}, []lifecycle.Action{lifecycle.Pause, lifecycle.Archive, lifecycle.Delete}, minute + 2*day},
		{lifecycle.Policy{Pause: minute, Archive: day, Keep: 90 * day}, []lifecycle.Action{lifecycle.Pause, lifecycle.Archive, lifecycle.Delete}, 90 * day},
		{lifecycle.Policy{Pause: minute, Delete: 2 * day}, []lifecycle.Action{lifecycle.Pause, lifecycle.Delete}, minute + 2*day},
		{lifecycle.Policy{Archive: day, Delete: 2 * day, Keep: 4 * day}, []lifecycle.Action{lifecycle.Delete}, 4 * day},
	} {
		got, at := run(c.policy, nil)
		if !slices.Equal(got, c.want) || at.Sub(created) != c.end {
			t.Errorf("%+v: %v, at %v", c.policy, got, at.Sub(created))
		}
	}
}

// TestAlwaysEnds: whatever the policy, and however often a sandbox is resumed, it is deleted, and no later than Keep allows. No action is due before the one that made
// the state.
func TestAlwaysEnds(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		some := func() time.Duration { return time.Duration(r.Int64N(3)) * time.Duration(r.Int64N(int64(40*day))) }
		p := lifecycle.Policy{Pause: some(), Archive: some(), Delete: some(), Keep: some()}
		actions, at := run(p, r)
		limit := p.Keep
		if limit == 0 {
			limit = lifecycle.DefaultKeep
		}
		if len(actions) == 0 || actions[len(actions)-1] != lifecycle.Delete || at.After(created.Add(limit)) {
			t.Errorf("seed %d: %+v: %v, at %v", seed, p, actions, at.Sub(created))
		}
	}
}

// run applies the actions of a policy when they are due. With r the sandbox is resumed sometimes.
func run(p lifecycle.Policy, r *rand.Rand) (actions []lifecycle.Action, now time.Time) {
	s := status(lifecycle.Running, 0, -1)
	now = created
	for range 200 {
		action, at := lifecycle.Next(p, s, now)
		if action == lifecycle.None {
			break
		}
		if at.After(now) {
			now = at
		}
		if r != nil && s.State != lifecycle.Running && r.IntN(2) == 0 && now.Before(p.Deadline(s)) {
			s = lifecycle.Status{State: lifecycle.Running, Created: created, Active: now}
			continue
		}
		actions = append(actions, action)
		switch action {
		case lifecycle.Pause:
			s.State, s.Paused = lifecycle.Paused, now
		case lifecycle.Archive:
			s.State = lifecycle.Archived
		case lifecycle.Delete:
			s.State = lifecycle.Deleted
		}
	}
	return actions, now
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		policy lifecycle.Policy
		ok     bool
	}{
		{lifecycle.Default(), true},
		{lifecycle.Policy{Pause: 10 * time.Second, Archive: minute, Delete: minute, Keep: 366 * day}, true},
		{lifecycle.Policy{}, false},
		{lifecycle.Policy{Pause: 9 * time.Second, Keep: day}, false},
		{lifecycle.Policy{Archive: -day, Keep: day}, false},
		{lifecycle.Policy{Delete: time.Second, Keep: day}, false},
		{lifecycle.Policy{Keep: 367 * day}, false},
	} {
		if err := c.policy.Check(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.policy, err)
		}
	}
}
