package redteam

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redteam/simnet"
)

// custody is the program under attack. It runs on the host of the simulated internet, in a directory of the suite.
type custody struct {
	program string
	env     []string
	extra   []string // egress rules that are added to every policy
	tier    string   // isolation tier of the runs; "": the best that works
	dir     string
	net     *simnet.Network
}

// command returns a command that runs the program, and ends with the suite.
func (c *custody) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.program, args...)
	cmd.Dir = c.dir
	cmd.Env = append(append([]string{}, c.env...), "SSL_CERT_FILE="+filepath.Join(c.dir, "ca.pem"), "SSL_CERT_DIR=/nonexistent")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return cmd
}

// start starts a run with the probes' tasks.
func (c *custody) start(ctx context.Context, name, policy string, probes []Probe) (*session, error) {
	var tasks []*task
	for _, p := range probes {
		tasks = append(tasks, p.task)
	}
	list, err := json.Marshal(tasks)
	if err != nil {
		return nil, err
	}
	for _, rule := range c.extra {
		policy += "  - " + rule + "\n"
	}
	file, err := c.write(name+".yaml", []byte(policy))
	if err != nil {
		return nil, err
	}
	if _, err := c.write(name+"/tasks.json", list); err != nil {
		return nil, err
	}
	return c.launch(ctx, name, file, nil, "--", "python3", "/workspace/guest.py")
}

// launch starts a run with a directory of the suite as its workspace, and reads the reports of its scripts.
func (c *custody) launch(ctx context.Context, name, policy string, env []string, args ...string) (*session, error) {
	for path, content := range map[string][]byte{"ca.pem": c.net.CA(), name + "/ca.pem": c.net.CA(), name + "/guest.py": script} {
		if _, err := c.write(path, content); err != nil {
			return nil, err
		}
	}
	s := &session{stderr: &bytes.Buffer{}, stdout: &bytes.Buffer{}, opened: make(chan string, 1000), reports: map[string]*report{}}
	run := []string{"run", "-q", "--trust", "--policy", policy, "--workdir", filepath.Join(c.dir, name)}
	if c.tier != "" {
		run = append(run, "--isolation", c.tier)
	}
	s.cmd = c.command(ctx, append(run, args...)...)
	s.cmd.Env = append(s.cmd.Env, env...)
	s.cmd.Stderr = s.stderr
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.cmd.Stdout = w
	err = c.net.Start(s.cmd)
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

// records returns a run's record.
func (c *custody) records(ctx context.Context, run string) ([]audit.Record, error) {
	cmd := c.command(ctx, "timeline", run, "--json")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := c.net.Run(cmd); err != nil {
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

// output runs a command and returns its output and error output.
func (c *custody) output(cmd *exec.Cmd) (string, error) {
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	err := c.net.Run(cmd)
	return b.String(), err
}

// write puts a file into the suite's directory and returns its path.
func (c *custody) write(name string, content []byte) (string, error) {
	path := filepath.Join(c.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, content, 0o644)
}
