package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/custody-project/custody/fleet"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/privsep/privseptest"
	"github.com/custody-project/custody/quota"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/vmm/template"
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

// rig is a fleet of gVisor sandboxes on a host.
type rig struct {
	testing.TB
	*fleet.Fleet
	home, setting string
}

func newRig(t *testing.T, c fleet.Config, limits quota.Config) *rig {
	t.Helper()
	return openRig(t, t.TempDir(), fmt.Sprintf("isolation: {runsc: %s, require: gvisor}\n", os.Getenv("CUSTODY_TEST_RUNSC")), c, limits)
}

// openRig returns a fleet on a host with this home and setting.
func openRig(t testing.TB, home, setting string, c fleet.Config, limits quota.Config) *rig {
	t.Helper()
	settings := "version: 1\ntenant: acme\nquotas: {tenants: {other: {}}}\n" + setting
	check(t, os.WriteFile(filepath.Join(home, "host.yaml"), []byte(settings), 0o600))
	c.Paused = filepath.Join(home, "paused-sandboxes")
	limits.Host = quota.Host{CPUs: 16, Memory: 16 << 30}
	queue, err := quota.New(limits)
	check(t, err)
	c.Queue = queue
	if c.Problem == nil {
		c.Problem = func(err error) { t.Error(err) }
	}
	if c.Runner == nil {
		c.Runner = runsOf(t, home)
	}
	f := fleet.New(c)
	t.Cleanup(func() {
		f.Close()
		queue.Close()
	})
	return &rig{t, f, home, setting}
}

// runsOf carries out the runs of a host.
func runsOf(t testing.TB, home string) *fleet.Runs {
	return &fleet.Runs{
		Open:      func() (*host.Host, error) { return host.Open(home) },
		Templates: func(*host.Host) (template.Store, error) { return vmtest.Templates(t), nil },
		Notice:    func(text string) { t.Log(text) }, Problem: func(err error) { t.Error(err) },
		StartWorker: func(ctx context.Context, w privsep.Worker, handlers map[string]privsep.Handler) (*privsep.Process, error) {
			test := privseptest.Worker("fleet")
			w.Env, w.Binds = test.Env, append(w.Binds, test.Binds...)
			return w.Start(ctx, handlers)
		},
	}
}

func (r *rig) create(q fleet.Request) *fleet.Sandbox {
	r.Helper()
	if q.Tenant == "" {
		q.Tenant = "acme"
	}
	s, _, err := r.Create(r.Context(), q)
	check(r.TB, err)
	return s
}

// sh runs a script and returns what it printed.
func (r *rig) sh(s *fleet.Sandbox, script string) string {
	r.Helper()
	p, err := s.Start(r.Context(), run.Command{Argv: []string{"sh", "-c", script}}, false)
	check(r.TB, err)
	exit, _, err := p.Exit()
	if err != nil || exit.Code != 0 {
		r.Errorf("%s ends with %+v, %v", script, exit, err)
	}
	return read(r.TB, p, "stdout")
}

// read returns a whole output of a process.
func read(t testing.TB, p *fleet.Process, stream string) string {
	t.Helper()
	o, err := p.Output(stream)
	check(t, err)
	var all []byte
	for {
		b, err := o.Read(t.Context(), int64(len(all)), 1000)
		check(t, err)
		if len(b) == 0 {
			return string(all)
		}
		all = append(all, b...)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestSandbox: processes run concurrently in a sandbox, with input, output by offset, signals and terminals, and the record has each.
func TestSandbox(t *testing.T) {
	r := newRig(t, fleet.Config{}, quota.Config{})
	s := r.create(fleet.Request{Caller: "alice", Metadata: map[string]string{"a": "b"}})
	check(t, s.Ready(t.Context()))
	cat, err := s.Start(t.Context(), run.Command{Argv: []string{"cat"}}, true)
	check(t, err)
	if got := r.sh(s, "echo shared > /tmp/file; pgrep -c cat"); got != "1\n" {
		t.Errorf("another process prints %q", got)
	}
	_, err = cat.Write(t.Context(), []byte("hello "))
	check(t, err)
	out, err := cat.Output("stdout")
	check(t, err)
	if b, err := out.Read(t.Context(), 0, 3); err != nil || string(b) != "hel" {
		t.Errorf("%q, %v", b, err)
	}
	_, err = cat.Write(t.Context(), []byte("world\n"))
	check(t, err)
	check(t, cat.CloseInput())
	if got := read(t, cat, "stdout"); got != "hello world\n" {
		t.Errorf("cat prints %q", got)
	}
	if _, err := cat.Write(t.Context(), []byte("x")); !errors.Is(err, fleet.ErrConflict) {
		t.Errorf("a write to a closed input: %v", err)
	}
	tty, err := s.Start(t.Context(), run.Command{Argv: []string{"sh", "-c", "stty size; sleep 1000"}, Terminal: &channel.Winsize{Rows: 5, Cols: 6}}, false)
	check(t, err)
	terminal, err := tty.Output("tty")
	check(t, err)
	if b, err := terminal.Read(t.Context(), 0, 100); err != nil || !strings.HasPrefix(string(b), "5 6") {
		t.Errorf("a terminal prints %q, %v", b, err)
	}
	check(t, tty.Resize(t.Context(), channel.Winsize{Rows: 7, Cols: 8}))
	check(t, tty.Signal(t.Context(), syscall.SIGKILL))
	if exit, _, err := tty.Exit(); err != nil || exit.Signal != 9 {
		t.Errorf("a killed process: %+v, %v", exit, err)
	}
	if i := s.Info(); i.State != fleet.Live || i.Running != 0 || i.Caller != "alice" || i.Metadata["a"] != "b" || len(s.Processes()) != 3 {
		t.Errorf("%+v with %d processes", i, len(s.Processes()))
	}
	check(t, s.Destroy(t.Context()))
	if i := s.Info(); i.State != fleet.Ended || i.Error != "" {
		t.Errorf("%+v", i)
	}
	if _, err := s.Start(t.Context(), run.Command{Argv: []string{"true"}}, false); !errors.Is(err, fleet.ErrEnded) {
		t.Errorf("a process in a sandbox that has ended: %v", err)
	}
	h, err := host.Open(r.home)
	check(t, err)
	var text strings.Builder
	for f, err := range h.RunLogs().Frames(s.ID) {
		check(t, err)
		text.Write(f.Body)
	}
	// The output of cat is one event, or two if what was written second came late.
	for _, want := range []string{`"step":"p1"`, `"step":"p2"`, `"step":"p3"`, `"status":"done"`, "hello ", "world"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the record has no %s", want)
		}
	}
}

// TestSessions: concurrent calls with one key get one sandbox, and a key is of a tenant.
func TestSessions(t *testing.T) {
	r := newRig(t, fleet.Config{}, quota.Config{})
	ids := make([]string, 8)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() { ids[i] = r.create(fleet.Request{Session: "one"}).ID })
	}
	all.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("one session has the sandboxes %v", ids)
		}
	}
	other := r.create(fleet.Request{Tenant: "other", Session: "one", Lazy: true})
	if other.ID == ids[0] {
		t.Error("two tenants share a session")
	}
	if _, err := r.Get("other", ids[0]); !errors.Is(err, fleet.ErrUnknown) {
		t.Errorf("another tenant's sandbox: %v", err)
	}
	if _, _, err := r.Create(t.Context(), fleet.Request{Tenant: "acme", Session: "one", Isolation: "qemu-kvm"}); err == nil {
		t.Error("a session has two shapes")
	}
	s, err := r.Get("acme", ids[0])
	check(t, err)
	check(t, s.Ready(t.Context()))
	check(t, s.Destroy(t.Context()))
	if again := r.create(fleet.Request{Session: "one", Lazy: true}); again.ID == s.ID {
		t.Error("the session has a sandbox that has ended")
	}
}

// TestIdempotency: a repeated request returns the same sandbox, and the key cannot be used for another request.
func TestIdempotency(t *testing.T) {
	r := newRig(t, fleet.Config{}, quota.Config{})
	q := fleet.Request{Tenant: "acme", Idempotency: "k", Lazy: true, Metadata: map[string]string{"a": "b"}}
	first := r.create(q)
	if again := r.create(q); again != first {
		t.Error("a repetition makes another sandbox")
	}
	q.Metadata = nil
	if _, _, err := r.Create(t.Context(), q); !errors.Is(err, fleet.ErrConflict) {
		t.Errorf("the key with another request: %v", err)
	}
}

// TestLazy: a promised sandbox starts with its first use, and one that is never used leaves no run.
func TestLazy(t *testing.T) {
	r := newRig(t, fleet.Config{}, quota.Config{})
	used, unused := r.create(fleet.Request{Lazy: true}), r.create(fleet.Request{Lazy: true})
	if i := used.Info(); i.State != fleet.Promised {
		t.Errorf("%+v", i)
	}
	if got := r.sh(used, "echo hello"); got != "hello\n" {
		t.Errorf("%q", got)
	}
	check(t, unused.Destroy(t.Context()))
	check(t, used.Destroy(t.Context()))
	runs, err := os.ReadDir(filepath.Join(r.home, "runs"))
	check(t, err)
	if len(runs) != 1 {
		t.Errorf("the host has the runs %v", runs)
	}
}

// TestEnds: a sandbox ends when it is idle or too old, but not while a process computes in it; it is then known for some time.
func TestEnds(t *testing.T) {
	r := newRig(t, fleet.Config{Keep: time.Second}, quota.Config{})
	idle := r.create(fleet.Request{Idle: 2 * time.Second})
	check(t, idle.Ready(t.Context()))
	began := time.Now()
	busy, err := idle.Start(t.Context(), run.Command{Argv: []string{"sh", "-c", "end=$(($(date +%s) + 8)); while [ $(date +%s) -lt $end ]; do :; done"}}, false)
	check(t, err)
	first := idle.Info().Idle
	if first.Before(began.Add(time.Second)) {
		t.Errorf("while a process runs, the sandbox is idle until %v; it is %v", first, time.Now())
	}
	await(t, func() bool { return idle.Info().Idle.After(first.Add(2 * time.Second)) }) // it computes
	<-busy.Done()
	if i := idle.Info(); i.State != fleet.Live {
		t.Errorf("after a process that ran for %v: %+v", time.Since(began), i)
	}
	await(t, func() bool { return idle.Info().State == fleet.Ended })
	if i := idle.Info(); i.Error != "" {
		t.Errorf("%+v", i)
	}
	await(t, func() bool {
		_, err := r.Get("acme", idle.ID)
		return errors.Is(err, fleet.ErrUnknown)
	})
	asleep := r.create(fleet.Request{Idle: 2 * time.Second})
	p, err := asleep.Start(t.Context(), run.Command{Argv: []string{"sleep", "1000"}}, false)
	check(t, err)
	<-p.Done()
	await(t, func() bool { return asleep.Info().State == fleet.Ended })
	if i := asleep.Info(); i.Error != "" {
		t.Errorf("with a process that did nothing: %+v", i)
	}
	old := r.create(fleet.Request{Time: time.Hour})
	if until, err := old.Extend(24 * time.Hour); !errors.Is(err, fleet.ErrInvalid) {
		t.Errorf("extended until %v, %v", until, err)
	}
	check(t, old.Ready(t.Context()))
	if _, err := old.Extend(time.Second); err != nil {
		t.Error(err)
	}
	await(t, func() bool { return old.Info().State == fleet.Ended })
	if _, err := old.Extend(time.Second); !errors.Is(err, fleet.ErrEnded) {
		t.Errorf("extended after its end: %v", err)
	}
}

// await waits until a condition holds.
func await(t *testing.T, holds func() bool) {
	t.Helper()
	for ctx := t.Context(); !holds(); {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("it does not happen")
		}
	}
}

// TestQuota: a sandbox over a quota waits, and is refused with the quota.
func TestQuota(t *testing.T) {
	r := newRig(t, fleet.Config{}, quota.Config{Tenant: quota.Limits{Sandboxes: 1}, Queue: quota.Bounds{Wait: 2 * time.Second}})
	first := r.create(fleet.Request{})
	check(t, first.Ready(t.Context()))
	second := r.create(fleet.Request{})
	err := second.Ready(t.Context())
	if over := new(quota.Error); !errors.As(err, &over) || over.Limit != 1 {
		t.Errorf("a second sandbox: %v", err)
	}
	other := r.create(fleet.Request{Tenant: "other"})
	check(t, other.Ready(t.Context()))
	check(t, first.Destroy(t.Context()))
	check(t, r.create(fleet.Request{}).Ready(t.Context()))
}

// TestClose: the end of the fleet ends its sandboxes in order.
func TestClose(t *testing.T) {
	r := newRig(t, fleet.Config{}, quota.Config{})
	s := r.create(fleet.Request{})
	p, err := s.Start(t.Context(), run.Command{Argv: []string{"sleep", "1000"}}, false)
	check(t, err)
	r.Close()
	if _, _, err := p.Exit(); err == nil {
		t.Error("a process ended by itself")
	}
	if i := s.Info(); i.State != fleet.Ended || i.Error == "" {
		t.Errorf("%+v", i)
	}
	if _, _, err := r.Create(t.Context(), fleet.Request{Tenant: "acme"}); !errors.Is(err, fleet.ErrEnded) {
		t.Errorf("a sandbox after the end: %v", err)
	}
}
