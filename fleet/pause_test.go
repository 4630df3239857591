package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
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
func lines(t testing.TB, p *fleet.Process, skip int64, n int) string {
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
}

// TestPausedRestart: a paused sandbox continues in another process of the service.
func TestPausedRestart(t *testing.T) {
	r := newVMRig(t, fleet.Config{})
	s := r.create(fleet.Request{Session: "mine", Metadata: map[string]string{"a": "b"}})
	counter, err := s.Start(t.Context(), run.Command{Argv: []string{"sh", "-c", "i=0; while :; do echo $((i+=1)); sleep 0.02; done"}}, false)
	check(t, err)
	r.sh(s, "echo first")
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
	r.Close()

	r = openRig(t, r.home, r.setting, fleet.Config{}, quota.Config{})
	again, err := r.Get("acme", s.ID)
	check(t, err)
	if i := again.Info(); i.State != fleet.Paused || i.Running != 1 || i.Metadata["a"] != "b" || i.Stored == 0 {
		t.Fatalf("after the restart: %+v", i)
	}
	if same := r.create(fleet.Request{Session: "mine", Metadata: map[string]string{"a": "b"}}); same != again {
		t.Error("the session has another sandbox")
	}
	counter, err = again.Process(counter.Name)
	check(t, err)
	if o, err = counter.Output("stdout"); err == nil {
		_, err = o.Read(t.Context(), 0, 1)
	}
	if !errors.As(err, new(*fleet.Gone)) {
		t.Errorf("the output of before: %v", err)
	}
	check(t, again.Ready(t.Context()))
	all := before + lines(t, counter, int64(len(before)), 20)
	for i, line := range strings.Split(strings.TrimSuffix(all, "\n"), "\n") {
		if line != fmt.Sprint(i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
	if p, err := again.Start(t.Context(), run.Command{Argv: []string{"true"}}, false); err != nil || p.Name != "p3" {
		t.Errorf("the next process: %+v, %v", p, err)
	}
	check(t, again.Destroy(t.Context()))
	left, err := filepath.Glob(filepath.Join(r.home, "paused*", "r-*"))
	if check(t, err); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
}

// timeout returns a context that is done soon.
func timeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestFork: sandboxes made from one continue from the same point, each on its own, as does the first.
func TestFork(t *testing.T) {
	r := newVMRig(t, fleet.Config{})
	s := r.create(fleet.Request{Session: "mine"})
	p, err := s.Start(t.Context(), run.Command{Argv: []string{"sh", "-c", "echo before; read name; echo $name > /root/name; echo I am $name"}}, true)
	check(t, err)
	lines(t, p, 0, 1)
	forks, err := r.Fork(t.Context(), s, 2, "bob", nil)
	check(t, err)
	if i := s.Info(); i.State != fleet.Live || len(i.Runs) != 2 {
		t.Errorf("the first one: %+v", i)
	}
	hosts := map[string]bool{}
	for i, one := range append(forks, s) {
		p, err := one.Process(p.Name)
		check(t, err)
		name := fmt.Sprint("fork ", i)
		_, err = p.Write(t.Context(), []byte(name+"\n"))
		check(t, err)
		if got := lines(t, p, int64(len("before\n")), 1); got != "I am "+name+"\n" {
			t.Errorf("%s prints %q", name, got)
		}
		if got := r.sh(one, "cat /root/name"); got != name+"\n" {
			t.Errorf("the file of %s: %q", name, got)
		}
		hosts[r.sh(one, "hostname; cat /etc/machine-id")] = true
		if i := one.Info(); one != s && (i.Session != "" || i.Caller != "bob" || i.Runs[0] != one.ID) {
			t.Errorf("%s: %+v", name, i)
		}
	}
	if len(hosts) != 3 {
		t.Errorf("host names and machine IDs: %v", hosts)
	}
}

// TestPauseWhileStarting: processes that are started while the sandbox is paused and continues run once, and none is lost.
func TestPauseWhileStarting(t *testing.T) {
	r := newVMRig(t, fleet.Config{})
	s := r.create(fleet.Request{})
	check(t, s.Ready(t.Context()))
	const n, rounds = 40, 4
	var starting sync.WaitGroup
	starting.Go(func() {
		for i := range n {
			p, err := s.Start(t.Context(), run.Command{Argv: []string{"sh", "-c", fmt.Sprintf("echo %d >> /root/started; echo done", i)}}, false)
			if err != nil {
				t.Errorf("start %d: %v", i, err)
				continue
			}
			if exit, _, err := p.Exit(); err != nil || exit.Code != 0 {
				t.Errorf("process %d ends with %+v, %v", i, exit, err)
			}
			if got := read(t, p, "stdout"); got != "done\n" {
				t.Errorf("process %d prints %q", i, got)
			}
		}
	})
	for range rounds {
		check(t, s.Pause(t.Context()))
		check(t, s.Ready(t.Context())) // those that wait for a process do not wake the sandbox
	}
	starting.Wait()
	if got := r.sh(s, "wc -l < /root/started"); got != fmt.Sprintln(n) {
		t.Errorf("%s processes have run, in place of %d", got, n)
	}
	if runs := s.Info().Runs; len(runs) < 2 {
		t.Errorf("its runs: %q", runs)
	}
}
