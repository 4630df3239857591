package redteam

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// session is a run of the program under attack.
//
//	start -> (open reports) -> end of the script -> wait
type session struct {
	cmd    *exec.Cmd
	stderr *bytes.Buffer
	stdout *bytes.Buffer  // all of its output; read it after wait
	read   sync.WaitGroup // the reader of its output
	opened chan string    // IDs of long-lived tasks whose flow is open; has space for all

	mu      sync.Mutex // guards the fields below
	run     string
	reports map[string]*report
	ended   bool
}

// listen reads the script's reports.
func (s *session) listen(r io.Reader) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		said := &report{at: time.Now()}
		if json.Unmarshal(lines.Bytes(), said) != nil {
			continue // not a report
		}
		s.mu.Lock()
		switch {
		case said.Run != "":
			s.run = said.Run
		case said.End:
			s.ended = true
		case said.Open:
			select {
			case s.opened <- said.ID:
			default: // reported twice
			}
		default:
			s.reports[said.ID] = said
		}
		s.mu.Unlock()
	}
	io.Copy(io.Discard, r) // after a line that is too long, the rest is discarded
}

// wait waits for the run's end. It returns an error unless the script ended first.
func (s *session) wait() error {
	err := s.cmd.Wait()
	s.read.Wait()
	if !s.ended || err != nil {
		return fmt.Errorf("custody run did not make the probes: %w\n%s", errors.Join(err, errors.New("the script did not end")), lastLines(s.stderr.String()))
	}
	return nil
}

// kill kills the run's process.
func (s *session) kill() {
	s.cmd.Process.Kill()
	s.cmd.Wait() // returns the kill as an error
	s.read.Wait()
}

func lastLines(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

// report returns the script's report on a probe, nil if there is none.
func (s *session) report(id string) *report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reports[id]
}

func (s *session) id() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run
}

// awaitOpen waits until the flows of n long-lived tasks are open, and returns the open ones.
func (s *session) awaitOpen(ctx context.Context, n int, patience time.Duration) map[string]bool {
	open := map[string]bool{}
	late := time.NewTimer(patience)
	defer late.Stop()
	for len(open) < n {
		select {
		case id := <-s.opened:
			open[id] = true
		case <-late.C:
			return open
		case <-ctx.Done():
			return open
		}
	}
	return open
}

// sandboxed runs a scene that is one run.
func (t *trial) sandboxed(ctx context.Context, probes []Probe) error {
	policy := rules
	if probes[0].scene == closed {
		policy = none
	}
	s, err := t.custody.start(ctx, string(probes[0].scene), policy, probes)
	if err != nil {
		return err
	}
	if err := s.wait(); err != nil {
		return err
	}
	return t.judgeAll(ctx, probes, s, time.Time{})
}

func (t *trial) judgeAll(ctx context.Context, probes []Probe, s *session, cut time.Time) error {
	time.Sleep(settle) // for packets in flight
	records, err := t.custody.records(ctx, s.id())
	if err != nil {
		return err
	}
	for _, p := range probes {
		t.judge(p, s.report(p.ID), s.id(), records, cut)
	}
	return nil
}

// live runs the scene in which the policy is narrowed while flows are open.
func (t *trial) live(ctx context.Context, probes []Probe) error {
	s, err := t.custody.start(ctx, string(live), rules, probes)
	if err != nil {
		return err
	}
	open := s.awaitOpen(ctx, staying(probes), time.Minute)
	file, err := t.custody.write("narrowed.yaml", []byte(narrowed))
	if err != nil {
		return err
	}
	set := t.custody.command(ctx, "policy", "set", "--trust", s.id(), file)
	said, setErr := t.custody.output(set)
	cut := time.Now()
	if setErr != nil {
		t.Say(fmt.Sprintf("custody policy set: %v: %s", setErr, lastLines(said)))
	}
	if err := s.wait(); err != nil {
		return err
	}
	if err := t.judgeAll(ctx, probes, s, cut); err != nil {
		return err
	}
	t.neverOpen(probes, open)
	return nil
}

func staying(probes []Probe) (n int) {
	for _, p := range probes {
		if p.task.Do == "stay" {
			n++
		}
	}
	return n
}

// neverOpen corrects the outcomes of flows that were never open: their end proves nothing.
func (t *trial) neverOpen(probes []Probe, open map[string]bool) {
	for i := range t.outcomes {
		o := &t.outcomes[i]
		if o.task != nil && o.task.Do == "stay" && o.scene == probes[0].scene && !open[o.ID] {
			o.Blocked, o.Detail = false, "the flow was never open; "+o.Detail
		}
	}
}

// crash runs the scene in which custody is killed while flows are open.
func (t *trial) crash(ctx context.Context, probes []Probe) error {
	s, err := t.custody.start(ctx, string(crash), rules, probes)
	if err != nil {
		return err
	}
	open := s.awaitOpen(ctx, staying(probes), time.Minute)
	s.kill()
	cut := time.Now()
	select {
	case <-time.After(time.Second): // in which further data of a flow would be observed
	case <-ctx.Done():
	}
	if err := t.judgeAll(ctx, probes, s, cut); err != nil {
		return err
	}
	t.neverOpen(probes, open)
	return nil
}

// refused runs the scene of invalid project files, with which custody must not run anything.
func (t *trial) refused(ctx context.Context, probes []Probe) error {
	for _, p := range probes {
		name := "refused/" + filepath.Base(p.ID) + ".yaml"
		path := filepath.Join(t.custody.dir, name)
		var err error
		switch p.config {
		case missing:
		case directory:
			err = os.MkdirAll(path, 0o755)
		default:
			_, err = t.custody.write(name, []byte(p.config))
		}
		if err != nil {
			return err
		}
		cmd := t.custody.command(ctx, "run", "--trust", "--policy", path, "--", "sh", "-c", "echo it runs")
		said, err := t.custody.output(cmd)
		o := Outcome{Probe: p, Detail: firstLine(said)}
		o.Blocked = cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 125 && !strings.Contains(said, "it runs")
		o.Recorded = o.Blocked && strings.Contains(said, filepath.Base(path))
		if err == nil || cmd.ProcessState == nil {
			o.Detail = fmt.Sprintf("custody ran: %v: %s", err, o.Detail)
		}
		t.outcomes = append(t.outcomes, o)
	}
	return nil
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s[:min(len(s), 200)]
}
