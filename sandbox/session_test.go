package sandbox_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/vmm/template"
)

// session runs steps in a session, and returns what was recorded.
func session(t *testing.T, d template.Driver, do sandbox.Session) []audit.Event {
	t.Helper()
	r := &record{}
	parts := sandbox.Parts{Recorder: r, Redactor: redact.New([]byte("key")), Notice: func(text string) { t.Log(text) }}
	settings := sandbox.Settings{
		Run: "r-session", Memory: shape.Memory, PIDs: 256, Output: 1 << 20, Sensor: true, Files: channel.FileSettings{ReadOver: 8 << 20},
	}
	w := start(t, d)
	res := sandbox.Run(t.Context(), func(context.Context) (*sandbox.Warm, error) { return w, nil }, parts, settings,
		sandbox.Plan{Time: 10 * time.Minute, Session: do}, func(*sandbox.Sandbox) {})
	if res.Err != nil || res.Status != audit.StatusDone {
		t.Errorf("the run ended with %+v", res)
	}
	return r.all()
}

// command runs a script as a step of a session.
func command(t *testing.T, s *sandbox.Sandbox, name, script string, in io.Reader) string {
	t.Helper()
	var out bytes.Buffer
	exit, err := s.Step(t.Context(), sandbox.Step{
		Name: name, Session: true, Argv: []string{"bash", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/workspace", Stdin: in, Stdout: &out, Stderr: &out,
	})
	if err != nil || exit.Code != 0 {
		t.Errorf("%s: %+v, %v: %s", name, exit, err, out.String())
	}
	return out.String()
}

// TestSession: steps of a session run concurrently, and every process and file has the step that it belongs to, also of what a step
// leaves behind.
func TestSession(t *testing.T) {
	inTiers(t, func(t *testing.T, d template.Driver) {
		const all = 6
		events := session(t, d, func(_ context.Context, s *sandbox.Sandbox) error {
			command(t, s, "first", "(until [ -e go ]; do sleep 0.1; done; cp /bin/true late; sleep 1000) >/dev/null 2>&1 &", nil)
			var waits sync.WaitGroup
			var inputs []*io.PipeWriter
			for i := range all {
				r, w := io.Pipe()
				inputs = append(inputs, w)
				waits.Go(func() {
					name := fmt.Sprint("p", i)
					out := command(t, s, name, fmt.Sprintf("echo %s; read -r line; cat /dev/null; echo $line > file-%s", name, name), r)
					if out != name+"\n" {
						t.Errorf("%s printed %q", name, out)
					}
				})
			}
			for _, w := range inputs {
				fmt.Fprintln(w, "hello")
				w.Close()
			}
			waits.Wait()
			command(t, s, "last", "touch go; until [ -s late ]; do sleep 0.1; done; sleep 1", nil)
			return nil
		})
		files, execs := map[string]string{}, map[string]int{}
		for _, e := range events {
			switch {
			case e.File != nil && e.File.SHA256 != "":
				files[string(e.File.Path)] = e.Step
			case e.Exec != nil && len(e.Exec.Argv) > 0 && (e.Exec.Argv[0] == "cat" || e.Exec.Argv[0] == "cp"):
				execs[e.Step]++
			case e.Kind == audit.KindGap && e.Gap.Stage != audit.StageDriver:
				t.Errorf("gap: %+v", e.Gap)
			}
		}
		for i := range all {
			name := fmt.Sprint("p", i)
			if execs[name] != 1 || files["/workspace/file-"+name] != name {
				t.Errorf("%s has %d execs; the step of its file is %q", name, execs[name], files["/workspace/file-"+name])
			}
		}
		if execs["first"] != 1 || files["/workspace/late"] != "first" {
			t.Errorf("what was left behind has %d execs; the step of its file is %q", execs["first"], files["/workspace/late"])
		}
		if last := events[len(events)-1]; last.Kind != audit.KindRun || last.Lifecycle.Phase != audit.PhaseEnd {
			t.Errorf("the last event is %+v", last)
		}
	})
}

// TestSessionFails: a command that cannot be started does not end the session.
func TestSessionFails(t *testing.T) {
	inTiers(t, func(t *testing.T, d template.Driver) {
		session(t, d, func(ctx context.Context, s *sandbox.Sandbox) error {
			exit, err := s.Step(ctx, sandbox.Step{Name: "missing", Session: true, Argv: []string{"no-such-program"}, Env: []string{"PATH=/bin"}})
			if err != nil || exit.Code != 127 {
				t.Errorf("%+v, %v", exit, err)
			}
			exit, err = s.Step(ctx, sandbox.Step{Name: "timed", Session: true, Argv: []string{"sleep", "1000"}, Env: []string{"PATH=/bin"}, Time: time.Second})
			if err == nil || !strings.Contains(err.Error(), "time limit") {
				t.Errorf("%+v, %v", exit, err)
			}
			if out := command(t, s, "next", "echo works", nil); out != "works\n" {
				t.Errorf("the next command printed %q", out)
			}
			return nil
		})
	})
}
