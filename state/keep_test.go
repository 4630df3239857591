package state_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/state"
)

// TestSweep: a sweep reports and removes what has expired, and nothing else. Expiry is given for each snapshot.
func TestSweep(t *testing.T) {
	p := newPlace(t)
	var removed []string
	var refuse error
	p.config.Removing = func(_ context.Context, i state.Info, why state.Reason) error {
		removed = append(removed, fmt.Sprint(i.Run, " ", why))
		return refuse
	}
	s := p.open(t)
	for run, keep := range map[string]time.Duration{"r-hour": time.Hour, "r-day": 24 * time.Hour, "r-default": 0} {
		m := of(run)
		m.Keep = keep
		put(t, s, m, "text")
	}
	for _, step := range []struct {
		after time.Duration
		want  []string
		left  []string
	}{
		{time.Hour - 1, nil, []string{"r-day.snapshot", "r-default.snapshot", "r-hour.snapshot"}},
		{1, []string{"r-hour expired"}, []string{"r-day.snapshot", "r-default.snapshot"}},
		{23 * time.Hour, []string{"r-day expired"}, []string{"r-default.snapshot"}},
	} {
		p.clock.Time = p.clock.Add(step.after)
		removed = nil
		must(t, s.Sweep(t.Context()))
		if !slices.Equal(removed, step.want) || !slices.Equal(p.names(t), step.left) {
			t.Errorf("after %v: it removes %q and leaves %q", step.after, removed, p.names(t))
		}
	}
	p.clock.Time = p.clock.Add(30 * 24 * time.Hour)
	refuse = errors.New("the record is full")
	if err := s.Sweep(t.Context()); !errors.Is(err, refuse) || len(p.names(t)) != 1 {
		t.Errorf("a removal that is refused: %v, and there are %q", err, p.names(t))
	}
	refuse = nil
	must(t, s.Sweep(t.Context()))
	if len(p.names(t)) > 0 {
		t.Errorf("there are %q", p.names(t))
	}
}

// TestBudget: a commit removes the oldest snapshots until it fits, those that have expired first, and none that is in use.
func TestBudget(t *testing.T) {
	p := newPlace(t)
	var removed []string
	p.config.Budget = 4<<20 + 64<<10
	p.config.Removing = func(_ context.Context, i state.Info, why state.Reason) error {
		removed = append(removed, fmt.Sprint(i.Run, " ", why))
		return nil
	}
	s := p.open(t)
	put1 := func(run string, keep time.Duration, megabytes int) error {
		p.clock.Time = p.clock.Add(time.Second)
		m := of(run)
		m.Keep = keep
		w, err := s.Create(t.Context(), m)
		must(t, err)
		for i := range megabytes {
			if err := w.Part(fmt.Sprintf("part-%d", i), strings.NewReader(string(incompressible(1)))); err != nil {
				return err
			}
		}
		_, err = w.Commit(t.Context())
		return err
	}
	check := func(wantRemoved, left string) {
		t.Helper()
		if got := strings.Join(removed, ", "); got != wantRemoved {
			t.Errorf("it removes %q, want %q", got, wantRemoved)
		}
		if got := strings.ReplaceAll(strings.Join(p.names(t), " "), ".snapshot", ""); got != left {
			t.Errorf("there are %q, want %q", got, left)
		}
		removed = nil
	}
	must(t, put1("r-1", 0, 1))
	must(t, put1("r-2", 0, 1))
	must(t, put1("r-3", time.Second, 1))
	must(t, put1("r-4", 0, 1))
	check("", "r-1 r-2 r-3 r-4")
	must(t, put1("r-4", 0, 1)) // replaces its own
	check("", "r-1 r-2 r-3 r-4")
	must(t, put1("r-5", 0, 1))
	check("r-3 expired", "r-1 r-2 r-4 r-5")
	snap, err := s.Share(t.Context(), of("r-1").Binding)
	must(t, err)
	must(t, put1("r-6", 0, 2))
	check("r-2 budget, r-4 budget", "r-1 r-5 r-6")
	if err := put1("r-7", 0, 4); !errors.Is(err, state.ErrBudget) {
		t.Errorf("a snapshot that fits only without one that is in use: %v", err)
	}
	check("r-5 budget, r-6 budget", "r-1")
	if err := put1("r-8", 0, 5); !errors.Is(err, state.ErrBudget) {
		t.Errorf("a snapshot larger than the budget: %v", err)
	}
	check("", "r-1")
	must(t, snap.Release())
	must(t, put1("r-9", 0, 2))
	check("", "r-1 r-9")
	p.config.Budget = 2<<20 + 64<<10 // the host's configuration has changed
	must(t, p.open(t).Sweep(t.Context()))
	check("r-1 budget", "r-9")
}

// TestList: snapshots are listed by tenant, oldest first. What is damaged has no tenant, and is swept by its age.
func TestList(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	for i, tenant := range []string{"acme", "other", "acme", ""} {
		m := of(fmt.Sprintf("r-%d", 9-i))
		m.Tenant = tenant
		p.clock.Time = p.clock.Add(time.Second)
		info := put(t, s, m, "text")
		if got, err := s.Stat(m.Run); err != nil || got != info {
			t.Errorf("Stat returns %+v, %v, and Commit %+v", got, err, info)
		}
	}
	damaged := filepath.Join(p.dir, "r-0.snapshot")
	must(t, os.WriteFile(damaged, []byte("custody snapshot 1\n{}"), 0o600))
	must(t, os.Chtimes(damaged, p.clock.Time, p.clock.Time))
	must(t, os.Mkdir(filepath.Join(p.dir, "r-dir.snapshot"), 0o600))
	for tenant, want := range map[string]string{"acme": "r-9 r-7", "other": "r-8", "": "r-6", "none": ""} {
		list, err := s.List(t.Context(), tenant)
		must(t, err)
		var runs []string
		for _, i := range list {
			runs = append(runs, i.Run)
		}
		if got := strings.Join(runs, " "); got != want {
			t.Errorf("tenant %q has %q, want %q", tenant, got, want)
		}
	}
	list, err := s.Damaged(t.Context())
	if err != nil || len(list) != 1 || list[0].Run != "r-0" {
		t.Errorf("damaged: %v, %v", list, err)
	}
	if _, err := s.Claim(t.Context(), of("r-0").Binding); !errors.Is(err, state.ErrAltered) {
		t.Errorf("a damaged one is claimed: %v", err)
	}
	p.clock.Time = p.clock.Add(state.DefaultKeep)
	must(t, s.Sweep(t.Context()))
	if list, err := s.Damaged(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("damaged, after a sweep: %v, %v", list, err)
	}
}

// TestErase: an erasure reaches all of a run and nothing of others, and returns what it removed.
func TestErase(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	info := put(t, s, of("r-1"), "text")
	put(t, s, of("r-1.x"), "text")
	half, err := s.Create(t.Context(), of("r-1"))
	must(t, err)
	other, err := s.Create(t.Context(), of("r-1.x"))
	must(t, err)
	held, err := os.Open(filepath.Join(p.dir, "r-1.snapshot"))
	must(t, err)
	defer held.Close()
	removed, err := s.Erase(t.Context(), "r-1")
	if !errors.Is(err, state.ErrClaimed) || !slices.Equal(removed, []state.Info{info}) {
		t.Errorf("while a snapshot is being written: %v, %v", removed, err)
	}
	if b := contents(t, held); strings.Trim(string(b[:min(len(b), 32<<10)]), "\x00") != "" {
		t.Error("the wrapped key is still on the disk")
	}
	half.Abort()
	removed, err = s.Erase(t.Context(), "r-1")
	if err != nil || len(removed) > 0 || len(p.names(t)) != 2 {
		t.Errorf("nothing to erase: %v, %v; there are %q", removed, err, p.names(t))
	}
	other.Abort()
	snap, err := s.Claim(t.Context(), of("r-1.x").Binding)
	must(t, err)
	must(t, snap.Release())
}
