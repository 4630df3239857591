package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"crypto/rand"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/vmm/template"
	"github.com/custody-project/custody/vmm/vmtest"
)

// record is a Recorder in memory.
type record struct {
	mu     sync.Mutex // guards events
	events []audit.Event
}

func (r *record) Post(_ context.Context, ev audit.Event) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, ev)
	return uint64(len(r.events)), nil
}

func (r *record) Record(ctx context.Context, ev audit.Event) (uint64, error) { return r.Post(ctx, ev) }
func (r *record) Sync(context.Context, uint64) error                         { return nil }

func (r *record) all() []audit.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// inTiers runs a test with the driver of vmtest and with gVisor.
func inTiers(t *testing.T, test func(t *testing.T, d template.Driver)) {
	t.Run("vm", func(t *testing.T) { test(t, vmtest.Driver(t)) })
	t.Run("gvisor", func(t *testing.T) { test(t, vmtest.GVisor(t)) })
}

// start starts a sandbox, which is closed at the end of the test.
func start(t testing.TB, d template.Driver) *sandbox.Warm {
	t.Helper()
	m := vmtest.Describe(t, d, vmtest.Options{})
	w, err := sandbox.Start(t.Context(), sandbox.Machine{
		ID: "warm-" + strings.ToLower(rand.Text()[:8]), Driver: d, Image: m.Image, Scratch: m.Scratch, CPUs: m.CPUs, Memory: m.Memory, ScratchSize: shape.Disk,
	})
	must(t, err)
	t.Cleanup(func() { must(t, w.Close(context.Background())) })
	return w
}

func warm(t testing.TB, d template.Driver) *sandbox.Warm {
	t.Helper()
	w := start(t, d)
	must(t, w.Rehearse(t.Context()))
	must(t, w.Check(t.Context()))
	return w
}

// assign makes w the sandbox of a run.
func assign(t testing.TB, w *sandbox.Warm, run string) (*sandbox.Sandbox, *record) {
	t.Helper()
	r := &record{}
	parts := sandbox.Parts{Recorder: r, Redactor: redact.New([]byte("key")), Notice: func(text string) { t.Log(text) }}
	settings := sandbox.Settings{
		Run: run, Memory: shape.Memory, PIDs: 256, Output: 1 << 20, Sensor: true, Files: channel.FileSettings{ReadOver: 8 << 20},
	}
	s, err := w.Assign(t.Context(), parts, settings, func(err error) { t.Errorf("abort: %v", err) })
	must(t, err)
	must(t, s.Identify(t.Context()))
	return s, r
}

// bash runs a script as a step and returns its output.
func bash(t testing.TB, s *sandbox.Sandbox, script string) string {
	t.Helper()
	var out bytes.Buffer
	exit, err := s.Step(t.Context(), sandbox.Step{
		Name: "main", Argv: []string{"bash", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/workspace", Stdout: &out, Stderr: &out,
	})
	must(t, err)
	if exit.Code != 0 {
		t.Fatalf("%s: exit code %d: %s%s", script, exit.Code, exit.Error, out.String())
	}
	return out.String()
}

// TestWarm: sandboxes that were warmed up from one template get different randomness, their own names and the time with their
// identity, and nothing of the rehearsal is left in them or in the records.
func TestWarm(t *testing.T) {
	inTiers(t, func(t *testing.T, d template.Driver) {
		const files = `find / -xdev ! -path '/proc/*' ! -path '/sys/*' -printf '%p %s %y\n' | sort`
		cold, _ := assign(t, start(t, d), "r-c")
		want := bash(t, cold, files)
		random := map[string]string{}
		for _, run := range []string{"r-a", "r-b"} {
			s, r := assign(t, warm(t, d), run)
			before := time.Now().Add(-time.Second)
			// The first program that runs reads from the kernel's generator.
			facts := strings.Fields(bash(t, s, `head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n'; echo
date +%s; uname -n; cat /etc/hostname; cat /etc/machine-id; ls -d /proc/[0-9]* | wc -l`))
			if len(facts) != 6 || len(facts[0]) != 64 {
				t.Fatalf("%q", facts)
			}
			for i, fact := range map[string]string{"random": facts[0], "machine-id": facts[4]} {
				if other, ok := random[i+fact]; ok {
					t.Errorf("%s and %s have the same %s: %s", other, run, i, fact)
				}
				random[i+fact] = run
			}
			seconds, err := strconv.ParseInt(facts[1], 10, 64)
			must(t, err)
			if now := time.Unix(seconds, 0); now.Before(before.Truncate(time.Second)) || now.After(time.Now().Add(time.Second)) {
				t.Errorf("the clock is %s at %s", now, time.Now())
			}
			if facts[2] != run || facts[3] != run {
				t.Errorf("%s is called %s, %s", run, facts[2], facts[3])
			}
			if n, _ := strconv.Atoi(facts[5]); n > 4 { // the cell's first, bash, ls and wc
				t.Errorf("%d processes", n)
			}
			if got := bash(t, s, files); got != want {
				t.Errorf("files of a warm sandbox that a cold one does not have, or reversed: %s", difference(want, got))
			}
			checkRecord(t, r)
			must(t, s.Close(t.Context()))
		}
	})
}

// checkRecord checks that a record has only events of the VM and of the step, and begins with the VM's start before the run.
func checkRecord(t *testing.T, r *record) {
	t.Helper()
	execs := 0
	for i, ev := range r.all() {
		switch {
		case i == 0 && (ev.VM == nil || !strings.HasPrefix(ev.VM.Reason, "before the run, at ")):
			t.Errorf("the first event is %+v", ev)
		case ev.Kind == audit.KindVM, ev.Kind == audit.KindGap && ev.Gap.Stage == audit.StageDriver:
		case ev.Step != "main":
			t.Errorf("an event of no step: %+v", ev)
		case ev.Exec != nil:
			execs++
		}
		if ev.Exec != nil && slices.ContainsFunc(ev.Exec.Argv, func(a audit.Text) bool { return a == "true" || a == "/dev/null" }) {
			t.Errorf("the rehearsal is in the record: %q", ev.Exec.Argv)
		}
		if ev.Exec != nil && ev.Exec.Proc == "" {
			t.Errorf("an exec without an ID: %+v", ev.Exec)
		}
	}
	if execs == 0 {
		t.Error("no exec was recorded")
	}
}

func difference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	only := func(x, y []string) (list []string) {
		seen := map[string]bool{}
		for _, s := range y {
			seen[s] = true
		}
		for _, s := range x {
			if !seen[s] && len(list) < 10 {
				list = append(list, s)
			}
		}
		return list
	}
	return fmt.Sprintf("only cold %q, only warm %q", only(a, b), only(b, a))
}

// TestAssignOnce: a warm sandbox is that of one run, and is not rehearsed any more.
func TestAssignOnce(t *testing.T) {
	w := warm(t, vmtest.GVisor(t))
	s, _ := assign(t, w, "r-a")
	if _, err := w.Assign(t.Context(), sandbox.Parts{Recorder: &record{}}, sandbox.Settings{Run: "r-b"}, nil); err == nil {
		t.Error("it was assigned to a second run")
	}
	if err := w.Rehearse(t.Context()); err == nil {
		t.Error("it was rehearsed")
	}
	if out := bash(t, s, "uname -n"); out != "r-a\n" {
		t.Errorf("%q", out)
	}
}

// TestWarmDies: the death of a sandbox that no run has is noticed.
func TestWarmDies(t *testing.T) {
	inTiers(t, func(t *testing.T, d template.Driver) {
		before := children(t)
		w := warm(t, d)
		for _, pid := range children(t) {
			if !slices.Contains(before, pid) {
				must(t, unix.Kill(pid, unix.SIGKILL))
			}
		}
		<-w.Done()
		if err := w.Check(t.Context()); err == nil {
			t.Error("the check passes")
		}
		s, err := w.Assign(t.Context(), sandbox.Parts{Recorder: &record{}}, sandbox.Settings{Run: "r-a"}, func(error) {})
		must(t, err)
		if err := s.Identify(t.Context()); !errors.Is(err, sandbox.ErrVMDied) {
			t.Errorf("identify: %v", err)
		}
	})
}

// unwritable is a record that never becomes durable.
type unwritable struct{ *record }

func (unwritable) Sync(context.Context, uint64) error { return errors.New("no space") }

// TestUnrecorded: a sandbox gets no identity if the start of its run cannot be recorded.
func TestUnrecorded(t *testing.T) {
	w := warm(t, vmtest.GVisor(t))
	take := func(context.Context) (*sandbox.Warm, error) { return w, nil }
	r := &record{}
	parts := sandbox.Parts{Recorder: unwritable{r}, Redactor: redact.New([]byte("key")), Notice: func(string) {}}
	steps := []sandbox.Step{{Name: "main", Argv: []string{"true"}}}
	plan := sandbox.Plan{Steps: steps, Time: time.Minute}
	res := sandbox.Run(t.Context(), take, parts, sandbox.Settings{Run: "r-a"}, plan, func(*sandbox.Sandbox) { t.Error("it was assigned") })
	if res.Err == nil || !strings.Contains(res.Err.Error(), "no space") {
		t.Errorf("%v", res.Err)
	}
	<-w.Done()
	for _, ev := range r.all() {
		if ev.Kind != audit.KindRun {
			t.Errorf("recorded: %+v", ev)
		}
	}
}

// children returns the processes that this one has started.
func children(t *testing.T) (pids []int) {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	must(t, err)
	for _, list := range lists {
		b, _ := os.ReadFile(list) // a thread can have ended
		for _, word := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(word)
			must(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
