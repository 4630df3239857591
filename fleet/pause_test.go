package fleet_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/fleet"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/quota"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/vmm/vmtest"
)

// newVMRig is like newRig, with sandboxes in virtual machines.
func newVMRig(t *testing.T, c fleet.Config) *rig {
	t.Helper()
	return openRig(t, t.TempDir(), fmt.Sprintf("isolation: {require: %s}\n", vmtest.Driver(t).Tier()), c, quota.Config{})
}

// wait waits until the output of a process has n lines after the first skip bytes, and returns all of it from there.
func lines(t *testing.T, p *fleet.Process, skip int64, n int) string {
	t.Helper()
	o, err := p.Output("stdout")
	check(t, err)
	var all []byte
	for strings.Count(string(all), "\n") < n {
		b, err := o.Read(t.Context(), skip+int64(len(all)), 1<<20)
		check(t, err)
		if len(b) == 0 {
			t.Fatalf("the output ends after %q", all)
		}
		all = append(all, b...)
	}
	return string(all)
}

// TestPause: a sandbox is paused and continues with its processes, files and inputs, repeatedly; each time has its own run.
func TestPause(t *testing.T) {
	r := newVMRig(t, fleet.Config{})
	s := r.create(fleet.Request{})
	r.sh(s, "echo kept > /root/file; exec sleep 0.01")
	counter, err := s.Start(t.Context(), run.Command{Argv: []string{"sh", "-c", "i=0; while :; do echo $((i+=1)); sleep 0.02; done"}}, false)
	check(t, err)
	cat, err := s.Start(t.Context(), run.Command{Argv: []string{"cat"}}, true)
	check(t, err)
	const rounds = 3
	all := ""
	for i := range rounds {
		all += lines(t, counter, int64(len(all)), 20)
		if i == 1 {
			_, err := cat.Write(t.Context(), []byte("before the pause\n"))
			check(t, err)
		}
		check(t, s.Pause(t.Context()))
		info := s.Info()
		if info.State != fleet.Paused || info.Paused.IsZero() || info.Stored == 0 || info.Files != "" || info.Running != 2 {
			t.Fatalf("round %d: %+v", i, info)
		}
		check(t, s.Ready(t.Context()))
		if info := s.Info(); info.State != fleet.Live || len(info.Runs) != i+2 || info.Runs[0] != s.ID {
			t.Fatalf("round %d: %+v", i, info)
		}
	}
	all += lines(t, counter, int64(len(all)), 20)
	for i, line := range strings.Split(strings.TrimSuffix(all, "\n"), "\n") {
		if line != fmt.Sprint(i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
	if got := r.sh(s, "cat /root/file"); got != "kept\n" {
		t.Errorf("the file: %q", got)
	}
	_, err = cat.Write(t.Context(), []byte("after it\n"))
	check(t, err)
	check(t, cat.CloseInput())
	if got := read(t, cat, "stdout"); got != "before the pause\nafter it\n" {
		t.Errorf("cat prints %q", got)
	}
	if exit, _, err := cat.Exit(); err != nil || exit != (channel.Exit{}) {
		t.Errorf("cat ends with %+v, %v", exit, err)
	}
	check(t, counter.Signal(t.Context(), 15))
	if _, _, err := counter.Exit(); err != nil {
		t.Errorf("the counter: %v", err)
	}
	check(t, s.Pause(t.Context()))
	check(t, s.Destroy(t.Context()))
	if err := s.Ready(t.Context()); !errors.Is(err, fleet.ErrEnded) {
		t.Errorf("a destroyed sandbox: %v", err)
	}
	_ = time.Second
}
