package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/fleet"
	"github.com/custody-project/custody/quota"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/state/lifecycle"
	"github.com/custody-project/custody/vmm/vmtest"
)

// killed is the host of a process that is killed at a point: each call of the runner or the archive about a stored state has two, before and after it. Calls
// return no more from that point on, until the test ends.
type killed struct {
	*fleet.Runs
	fleet.Archive
	policy lifecycle.Policy

	mu     sync.Mutex // guards the fields below
	points int        // that were reached
	at     int        // of them; 0: none
	dead   chan struct{}
	over   <-chan struct{}
}

var errKilled = errors.New("the process was killed")

// point is one.
func (k *killed) point() error {
	k.mu.Lock()
	k.points++
	if k.points == k.at {
		close(k.dead)
	}
	dead := k.at > 0 && k.points >= k.at
	k.mu.Unlock()
	if dead {
		<-k.over
		return errKilled
	}
	return nil
}

func (k *killed) around(do func() error) error {
	if err := k.point(); err != nil {
		return err
	}
	err := do()
	if err := k.point(); err != nil {
		return err
	}
	return err
}

// Check implements fleet.Runner.
func (k *killed) Check(ctx context.Context, r fleet.Request) (fleet.Terms, error) {
	t, err := k.Runs.Check(ctx, r)
	t.Lifecycle, t.Time = k.policy, 100*24*time.Hour
	return t, err
}

// Discard implements fleet.Runner.
func (k *killed) Discard(ctx context.Context, tenant, run string) error {
	return k.around(func() error { return k.Runs.Discard(ctx, tenant, run) })
}

// Run implements fleet.Runner. With a point, a sandbox does not start.
func (k *killed) Run(ctx context.Context, id string, r fleet.Request, a fleet.Allowance, from *run.Resume, serve func(context.Context, *run.Live)) (run.Result, error) {
	if k.at > 0 {
		return run.Result{}, k.point()
	}
	return k.Runs.Run(ctx, id, r, a, from, serve)
}

// Put implements fleet.Archive.
func (k *killed) Put(ctx context.Context, r fleet.Request, run string, expires time.Time) error {
	return k.around(func() error { return k.Archive.Put(ctx, r, run, expires) })
}

// Fetch implements fleet.Archive.
func (k *killed) Fetch(ctx context.Context, tenant, id string) (saved run.Saved, err error) {
	err = k.around(func() error {
		saved, err = k.Archive.Fetch(ctx, tenant, id)
		return err
	})
	return saved, err
}

// Delete implements fleet.Archive.
func (k *killed) Delete(ctx context.Context, tenant, run string) error {
	return k.around(func() error { return k.Archive.Delete(ctx, tenant, run) })
}

// lives is a fleet whose sandboxes have a lifecycle.
type lives struct {
	*rig
	clock *testClock
	host  *killed

	mu          sync.Mutex // guards transitions
	transitions []lifecycle.Action
	problems    []error
}

var usual = lifecycle.Policy{Pause: 5 * time.Minute, Archive: 7 * lifecycle.Day, Delete: 30 * lifecycle.Day, Keep: 90 * lifecycle.Day}

// openLives opens the fleet of a host, which is killed at a point; 0: it is not.
func openLives(t *testing.T, home string, now time.Time, policy lifecycle.Policy, at int, over <-chan struct{}) *lives {
	l := &lives{clock: &testClock{now: now}}
	l.host = &killed{Runs: runsOf(t, home), Archive: copies(home), policy: policy, at: at, dead: make(chan struct{}), over: over}
	l.rig = openRig(t, home, fmt.Sprintf("isolation: {require: %s}\n", vmtest.Driver(t).Tier()), fleet.Config{
		Clock: l.clock, Runner: l.host, Archive: l.host,
		Record: func(_ context.Context, tr fleet.Transition) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.transitions = append(l.transitions, tr.Action)
			return nil
		},
		Problem: func(err error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.problems = append(l.problems, err)
		},
	}, quota.Config{})
	return l
}

// settled waits until the sandbox has a state.
func (l *lives) settled(id string, want fleet.State) {
	l.Helper()
	for range 3000 {
		s, err := l.Get("acme", id)
		if err != nil && want == fleet.Ended || err == nil && s.Info().State == want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s, err := l.Get("acme", id)
	l.Fatalf("the sandbox does not become %s: %+v, %v", want, s.Info(), errors.Join(err, errors.Join(l.problems...)))
}

// stored returns what is stored of paused sandboxes: here, in the archive, and about them.
func stored(t testing.TB, home string) string {
	t.Helper()
	var all []string
	for _, dir := range []string{"paused", "archive", "paused-sandboxes"} {
		found, err := filepath.Glob(filepath.Join(home, dir, "r-*"))
		check(t, err)
		all = append(all, fmt.Sprint(len(found)))
	}
	return strings.Join(all, " ")
}

// TestLifecycle: an idle sandbox is paused, one that is paused for long is archived, and the next use brings it back; one that is not used is deleted, and so is one that
// has lived for as long as it may.
func TestLifecycle(t *testing.T) {
	home := t.TempDir()
	l := openLives(t, home, time.Now(), usual, 0, nil)
	s := l.create(fleet.Request{})
	l.sh(s, "echo kept > /root/file")
	p, err := s.Start(t.Context(), run.Command{Argv: []string{"sleep", "3600"}}, false)
	check(t, err)
	_ = p
	check(t, p.Signal(t.Context(), 9))
	<-p.Done()
	l.clock.pass(4 * time.Minute)
	if got := s.Info().State; got != fleet.Live {
		t.Fatalf("before it is idle: %s", got)
	}
	l.clock.pass(2 * time.Minute)
	l.settled(s.ID, fleet.Paused)
	if got := stored(t, home); got != "1 0 1" {
		t.Errorf("paused: %s", got)
	}
	l.clock.pass(7*lifecycle.Day - time.Hour)
	if got := stored(t, home); got != "1 0 1" {
		t.Errorf("before it is archived: %s", got)
	}
	l.clock.pass(2 * time.Hour)
	l.settled(s.ID, fleet.Archived)
	l.wait(func() bool { return stored(t, home) == "0 1 1" })
	if got := l.sh(s, "cat /root/file"); got != "kept\n" {
		t.Errorf("the file after the archive: %q", got)
	}
	if got := stored(t, home); got != "0 0 0" {
		t.Errorf("while it runs: %s", got)
	}
	l.clock.pass(6 * time.Minute)
	l.settled(s.ID, fleet.Paused)
	l.clock.pass(8 * lifecycle.Day)
	l.settled(s.ID, fleet.Archived)
	l.wait(func() bool { return stored(t, home) == "0 1 1" })
	l.clock.pass(23 * lifecycle.Day)
	l.settled(s.ID, fleet.Ended)
	l.wait(func() bool { return stored(t, home) == "0 0 0" })
	want := []lifecycle.Action{lifecycle.Pause, lifecycle.Archive, lifecycle.Pause, lifecycle.Archive, lifecycle.Delete}
	if !slices.Equal(l.transitions, want) || len(l.problems) > 0 {
		t.Errorf("transitions %q, problems %v", l.transitions, l.problems)
	}
}

// wait waits until a condition holds.
func (l *lives) wait(holds func() bool) {
	l.Helper()
	for range 1000 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	l.Errorf("it does not hold in time; problems: %v", l.problems)
}

// TestLifecycleKilled kills the service at each point of an archive, a fetch and a deletion. The next one finishes the transition: the sandbox is in one place, and
// nothing is left of one that was deleted.
func TestLifecycleKilled(t *testing.T) {
	home := t.TempDir()
	began := time.Now()
	first := openLives(t, home, began, usual, 0, nil)
	s := first.create(fleet.Request{})
	first.sh(s, "echo kept > /root/file")
	check(t, s.Pause(t.Context()))
	first.Close()
	saved := filepath.Join(t.TempDir(), "saved")
	copyAll := func(from, to string) {
		t.Helper()
		check(t, os.MkdirAll(to, 0o700))
		for _, dir := range []string{"paused", "archive", "paused-sandboxes"} {
			check(t, os.RemoveAll(filepath.Join(to, dir)))
			if _, err := os.Stat(filepath.Join(from, dir)); err == nil {
				out, err := exec.Command("cp", "-a", filepath.Join(from, dir), to).CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %v", out, err)
				}
			}
		}
	}
	copyAll(home, saved)
	for _, c := range []struct {
		name   string
		points int // at least
		do     func(l *lives, s *fleet.Sandbox)
		then   func(l *lives)
	}{
		{"archive", 4, func(l *lives, _ *fleet.Sandbox) { l.clock.pass(8 * lifecycle.Day) }, func(l *lives) {
			l.clock.pass(time.Minute)
			l.settled(s.ID, fleet.Archived)
			l.wait(func() bool { return stored(t, home) == "0 1 1" })
		}},
		{"delete", 4, func(l *lives, _ *fleet.Sandbox) { l.clock.pass(31 * lifecycle.Day) }, func(l *lives) {
			l.clock.pass(time.Minute)
			l.settled(s.ID, fleet.Ended)
			l.wait(func() bool { return stored(t, home) == "0 0 0" })
		}},
		{"fetch", 9, func(l *lives, s *fleet.Sandbox) {
			l.clock.pass(8 * lifecycle.Day)
			for s.Info().State != fleet.Archived {
				select {
				case <-l.host.dead:
					return
				case <-time.After(time.Millisecond):
				}
			}
			_ = s.Ready(t.Context())
		}, func(l *lives) {
			l.clock.pass(time.Minute)
			l.wait(func() bool { got := stored(t, home); return got == "0 1 1" || got == "1 0 1" || got == "1 1 1" })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for at := 1; ; at++ {
				copyAll(saved, home)
				over := make(chan struct{})
				l := openLives(t, home, began, usual, at, over)
				s, err := l.Get("acme", s.ID)
				check(t, err)
				done := make(chan struct{})
				go func() {
					defer close(done)
					c.do(l, s)
				}()
				select {
				case <-l.host.dead:
				case <-time.After(2 * time.Second):
					close(over)
					if at <= c.points {
						t.Fatalf("%d points", at-1)
					}
					return
				}
				next := openLives(t, home, l.clock.Now(), usual, 0, nil)
				c.then(next)
				close(over)
				<-done
				next.Close()
				l.Close()
			}
		})
	}
}

// copies is an archive that copies the files of stored states.
type copies string

func (c copies) paths(run string) (here, there string) {
	return filepath.Join(string(c), "paused", run+".snapshot"), filepath.Join(string(c), "archive", run+".snapshot")
}

func (c copies) copy(from, to string) error {
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o700)
	}
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	return err
}

// Put implements fleet.Archive.
func (c copies) Put(_ context.Context, _ fleet.Request, run string, _ time.Time) error {
	here, there := c.paths(run)
	return c.copy(here, there)
}

// Fetch implements fleet.Archive.
func (c copies) Fetch(_ context.Context, _, id string) (run.Saved, error) {
	here, there := c.paths(id)
	return run.Saved{Size: 1}, c.copy(there, here)
}

// About implements fleet.Archive.
func (c copies) About(context.Context, string, string) ([]byte, error) { return nil, nil }

// Has implements fleet.Archive.
func (c copies) Has(context.Context, string, string) (bool, error) { return false, nil }

// Delete implements fleet.Archive.
func (c copies) Delete(_ context.Context, _, run string) error {
	_, there := c.paths(run)
	return os.RemoveAll(there)
}
