package fleet_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/fleet"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/quota"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/state"
	"github.com/custody-project/custody/vmm/vmtest"
)

// TestPauseNoRoom: a sandbox whose state does not fit on the disk, or into the budget, continues without a gap, and the error is distinct. Nothing is left.
func TestPauseNoRoom(t *testing.T) {
	home := t.TempDir()
	tier := fmt.Sprintf("isolation: {require: %s}\n", vmtest.Driver(t).Tier())
	r := openRig(t, home, tier+"paused: {budget: 4KiB}\n", fleet.Config{}, quota.Config{})
	s := r.create(fleet.Request{})
	counter, err := s.Start(t.Context(), run.Command{Argv: []string{"sh", "-c", "i=0; while :; do echo $((i+=1)); sleep 0.02; done"}}, false)
	check(t, err)
	all := ""
	for _, c := range []struct {
		name  string
		want  error
		begin func()
	}{
		{"budget", state.ErrBudget, func() {}},
		{"disk", unix.ENOSPC, func() {
			dir := filepath.Join(home, "paused")
			check(t, os.WriteFile(filepath.Join(home, "host.yaml"), []byte("version: 1\ntenant: acme\n"+tier), 0o600))
			check(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=700"))
			t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
		}},
	} {
		all += lines(t, counter, int64(len(all)), 20)
		c.begin()
		if c.want == unix.ENOSPC { // the budget is that of the run that began before
			check(t, s.Destroy(t.Context()))
			s, all = r.create(fleet.Request{}), ""
			counter, err = s.Start(t.Context(), run.Command{Argv: []string{"sh", "-c", "i=0; while :; do echo $((i+=1)); sleep 0.02; done"}}, false)
			check(t, err)
			all += lines(t, counter, 0, 20)
		}
		if err := s.Pause(t.Context()); !errors.Is(err, fleet.ErrConflict) || !errors.Is(err, c.want) || !strings.Contains(err.Error(), "continues") {
			t.Errorf("%s: %v", c.name, err)
		}
		if i := s.Info(); i.State != fleet.Live || i.Running != 1 {
			t.Errorf("%s: %+v", c.name, i)
		}
		all += lines(t, counter, int64(len(all)), 20)
		for i, line := range strings.Split(strings.TrimSuffix(all, "\n"), "\n") {
			if line != fmt.Sprint(i+1) {
				t.Fatalf("%s: line %d is %q", c.name, i+1, line)
			}
		}
		for _, dir := range []string{"paused", "paused-sandboxes"} {
			left, err := filepath.Glob(filepath.Join(home, dir, "*r-*"))
			if check(t, err); len(left) > 0 {
				t.Errorf("%s: left over: %q", c.name, left)
			}
		}
	}
}

// TestResumeOnce: of concurrent resumes one continues the sandbox, and all get it.
func TestResumeOnce(t *testing.T) {
	r := newVMRig(t, fleet.Config{})
	s := r.create(fleet.Request{})
	r.sh(s, "true")
	check(t, s.Pause(t.Context()))
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if err := s.Ready(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if runs := s.Info().Runs; len(runs) != 2 {
		t.Errorf("its runs: %q", runs)
	}
}

// searched is a writer that reports whether a text was written.
type searched struct {
	text  []byte
	rest  []byte
	found bool
}

// Write implements io.Writer.
func (s *searched) Write(p []byte) (int, error) {
	all := append(s.rest, p...)
	s.found = s.found || bytes.Contains(all, s.text)
	s.rest = append([]byte(nil), all[max(0, len(all)-len(s.text)):]...)
	return len(p), nil
}

// finds reports whether the memory that is stored of a run contains a text.
func (r *rig) finds(run, text string) bool {
	r.Helper()
	h, err := host.Open(r.home)
	check(r.TB, err)
	store, err := state.Open(h.States(), state.Config{Keys: state.KeyFile(h.StatesKey())})
	check(r.TB, err)
	info, err := store.Stat(run)
	check(r.TB, err)
	snap, err := store.Share(r.Context(), info.Binding)
	check(r.TB, err)
	defer snap.Release()
	s := &searched{text: []byte(text)}
	check(r.TB, snap.Pages(r.Context(), "memory", func(_, _ int64, data []byte) error {
		_, err := s.Write(data)
		return err
	}))
	devices, _, err := snap.Part("devices")
	check(r.TB, err)
	_, err = io.Copy(s, devices)
	check(r.TB, err)
	return s.found
}
