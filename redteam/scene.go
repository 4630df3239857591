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
	"syscall"
	"time"

	"github.com/custody-project/custody/audit"
)

// session is a custody run under way.
//
//	start -> (open reports) -> end of the script -> wait
type session struct {
	cmd    *exec.Cmd
	stderr *bytes.Buffer
	stdout *bytes.Buffer  // all of its output; to be read after wait
	read   sync.WaitGroup // the reader of its output
	opened chan string    // IDs of tasks that stay, as they are open; large enough for all

	mu      sync.Mutex // guards what follows
	run     string
	reports map[string]*report
	ended   bool
}

// custody is a call of the program under attack, on the world's host. It dies with the suite.
func (t *trial) custody(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, t.Custody, args...)
	cmd.Dir = t.dir
	cmd.Env = append(append([]string{}, t.Env...), "SSL_CERT_FILE="+filepath.Join(t.dir, "ca.pem"), "SSL_CERT_DIR=/nonexistent")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return cmd
}

// start starts a run that makes the probes' tasks.
func (t *trial) start(ctx context.Context, name, policy string, probes []Probe) (*session, error) {
	var tasks []*task
	for _, p := range probes {
		tasks = append(tasks, p.task)
	}
	list, err := json.Marshal(tasks)
	if err != nil {
		return nil, err
	}
	for _, rule := range t.Extra {
		policy += "  - " + rule + "\n"
	}
	file, err := t.write(name+".yaml", []byte(policy))
	if err != nil {
		return nil, err
	}
	if _, err := t.write(name+"/tasks.json", list); err != nil {
		return nil, err
	}
	return t.launch(ctx, name, file, nil, "--", "python3", "/workspace/guest.py")
}

// launch starts a run with a directory of the suite's as its workspace, and reads what its scripts say.
func (t *trial) launch(ctx context.Context, name, policy string, env []string, args ...string) (*session, error) {
	for path, content := range map[string][]byte{"ca.pem": t.world.CA(), name + "/ca.pem": t.world.CA(), name + "/guest.py": script} {
		if _, err := t.write(path, content); err != nil {
			return nil, err
		}
	}
	s := &session{stderr: &bytes.Buffer{}, stdout: &bytes.Buffer{}, opened: make(chan string, 1000), reports: map[string]*report{}}
	s.cmd = t.custody(ctx, append([]string{"run", "-q", "--trust", "--policy", policy, "--workdir", filepath.Join(t.dir, name)}, args...)...)
	s.cmd.Env = append(s.cmd.Env, env...)
	s.cmd.Stderr = s.stderr
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.cmd.Stdout = w
	err = t.world.Start(s.cmd)
	w.Close()
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	s.read.Go(func() {
		defer r.Close()
		s.listen(io.TeeReader(r, s.stdout))
	})
	return s, nil
}

// listen takes what the script says.
func (s *session) listen(r io.Reader) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		said := &report{at: time.Now()}
		if json.Unmarshal(lines.Bytes(), said) != nil {
			continue // not the script's, or not of its own making
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
			default: // said twice
			}
		default:
			s.reports[said.ID] = said
		}
		s.mu.Unlock()
	}
	io.Copy(io.Discard, r) // a line was too long: what comes after it is not read
}

// wait waits for the run's end, which must be that of the script.
func (s *session) wait() error {
	err := s.cmd.Wait()
	s.read.Wait()
	if !s.ended || err != nil {
		return fmt.Errorf("custody run did not carry out the probes: %w\n%s", errors.Join(err, errors.New("the script did not end")), lastLines(s.stderr.String()))
	}
	return nil
}

// kill ends a run by force.
func (s *session) kill() {
	s.cmd.Process.Kill()
	s.cmd.Wait() // the error is the kill
	s.read.Wait()
}

func lastLines(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

// report returns what the script said of a probe, nil for nothing.
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

// awaitOpen waits until tasks that stay are open, and returns those that are.
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

// records returns a run's record.
func (t *trial) records(ctx context.Context, run string) ([]audit.Record, error) {
	cmd := t.custody(ctx, "timeline", run, "--json")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := t.world.Run(cmd); err != nil {
		return nil, fmt.Errorf("read the record of %s: %w\n%s", run, err, lastLines(stderr.String()))
	}
	var all []audit.Record
	for line := range bytes.Lines(stdout.Bytes()) {
		var r audit.Record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("read the record of %s: %w", run, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// sandboxed is the scene of one run from its begin to its end.
func (t *trial) sandboxed(ctx context.Context, probes []Probe) error {
	policy := rules
	if probes[0].scene == closed {
		policy = none
	}
	s, err := t.start(ctx, string(probes[0].scene), policy, probes)
	if err != nil {
		return err
	}
	if err := s.wait(); err != nil {
		return err
	}
	return t.judgeAll(ctx, probes, s, time.Time{})
}

func (t *trial) judgeAll(ctx context.Context, probes []Probe, s *session, cut time.Time) error {
	time.Sleep(settle) // what is on its way is seen by then
	records, err := t.records(ctx, s.id())
	if err != nil {
		return err
	}
	for _, p := range probes {
		t.judge(p, s.report(p.ID), s.id(), records, cut)
	}
	return nil
}

// live is the scene in which the policy is narrowed while flows are open.
func (t *trial) live(ctx context.Context, probes []Probe) error {
	s, err := t.start(ctx, string(live), rules, probes)
	if err != nil {
		return err
	}
	open := s.awaitOpen(ctx, staying(probes), time.Minute)
	file, err := t.write("narrowed.yaml", []byte(narrowed))
	if err != nil {
		return err
	}
	set := t.custody(ctx, "policy", "set", "--trust", s.id(), file)
	said, setErr := t.output(set)
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

// output runs a call and returns all that it said.
func (t *trial) output(cmd *exec.Cmd) (string, error) {
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	err := t.world.Run(cmd)
	return b.String(), err
}

func staying(probes []Probe) (n int) {
	for _, p := range probes {
		if p.task.Do == "stay" {
			n++
		}
	}
	return n
}

// neverOpen corrects the outcome of flows that were not there to be ended: nothing was proven.
func (t *trial) neverOpen(probes []Probe, open map[string]bool) {
	for i := range t.outcomes {
		o := &t.outcomes[i]
		if o.task != nil && o.task.Do == "stay" && o.scene == probes[0].scene && !open[o.ID] {
			o.Blocked, o.Detail = false, "the flow was never open; "+o.Detail
		}
	}
}

// crash is the scene in which custody is killed while flows are open.
func (t *trial) crash(ctx context.Context, probes []Probe) error {
	s, err := t.start(ctx, string(crash), rules, probes)
	if err != nil {
		return err
	}
	open := s.awaitOpen(ctx, staying(probes), time.Minute)
	s.kill()
	cut := time.Now()
	select {
	case <-time.After(time.Second): // in which what goes on would be seen
	case <-ctx.Done():
	}
	if err := t.judgeAll(ctx, probes, s, cut); err != nil {
		return err
	}
	t.neverOpen(probes, open)
	return nil
}

// refused is the scene of files that cannot be used: custody must not run anything.
func (t *trial) refused(ctx context.Context, probes []Probe) error {
	for _, p := range probes {
		name := "refused/" + filepath.Base(p.ID) + ".yaml"
		path := filepath.Join(t.dir, name)
		var err error
		switch p.config {
		case missing:
		case directory:
			err = os.MkdirAll(path, 0o755)
		default:
			_, err = t.write(name, []byte(p.config))
		}
		if err != nil {
			return err
		}
		cmd := t.custody(ctx, "run", "--trust", "--policy", path, "--", "sh", "-c", "echo it runs")
		said, err := t.output(cmd)
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
