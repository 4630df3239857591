package run_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/privsep/privseptest"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/vmm/vmtest"
)

func TestMain(m *testing.M) {
	privseptest.Main(m, func() error {
		if hostd.Worker() != 0 {
			return errors.New("it failed")
		}
		return nil
	})
}

// startWorker starts this test's program.
func startWorker(ctx context.Context, w privsep.Worker, handlers map[string]privsep.Handler) (*privsep.Process, error) {
	test := privseptest.Worker("run")
	w.Env, w.Binds = test.Env, append(w.Binds, test.Binds...)
	return w.Start(ctx, handlers)
}

// TestRun executes a run without the command line.
func TestRun(t *testing.T) {
	ctx := t.Context()
	h, err := host.Open(t.TempDir())
	check(t, err)
	p, err := project.Parse("custody.yaml", []byte("version: 1\nproject: shop\nsteps:\n- {name: greet, run: echo hello}\n- {name: fail, run: exit 3}\n"))
	check(t, err)
	var out bytes.Buffer
	job, err := run.Prepare(ctx, run.Options{
		Home: h, Templates: vmtest.Templates(t), Project: p, File: "custody.yaml",
		Attach:      func() (run.Console, func()) { return run.Console{Stdout: &out, Stderr: &out}, func() {} },
		Accept:      func(*run.Untrusted) bool { return true },
		StartWorker: startWorker,
		Notice:      func(text string) { t.Log(text) }, Problem: func(err error) { t.Error(err) },
	})
	check(t, err)
	res, err := job.Run(ctx)
	check(t, err)
	check(t, job.Close())
	if res.ExitCode != 3 || res.Err == nil || res.Err.Error() != "step fail failed: exit code 3" || res.Late != nil || out.String() != "hello\n" {
		t.Errorf("%+v, output %q", res, out.String())
	}
	var kinds []string
	for frame, err := range h.RunLogs().Frames(res.ID) {
		check(t, err)
		kinds = append(kinds, string(frame.Body))
	}
	for _, want := range []string{`"project":"shop"`, `"name":"greet"`, `"exit_code":3`} {
		if !strings.Contains(strings.Join(kinds, "\n"), want) {
			t.Errorf("no record has %s", want)
		}
	}
}

// TestLive: processes are started in a live run, with the project's variables and secrets, until Serve returns.
func TestLive(t *testing.T) {
	t.Setenv("CUSTODY_TEST_VALUE", "a secret value of the test")
	h, err := host.Open(t.TempDir())
	check(t, err)
	p, err := project.Parse("custody.yaml", []byte("version: 1\nproject: shop\nenv: {COLOR: red}\nsecrets: {a: {from: 'env:CUSTODY_TEST_VALUE', deliver: {env: A}}}\n"))
	check(t, err)
	start := func(l *run.Live, c run.Command) (*run.Process, func() string) {
		t.Helper()
		r, w, err := os.Pipe()
		check(t, err)
		null, err := os.Open(os.DevNull)
		check(t, err)
		defer null.Close()
		process, err := l.Start(t.Context(), c, null, w, w)
		check(t, err)
		w.Close()
		return process, func() string {
			defer r.Close()
			text, err := io.ReadAll(r)
			check(t, err)
			return string(text)
		}
	}
	job, err := run.Prepare(t.Context(), run.Options{
		Home: h, Templates: vmtest.Templates(t), Project: p, File: "custody.yaml", StartWorker: startWorker,
		Accept: func(*run.Untrusted) bool { return true },
		Notice: func(text string) { t.Log(text) }, Problem: func(err error) { t.Error(err) },
		Serve: func(ctx context.Context, l *run.Live) {
			waits, _ := start(l, run.Command{Argv: []string{"sleep", "1000"}})
			_, output := start(l, run.Command{
				Argv: []string{"sh", "-c", "pgrep -c sleep; echo $COLOR $MORE $HOME $(pwd) ${#A} $A"}, Env: []project.Variable{{Name: "MORE", Value: "more"}}, Secrets: []string{"a"},
			})
			if got := output(); got != "1\nred more /root /workspace 26 [redacted:a]\n" && !strings.HasPrefix(got, "1\nred more /root /workspace 26 ") {
				t.Errorf("the second process printed %q", got)
			}
			_, output = start(l, run.Command{Argv: []string{"sh", "-c", "id -u; echo $HOME $A; pwd"}, User: "nobody", Dir: "/tmp"})
			if got := output(); got != "65534\n/nonexistent\n/tmp\n" {
				t.Errorf("a process of another user printed %q", got)
			}
			check(t, waits.Signal(ctx, syscall.SIGTERM))
			if exit, err := waits.Exit(); err != nil || exit.Signal != int(syscall.SIGTERM) {
				t.Errorf("the first process ended with %+v, %v", exit, err)
			}
			if _, err := l.Start(ctx, run.Command{}, nil, nil, nil); err == nil {
				t.Error("an empty command is started")
			}
		},
	})
	check(t, err)
	res, err := job.Run(t.Context())
	check(t, err)
	check(t, job.Close())
	if res.ExitCode != 0 || res.Err != nil || res.Late != nil {
		t.Errorf("%+v", res)
	}
	var text strings.Builder
	for frame, err := range h.RunLogs().Frames(res.ID) {
		check(t, err)
		text.Write(frame.Body)
	}
	if strings.Contains(text.String(), "a secret value") || !strings.Contains(text.String(), `"name":"p3"`) {
		t.Error("the record holds the secret, or lacks a process")
	}
}

// TestPrepareRefuses: Prepare returns an error for invalid options.
func TestPrepareRefuses(t *testing.T) {
	h, err := host.Open(t.TempDir())
	check(t, err)
	for _, c := range []struct {
		name string
		file string
		o    run.Options
		want string
	}{
		{"nothing to run", "project: shop\n", run.Options{}, "there is nothing to run"},
		{"secrets without a command", "secrets: {a: {from: 'env:A', deliver: {env: A}}}\nsteps: [{name: s, run: 'true'}]\n", run.Options{Secrets: []string{"a"}}, "secrets a: they are chosen for a command"},
		{"an unknown secret", "project: shop\n", run.Options{Command: []string{"true"}, Secrets: []string{"b"}}, "b"},
		{"not trusted", "egress: [{allow: example.com}]\nsteps: [{name: s, run: 'true'}]\n", run.Options{}, "is not trusted"},
		{"no such source", "secrets: {a: {from: 'env:CUSTODY_NOT_SET', deliver: {env: A}}}\nsteps: [{name: s, run: 'true', secrets: [a]}]\n",
			run.Options{Accept: func(*run.Untrusted) bool { return true }}, "nothing was started: 1 of the secrets"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := project.Parse("custody.yaml", []byte("version: 1\n"+c.file))
			check(t, err)
			c.o.Home, c.o.Project, c.o.File = h, p, "custody.yaml"
			c.o.Notice, c.o.Problem = func(string) {}, func(err error) { t.Error(err) }
			job, err := run.Prepare(context.Background(), c.o)
			if err == nil {
				job.Close()
				t.Fatal("prepared")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
