package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/fleet"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/quota"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/state"
	"github.com/custody-project/custody/state/archive"
	"github.com/custody-project/custody/vmm/vmtest"
)

// archiveRig returns a host with an archive.
func archiveRig(t *testing.T, dir, key, group string) (*rig, fleet.Archive) {
	t.Helper()
	setting := fmt.Sprintf("isolation: {require: %s}\npaused: {archive: {to: %s, key: %s, group: %s}}\n", vmtest.Driver(t).Tier(), dir, key, group)
	home := t.TempDir()
	runs := runsOf(t, home)
	a := fleet.NewArchive(runs, func(ctx context.Context) (*archive.Archive, error) {
		h, err := host.Open(home)
		if err != nil {
			return nil, err
		}
		return host.OpenArchive(ctx, h)
	})
	return openRig(t, home, setting, fleet.Config{Runner: runs, Archive: a}, quota.Config{}), a
}

// TestAdopt: a sandbox that was paused and archived on one host continues on another one, which has another key of its own, and the same key of the
// archive.
func TestAdopt(t *testing.T) {
	dir, key := filepath.Join(t.TempDir(), "archive"), filepath.Join(t.TempDir(), "key")
	one, archived := archiveRig(t, dir, key, "tests")
	s := one.create(fleet.Request{Session: "mine", Metadata: map[string]string{"a": "b"}})
	counter, err := s.Start(t.Context(), run.Command{Argv: []string{"sh", "-c", "i=0; while :; do echo $((i+=1)); sleep 0.02; done"}}, false)
	check(t, err)
	one.sh(s, "echo kept > /root/file")
	before := lines(t, counter, 0, 20)
	check(t, s.Pause(t.Context()))
	o, err := counter.Output("stdout")
	check(t, err)
	for {
		b, err := o.Read(timeout(t, 0), int64(len(before)), 1<<20)
		if err != nil {
			break
		}
		before += string(b)
	}
	runs := s.Info().Runs
	paused := runs[len(runs)-1]
	if err := archived.Put(t.Context(), fleet.Request{Tenant: "other"}, paused, time.Time{}); !errors.Is(err, state.ErrBound) {
		t.Errorf("archived by another tenant: %v", err)
	}
	check(t, archived.Put(t.Context(), fleet.Request{Tenant: "acme"}, paused, time.Now().Add(time.Hour)))
	check(t, archived.Put(t.Context(), fleet.Request{Tenant: "acme"}, paused, time.Now().Add(time.Hour))) // after a lost answer
	h, err := host.Open(one.home)
	check(t, err)
	check(t, (&hostd.Host{Home: h}).Discard(t.Context(), "acme", paused))
	one.Close()

	stranger, _ := archiveRig(t, dir, key, "strangers")
	if _, err := stranger.Adopt(t.Context(), "acme", paused); !errors.Is(err, state.ErrBound) {
		t.Errorf("adopted by a host of another group: %v", err)
	}
	two, archived := archiveRig(t, dir, key, "tests")
	for _, bad := range [][2]string{{"other", paused}, {"acme", s.ID + "x"}} {
		if _, err := two.Adopt(t.Context(), bad[0], bad[1]); !errors.Is(err, fleet.ErrUnknown) {
			t.Errorf("adopted %q: %v", bad, err)
		}
	}
	if has, err := archived.Has(t.Context(), "acme", paused); !has || err != nil {
		t.Fatalf("the archive has the state: %v, %v", has, err)
	}
	again, err := two.Adopt(t.Context(), "acme", paused)
	check(t, err)
	if same, err := two.Adopt(t.Context(), "acme", paused); same != again || err != nil {
		t.Errorf("adopted again: %v, %v", same, err)
	}
	if has, err := archived.Has(t.Context(), "acme", paused); has || err != nil {
		t.Errorf("the archive still has the state: %v, %v", has, err)
	}
	if i := again.Info(); i.State != fleet.Paused || i.ID != s.ID || i.Running != 1 || i.Metadata["a"] != "b" || i.Stored == 0 {
		t.Fatalf("adopted: %+v", i)
	}
	counter, err = again.Process(counter.Name)
	check(t, err)
	check(t, again.Ready(t.Context()))
	all := before + lines(t, counter, int64(len(before)), 20)
	for i, line := range strings.Split(strings.TrimSuffix(all, "\n"), "\n") {
		if line != fmt.Sprint(i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
	if got := two.sh(again, "cat /root/file"); got != "kept\n" {
		t.Errorf("the file: %q", got)
	}
	if i := again.Info(); i.State != fleet.Live || time.Until(i.Expires) < time.Minute {
		t.Errorf("live: %+v", i)
	}
	check(t, again.Destroy(t.Context()))
	left, err := filepath.Glob(filepath.Join(two.home, "paused*", "r-*"))
	if check(t, err); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
	if _, err := os.Stat(filepath.Join(dir, "tenant-acme", paused+".snapshot")); !os.IsNotExist(err) {
		t.Errorf("the object: %v", err)
	}
}
