package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
)

// beating is a project whose sandboxes may give no sign of life for the shortest time that there is.
const beating = "version: 1\nlimits: {silence: 5s}\n"

// silent is longer than a sandbox of beating may be silent.
const silent = 12 * time.Second

// TestSilentWorker: a worker that is stopped is reported and killed, its record is closed with the reason, and its user gets an error.
// Another run goes on.
func TestSilentWorker(t *testing.T) {
	t.Parallel()
	s := newSeparated(t)
	s.user.project(beating)
	var errs, others bytes.Buffer
	stopped, _ := s.user.begunTo(&errs, "run", "-q", "--", "sh", "-c", "echo begun; echo; sleep 1000")
	worker := workerOf(t, s.host.Process.Pid)
	left := map[int]child{}
	for _, c := range below(s.host.Process.Pid) {
		left[c.pid] = c
	}
	other := s.user.command("run", "-q", "--", "sh", "-c", "echo begun; echo; read line; exit 3")
	in, err := other.StdinPipe()
	check(t, err)
	out, err := other.StdoutPipe()
	check(t, err)
	other.Stderr = &others
	s.user.start(other)
	awaitWord(t, out, "begun")
	check(t, unix.Kill(worker, unix.SIGSTOP))
	stopped.Wait()
	if code := stopped.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(errs.String(), "gave no sign of life") {
		t.Errorf("the run of a stopped worker exits %d: %s", code, errs.String())
	}
	if _, err := io.WriteString(in, "\n"); err != nil {
		t.Error(err)
	}
	io.Copy(io.Discard, out)
	other.Wait()
	if code := other.ProcessState.ExitCode(); code != 3 {
		t.Errorf("the other run exits %d: %s", code, others.String())
	}
	runs := s.admin.runs()
	if len(runs) != 2 || runs[1].Status != "interrupted" || runs[0].Status != "sealed" {
		t.Fatalf("the runs are %+v", runs)
	}
	s.admin.verified(runs[1].ID)
	records := s.admin.records(runs[1].ID)
	last := records[len(records)-1].Lifecycle
	if last == nil || last.Status != audit.StatusInterrupted || !strings.Contains(last.Reason, "no sign of life for 5s (limits.silence)") {
		t.Errorf("the record ends with %+v", last)
	}
	eventually(t, "gone: the sandbox", func() bool {
		for pid := range left {
			if _, err := os.Stat(fmt.Sprint("/proc/", pid)); err == nil {
				return false
			}
		}
		return true
	})
	s.root.nothingLeft(left)
}

// TestNotSilent: a run goes on if custody itself was stopped, if it is paused, and if its sandbox is busy, each for longer than a sandbox may give
// no sign of life.
func TestNotSilent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		during func(t *testing.T, d *door, custody int)
	}{
		"custody is stopped": {"sleep 15", func(t *testing.T, _ *door, custody int) {
			check(t, unix.Kill(custody, unix.SIGSTOP))
			time.Sleep(silent)
			check(t, unix.Kill(custody, unix.SIGCONT))
		}},
		"paused": {"sleep 5", func(_ *testing.T, d *door, _ int) {
			d.must(0, "pause", "last")
			time.Sleep(silent)
			d.must(0, "resume", "last")
		}},
		"busy": {"timeout 12 sh -c 'while :; do seq 1000; /bin/true; echo x >file; done'; true", func(*testing.T, *door, int) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newGVisorDoor(t)
			d.project(beating)
			var errs bytes.Buffer
			cmd, out := d.begunTo(&errs, "run", "-q", "--", "sh", "-c", "echo begun; echo; "+c.script)
			read := make(chan struct{})
			go func() {
				defer close(read)
				io.Copy(io.Discard, out)
			}()
			c.during(t, d, cmd.Process.Pid)
			<-read
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v: %s", err, errs.String())
			}
			d.verified("last")
		})
	}
}
