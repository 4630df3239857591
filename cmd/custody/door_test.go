package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/vmm"
)

// The tests of this package use the program as a user does: two binaries,
// a $CUSTODY_HOME, real VMs. The template they start from is made once, by hack/test.

// templatesEnv names a directory that holds a store of templates with a "base".
const templatesEnv = "CUSTODY_TEST_TEMPLATES"

// programsEnv names a directory with both programs; without it they are built.
const programsEnv = "CUSTODY_TEST_BIN"

// binaries builds the programs, once, as the Makefile does, and returns their directory.
var binaries = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv(programsEnv); dir != "" {
		return dir, nil
	}
	dir, err := os.MkdirTemp("", "custody-bin-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // a test calls them as no one
		return dir, err
	}
	for _, name := range []string{"custody", "custody-client", "custody-guest"} {
		build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, name), "../"+name)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerEnv); dir != "" { // a child of TestRetentionKilled
		writeRuns(dir)
	}
	if path := os.Getenv(sinkEnv); path != "" { // a child of TestGVisorUnreported
		silentSink(path)
	}
	code := m.Run()
	if dir, err := binaries(); err == nil && os.Getenv(programsEnv) == "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// furnish makes a $CUSTODY_HOME with the shared templates and returns the directory of the programs.
func furnish(home string) (bin string, err error) {
	templates := os.Getenv(templatesEnv)
	if templates == "" {
		return "", fmt.Errorf("%s is not set: these tests start real VMs; run `make test`, which makes a template for them", templatesEnv)
	}
	if bin, err = binaries(); err != nil {
		return "", err
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return "", err
	}
	if err := requireFirecracker(home); err != nil {
		return "", err
	}
	return bin, os.Symlink(templates, filepath.Join(home, "templates"))
}

// firecrackerEnv names a directory with firecracker and jailer. If CUSTODY_TEST_TIER is firecracker, the tests use them.
const firecrackerEnv = "CUSTODY_TEST_FIRECRACKER"

// requireFirecracker writes a host.yaml with which runs have the tier firecracker, if the tests use it.
func requireFirecracker(home string) error {
	if os.Getenv(firecrackerEnv) == "" || os.Getenv("CUSTODY_TEST_TIER") != vmm.Firecracker {
		return nil
	}
	return os.WriteFile(filepath.Join(home, "host.yaml"), []byte(firecrackerSettings("firecracker")), 0o600)
}

// firecrackerSettings is a host.yaml with the paths of Firecracker and a required tier, "" for none.
func firecrackerSettings(require string) string {
	dir := os.Getenv(firecrackerEnv)
	return fmt.Sprintf("version: 1\nisolation: {require: %q, firecracker: %q, jailer: %q}\n", require, filepath.Join(dir, "firecracker"), filepath.Join(dir, "jailer"))
}

// door is a user who runs the program.
type door struct {
	*testing.T
	home    string
	bin     string
	program string   // "": custody
	dir     string   // where commands are given; custody.yaml is looked for there
	env     []string // beside PATH, HOME and CUSTODY_HOME
	// launch starts a program where the user is; nil: here.
	launch func(*exec.Cmd) error
	tier   string   // that all runs require; "": none
	asks   bool     // runs are not given --trust
	stdin  *os.File // of serving; nil: none
}

// newDoor returns a user with a separate home.
func newDoor(t *testing.T) *door {
	t.Helper()
	d := &door{T: t, home: filepath.Join(t.TempDir(), "home"), dir: t.TempDir()}
	var err error
	if d.bin, err = furnish(d.home); err != nil {
		t.Fatal(err)
	}
	return d
}

// command returns a call of the program that has not begun.
func (d *door) command(args ...string) *exec.Cmd {
	if len(args) > 0 && args[0] == "run" && !d.asks {
		args = slices.Insert(slices.Clone(args), 1, "--trust") // the test has written the file itself
	}
	cmd := exec.Command(filepath.Join(d.bin, cmp.Or(d.program, "custody")), args...)
	cmd.Dir = d.dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + d.dir, "CUSTODY_HOME=" + d.home, "LANG=C.UTF-8"}, d.env...)
	return cmd
}

// said is the result of a call of the program.
type said struct {
	stdout, stderr string
	code           int
}

// custody calls the program.
func (d *door) custody(args ...string) said {
	d.Helper()
	return d.finish(d.command(args...))
}

// start starts a call, which does not outlive the test.
func (d *door) start(cmd *exec.Cmd) {
	d.Helper()
	launch := d.launch
	if launch == nil {
		launch = (*exec.Cmd).Start
	}
	if err := launch(cmd); err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { cmd.Process.Kill() })
}

// finish runs a call to its end.
func (d *door) finish(cmd *exec.Cmd) said {
	d.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	d.start(cmd)
	err := cmd.Wait()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		d.Fatal(err)
	}
	return said{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// must calls the program and fails the test unless it exits with the code.
func (d *door) must(code int, args ...string) said {
	d.Helper()
	return d.exited(code, d.custody(args...), args...)
}

func (d *door) exited(code int, s said, args ...string) said {
	d.Helper()
	if s.code != code {
		d.Fatalf("custody %q exited %d, want %d\nstdout: %.2000s\nstderr: %.4000s", args, s.code, code, s.stdout, s.stderr)
	}
	return s
}

// script runs a shell script in a sandbox and fails the test unless it exits with the code.
func (d *door) script(code int, script string) said {
	d.Helper()
	return d.must(code, "run", "--", "sh", "-c", script)
}

// project writes custody.yaml where the user is.
func (d *door) project(yaml string) {
	d.Helper()
	d.write(filepath.Join(d.dir, "custody.yaml"), yaml)
}

func (d *door) write(path, content string) {
	d.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		d.Fatal(err)
	}
}

// records returns a run's record, of these kinds or of all.
func (d *door) records(run string, kinds ...string) []audit.Record {
	d.Helper()
	args := []string{"timeline", run, "--json"}
	if len(kinds) > 0 {
		args = append(args, "--kind", strings.Join(kinds, ","))
	}
	return decode[audit.Record](d, d.must(0, args...).stdout)
}

// runs returns what `custody runs` lists.
func (d *door) runs() []store.Run {
	d.Helper()
	return decode[store.Run](d, d.must(0, "runs", "--json").stdout)
}

func decode[T any](d *door, lines string) []T {
	d.Helper()
	var all []T
	for line := range strings.Lines(lines) {
		var v T
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			d.Fatalf("%v: %.300s", err, line)
		}
		all = append(all, v)
	}
	return all
}

// verified fails the test unless the run verifies.
func (d *door) verified(run string) {
	d.Helper()
	if s := d.must(0, "verify", run); !strings.Contains(s.stdout, "verified: every record") {
		d.Errorf("verify %s says: %s", run, s.stdout)
	}
}

// contains fails the test for each part that is not in text.
func (d *door) contains(text string, parts ...string) {
	d.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			d.Errorf("%q is not in: %.2000s", part, text)
		}
	}
}
