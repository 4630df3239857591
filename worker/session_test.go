package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/worker"
)

// process is a process of a session with pipes.
type process struct {
	*worker.Started
	stdin *os.File
	out   chan string
}

// begin starts a process that executes a script.
func begin(t *testing.T, s *worker.Session, p worker.Process, script string) (*process, error) {
	t.Helper()
	var files [6]*os.File
	for i := range 3 {
		r, w, err := os.Pipe()
		must(t, err)
		files[2*i], files[2*i+1] = r, w
	}
	p.Argv, p.Env, p.Dir = []string{"bash", "-c", script}, []string{"PATH=/usr/bin:/bin", "HOME=/root"}, "/workspace"
	started, err := s.Start(t.Context(), p, files[0], files[3], files[5])
	for _, i := range []int{0, 3, 5} {
		files[i].Close()
	}
	if err != nil {
		for _, i := range []int{1, 2, 4} {
			files[i].Close()
		}
		return nil, err
	}
	got := &process{started, files[1], make(chan string, 1)}
	go func() {
		var text [2]string
		var all sync.WaitGroup
		for i, f := range []*os.File{files[2], files[4]} {
			all.Go(func() {
				b, _ := io.ReadAll(f)
				f.Close()
				text[i] = string(b)
			})
		}
		all.Wait()
		got.out <- text[0] + text[1]
	}()
	return got, nil
}

// end closes the input of a process, and returns how it ended and what it printed.
func (p *process) end() (exit channel.Exit, out string, err error) {
	p.stdin.Close()
	exit, err = p.Exit()
	return exit, <-p.out, err
}

// TestSession: processes are started, signalled and resized in a session, and their record verifies.
func TestSession(t *testing.T) {
	eachTier(t, func(t *testing.T, d driver) {
		r := newRig(t, d, "")
		r.options.Steps = nil
		var left *process
		r.options.Serve = func(_ context.Context, s *worker.Session) {
			first, err := begin(t, s, worker.Process{Name: "first"}, "read -r line; echo got $line; exit 4")
			must(t, err)
			if _, err := begin(t, s, worker.Process{Name: "first"}, "true"); err == nil {
				t.Error("two processes have one name")
			}
			killed, err := begin(t, s, worker.Process{Name: "killed"}, "trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.1; done")
			must(t, err)
			second, err := begin(t, s, worker.Process{Name: "second"}, "echo other >&2; echo x >file")
			must(t, err)
			if exit, out, err := second.end(); err != nil || exit.Code != 0 || out != "other\n" {
				t.Errorf("the second process: %+v, %v, %q", exit, err, out)
			}
			must(t, s.Signal(t.Context(), "killed", syscall.SIGTERM))
			if exit, out, err := killed.end(); err != nil || exit.Code != 9 && exit.Signal != int(syscall.SIGTERM) {
				t.Errorf("the signalled process: %+v, %v, %q", exit, err, out)
			}
			if err := s.Signal(t.Context(), "killed", syscall.SIGTERM); err == nil || !strings.Contains(err.Error(), "no process") {
				t.Errorf("a signal to a process that has ended: %v", err)
			}
			fmt.Fprintln(first.stdin, "it")
			if exit, out, err := first.end(); err != nil || exit.Code != 4 || out != "got it\n" {
				t.Errorf("the first process: %+v, %v, %q", exit, err, out)
			}
			left, err = begin(t, s, worker.Process{Name: "left"}, "sleep 1000")
			must(t, err)
			waits, err := begin(t, s, worker.Process{Name: "waits"}, "until pgrep sleep; do read -r -t 0.1; done </dev/zero")
			must(t, err)
			waits.end()
		}
		result, err := r.run(t.Context())
		if err != nil || result.Err != nil || result.Status != audit.StatusDone || result.ExitCode != 0 {
			t.Fatalf("%+v, %v", result, err)
		}
		if exit, _, err := left.end(); !errors.Is(err, context.Canceled) {
			t.Errorf("the process that was left: %+v, %v", exit, err)
		}
		ends := map[string]audit.Status{}
		for _, rec := range r.records(t) {
			if rec.Kind == audit.KindStep && rec.Lifecycle.Phase == audit.PhaseEnd {
				ends[rec.Step] = rec.Lifecycle.Status
			}
		}
		if len(ends) != 5 || ends["left"] != audit.StatusCancelled || ends["first"] != audit.StatusDone {
			t.Errorf("the steps ended %v", ends)
		}
		if problems := r.events.all("problem"); len(problems) > 0 {
			t.Errorf("problems %q", problems)
		}
	})
}

// TestSessionKilled: when the worker dies, its processes have ended, and Serve returns.
func TestSessionKilled(t *testing.T) {
	eachTier(t, func(t *testing.T, d driver) {
		r := newRig(t, d, "")
		r.options.Steps = nil
		r.options.Serve = func(ctx context.Context, s *worker.Session) {
			p, err := begin(t, s, worker.Process{Name: "p"}, "sleep 1000")
			must(t, err)
			kill(t, <-r.worker)
			if _, _, err := p.end(); err == nil {
				t.Error("the process has no error")
			}
			<-ctx.Done()
		}
		result, err := r.run(t.Context())
		if err != nil || !errors.Is(result.Err, worker.ErrDied) || result.Status != audit.StatusInterrupted {
			t.Fatalf("%+v, %v", result, err)
		}
		r.records(t)
	})
}
