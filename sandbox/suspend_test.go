package sandbox_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/vmm/vmtest"
)

// recorded returns the output of a step in the record, whose offsets must be without a gap.
func recorded(t *testing.T, r *record, step, stream string) string {
	t.Helper()
	var out strings.Builder
	for _, ev := range r.all() {
		if ev.Step != step || ev.Output == nil || ev.Output.Stream != stream {
			continue
		}
		if ev.Output.Offset != int64(out.Len()) {
			t.Fatalf("%s: output at offset %d follows %d bytes", step, ev.Output.Offset, out.Len())
		}
		out.WriteString(string(ev.Output.Text))
	}
	return out.String()
}

// await returns when a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for until := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("waited too long: " + what)
		}
	}
}

// TestSuspend: the steps of a session end when the sandbox is suspended, and others continue their commands. Neither input nor output is
// lost; no step begins meanwhile.
func TestSuspend(t *testing.T) {
	s, r := assign(t, start(t, vmtest.Driver(t)), "r-suspended")
	in, input, err := os.Pipe()
	must(t, err)
	defer in.Close()
	defer input.Close()
	steps := []sandbox.Step{
		{Name: "counter", Argv: []string{"bash", "-c", `i=0; while [ $i -lt 1000000 ]; do echo $((i+=1)); sleep 0.05; done`}},
		{Name: "reader", Argv: []string{"bash", "-c", `echo ready >&2; cat; echo over >&2`}, Stdin: in},
	}
	type result struct {
		exit channel.Exit
		err  error
	}
	results := make([]chan result, len(steps))
	run := func() {
		for i, st := range steps {
			st.Session, st.Env, results[i] = true, []string{"PATH=/usr/bin:/bin"}, make(chan result, 1)
			go func() {
				exit, err := s.Step(t.Context(), st)
				results[i] <- result{exit, err}
			}()
		}
	}
	run()
	text := ""
	for round := range 3 {
		await(t, "the commands run", func() bool {
			return strings.Count(recorded(t, r, "counter", "stdout"), "\n") > 10*(round+1) && recorded(t, r, "reader", "stderr") != ""
		})
		line := fmt.Sprintf("round %d\n", round)
		text += line
		io.WriteString(input, line)
		must(t, suspension(s).Suspend(t.Context()))
		for i, st := range steps {
			if got := <-results[i]; !errors.Is(got.err, sandbox.ErrSuspended) {
				t.Fatalf("%s: %+v", st.Name, got)
			}
		}
		before := len(r.all())
		if err := suspension(s).Suspend(t.Context()); !errors.Is(err, sandbox.ErrSuspended) {
			t.Errorf("suspended again: %v", err)
		}
		if _, err := s.Step(t.Context(), sandbox.Step{Name: "early", Argv: []string{"true"}, Session: true}); !errors.Is(err, sandbox.ErrSuspended) {
			t.Errorf("a step while the sandbox is suspended: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
		if after := len(r.all()); after != before {
			t.Errorf("%d events while the sandbox is suspended", after-before)
		}
		must(t, suspension(s).Continue(t.Context()))
		for i := range steps {
			st := &steps[i]
			st.Attach = true
			st.Offsets = [2]int64{int64(len(recorded(t, r, st.Name, "stdout"))), int64(len(recorded(t, r, st.Name, "stderr")))}
		}
		run()
		await(t, "the steps are attached", func() bool {
			n := 0
			for _, ev := range r.all() {
				if ev.Kind == audit.KindStep && ev.Lifecycle.Phase == audit.PhaseStart {
					n++
				}
			}
			return n == len(steps)*(round+2)
		})
		must(t, suspension(s).Thaw(t.Context()))
	}
	input.Close()
	if got := <-results[1]; got.err != nil || got.exit.Code != 0 {
		t.Errorf("the reader: %+v", got)
	}
	if got := recorded(t, r, "reader", "stdout"); got != text {
		t.Errorf("the reader has got %q, want %q", got, text)
	}
	var kill sync.WaitGroup
	kill.Go(func() { <-results[0] })
	if got := killCommands(t, s); got != "killed\n" {
		t.Errorf("%q", got)
	}
	kill.Wait()
	n := 0
	for line := range strings.Lines(recorded(t, r, "counter", "stdout")) {
		if n++; line != fmt.Sprintln(n) {
			t.Fatalf("line %d of the counter is %q", n, line)
		}
	}
}

// killCommands kills the commands of the session.
func killCommands(t *testing.T, s *sandbox.Sandbox) string {
	t.Helper()
	var out strings.Builder
	exit, err := s.Step(t.Context(), sandbox.Step{
		Name: "killer", Argv: []string{"bash", "-c", "kill -9 -1; echo killed"}, Session: true, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out,
	})
	must(t, err)
	if exit.Code != 0 {
		t.Errorf("%+v", exit)
	}
	return out.String()
}

func suspension(s *sandbox.Sandbox) sandbox.Suspension { return sandbox.Suspension{Sandbox: s} }
