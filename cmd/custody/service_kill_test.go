package main

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// waiting starts a run that waits, and returns the processes that carry it out.
func (s *served) waiting() (cmd *exec.Cmd, errs *screen, left map[int]child) {
	s.user.Helper()
	c := s.user.command("run", "--", "sh", "-c", "echo ready; sleep 1000")
	out, errs := &screen{}, &screen{}
	c.Stdout, c.Stderr = out, errs
	s.user.start(c)
	out.await(s.user.T, "ready")
	left = map[int]child{}
	for _, c := range below(s.serve.Process.Pid) {
		left[c.pid] = c
	}
	if len(left) == 0 {
		s.user.Fatal("no process carries out the run")
	}
	return c, errs, left
}

// TestServiceClientKilled: the run of a client that is killed is cancelled, and the service continues.
func TestServiceClientKilled(t *testing.T) {
	s := newServed(t)
	cmd, _, left := s.waiting()
	cmd.Process.Kill()
	cmd.Wait()
	eventually(t, "closed: the record", func() bool { runs := s.admin.runs(); return len(runs) == 1 && string(runs[0].Status) == "sealed" })
	if run := s.admin.runs()[0]; string(run.Result) != "cancelled" {
		t.Errorf("the result is %s", run.Result)
	}
	eventually(t, "gone: the worker", func() bool { return !strings.Contains(childrenOf(s.serve.Process.Pid), "custody-worker") })
	s.admin.nothingLeft(left)
	s.admin.verified("last")
	s.user.must(0, "run", "--", "true")
}

// TestServiceKilled: a client whose service is killed reports it, and the record is closed as interrupted when the service starts again.
func TestServiceKilled(t *testing.T) {
	s := newServed(t)
	cmd, errs, left := s.waiting()
	s.serve.Process.Kill()
	s.serve.Wait()
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	s.user.contains(errs.String(), "the service ended before the run did")
	s.start() // in place of the socket's file
	s.user.must(0, "run", "--", "true")
	runs := s.admin.runs()
	if len(runs) != 2 || string(runs[1].Status) != "interrupted" {
		t.Errorf("the runs are %+v", runs)
	}
	s.admin.nothingLeft(left)
	s.admin.verified(runs[1].ID)
}

// TestServiceEnds: a service that ends cancels its runs, whose clients get the result.
func TestServiceEnds(t *testing.T) {
	s := newServed(t)
	cmd, errs, left := s.waiting()
	s.stop()
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	s.user.contains(errs.String(), "the service ends", "custody timeline r-")
	if run := s.admin.runs()[0]; string(run.Result) != "cancelled" || string(run.Status) != "sealed" {
		t.Errorf("run is %s, %s", run.Status, run.Result)
	}
	s.admin.nothingLeft(left)
}

// TestServiceConcurrent: runs of one service at the same time do not mix.
func TestServiceConcurrent(t *testing.T) {
	s := newServed(t)
	var runs sync.WaitGroup
	for i := range 4 {
		cmd := s.user.command("run", "-q", "--", "sh", "-c", fmt.Sprintf("for i in 1 2 3; do echo %d; sleep 0.2; done; exit %[1]d", i))
		var out screen
		cmd.Stdout = &out
		s.user.start(cmd)
		runs.Go(func() {
			cmd.Wait()
			if want := strings.Repeat(fmt.Sprintln(i), 3); out.String() != want || cmd.ProcessState.ExitCode() != i {
				t.Errorf("run %d: exit code %d, output %q", i, cmd.ProcessState.ExitCode(), out.String())
			}
		})
	}
	runs.Wait()
	if list := s.admin.runs(); len(list) != 4 {
		t.Errorf("%d runs are recorded", len(list))
	}
}

// childrenOf returns the command lines of the processes below one.
func childrenOf(pid int) string {
	var all []string
	for _, c := range below(pid) {
		all = append(all, c.args)
	}
	return strings.Join(all, "\n")
}
