package worker_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/audit/wal/remote"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/notify"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/privsep/privseptest"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/vmm/qemu"
	"github.com/custody-project/custody/vmm/template"
	"github.com/custody-project/custody/vmm/vmtest"
	"github.com/custody-project/custody/worker"
	"github.com/custody-project/custody/workspace/transfer"
)

func TestMain(m *testing.M) {
	privseptest.Main(m, func() error {
		if privseptest.Mode() == garbage {
			return violate()
		}
		return worker.Main(context.Background())
	})
}

// garbage is the mode of a worker that violates the protocol and then does not end.
const garbage = "garbage"

func violate() error {
	connection, err := unix.Dup(3) // Enter closes the inherited one
	if err != nil {
		return err
	}
	if _, _, err := privsep.Enter(nil, 0); err != nil {
		return err
	}
	if _, err := unix.Write(connection, []byte("no message")); err != nil {
		return err
	}
	time.Sleep(time.Hour)
	return nil
}

const (
	testRun  = "r-01m7xwjm28tv7cnff0wa831wp1"
	shopRule = "shop.example tcp/443"
)

// rig is a run in a worker.
type rig struct {
	options worker.Options
	parts   hostd.Parts
	trusted note.Verifiers
	worker  chan *privsep.Process // receives the started workers
	dir     string                // of the log
	out     bytes.Buffer          // output of the steps; read it after the run's end
	events  events
}

// events keeps the messages of a run.
type events struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (e *events) add(kind, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines = append(e.lines, kind+": "+text)
}

// all returns the messages of a kind.
func (e *events) all(kind string) (list []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.lines {
		if text, ok := strings.CutPrefix(l, kind+": "); ok {
			list = append(list, text)
		}
	}
	return list
}

func (e *events) Notice(text string)                        { e.add("notice", text) }
func (e *events) Progress(text string)                      { e.add("progress", text) }
func (e *events) Problem(err error)                         { e.add("problem", err.Error()) }
func (e *events) Stalled(err error)                         { e.add("stalled", err.Error()) }
func (e *events) Resumed()                                  { e.add("resumed", "") }
func (e *events) Committed(int, int, time.Duration, uint64) { e.add("committed", "") }
func (e *events) Sealed()                                   { e.add("sealed", "") }
func (e *events) Masked(values int)                         { e.add("masked", strconv.Itoa(values)) }
func (e *events) Notify(m notify.Message)                   { e.add("notify", m.Type) }
func (e *events) Room() error                               { return nil }
func (e *events) Charge(int64) (string, time.Time)          { return "", time.Time{} }

// driver starts the machines of a tier in tests and in workers.
type driver interface {
	template.Driver
	hostd.Driver
}

// eachTier runs a test with each tier that this package is tested with.
func eachTier(t *testing.T, test func(t *testing.T, d driver)) {
	t.Parallel()
	emulated, err := qemu.New(false)
	must(t, err)
	for _, d := range []driver{emulated, vmtest.GVisor(t)} {
		t.Run(d.Tier(), func(t *testing.T) {
			t.Parallel()
			test(t, d)
		})
	}
}

func newRig(t testing.TB, d driver, script string) *rig {
	t.Helper()
	skey, vkey, err := note.GenerateKey(rand.Reader, "custody-test")
	must(t, err)
	signer, err := note.NewSigner(skey)
	must(t, err)
	verifier, err := note.NewVerifier(vkey)
	must(t, err)
	rule, err := netpolicy.ParseRule(shopRule)
	must(t, err)
	policy, err := netpolicy.New([]netpolicy.Rule{rule})
	must(t, err)
	m := vmtest.Describe(t, d, vmtest.Options{})
	dir := filepath.Join(t.TempDir(), testRun)
	log := remote.NewServer(dir)
	t.Cleanup(func() { log.Close() })
	r := &rig{trusted: note.VerifierList(verifier), worker: make(chan *privsep.Process, 2), dir: dir}
	r.options = worker.Options{
		Config: worker.Config{
			Settings: sandbox.Settings{Run: testRun, CPUs: 1, Memory: m.Memory, ScratchSize: 2 << 30, PIDs: 256, Output: 1 << 20, Sensor: true, Files: channel.FileSettings{ReadOver: 8 << 20}},
			Facts:    audit.Lifecycle{Project: "shop", Template: "base", Tier: d.Tier(), Mode: "strict"},
			Mode:     wal.Strict, Resolvers: []string{"udp://192.0.2.1"}, Time: 5 * time.Minute, TagKey: make([]byte, 32),
			Steps: []worker.Step{{Name: "main", Argv: []string{"bash", "-c", script}, Env: []string{"PATH=/usr/bin:/bin", "HOME=/root"}, Dir: "/workspace"}},
		},
		Policy: policy, Signed: statement.Facts{Tier: d.Tier()}, Log: log, Files: transfer.NewServer(nil, nil), Stdout: &r.out, Stderr: os.Stderr,
		Events: &r.events,
	}
	r.parts = hostd.Parts{
		Network: hostd.PrepareNetwork(t.Context()), Driver: d, Machine: m, Key: func() (note.Signer, error) { return signer, nil },
		Start: func(ctx context.Context, w privsep.Worker, handlers map[string]privsep.Handler) (*privsep.Process, error) {
			test := privseptest.Worker("worker")
			w.Env, w.Binds = test.Env, append(w.Binds, test.Binds...)
			p, err := w.Start(ctx, handlers)
			if err == nil {
				r.worker <- p
			}
			return p, err
		},
	}
	return r
}

// run carries out the run in a sandbox.
func (r *rig) run(ctx context.Context) (worker.Result, error) {
	s, err := hostd.NewSandbox(ctx, r.parts)
	if err != nil {
		return worker.Result{}, err
	}
	return r.runIn(ctx, s)
}

// runIn carries out the run in this sandbox.
func (r *rig) runIn(ctx context.Context, s *hostd.Sandbox) (worker.Result, error) {
	r.options.Sandbox = s
	result, err := worker.Run(ctx, r.options)
	return result, errors.Join(err, s.Close())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// records verifies the run's record and returns it.
func (r *rig) records(t *testing.T) (all []audit.Record) {
	t.Helper()
	e, err := proof.OpenDir(r.dir)
	must(t, err)
	defer e.Close()
	if _, err := proof.Verify(t.Context(), e, proof.Trust{Keys: r.trusted, Unlogged: true}); err != nil {
		t.Errorf("the record does not verify: %v", err)
	}
	segments, err := wal.Segments(r.dir)
	must(t, err)
	for _, path := range segments {
		for f, err := range wal.ReadSegment(path) {
			must(t, err)
			var rec audit.Record
			must(t, json.Unmarshal(f.Bytes, &rec))
			all = append(all, rec)
		}
	}
	return all
}

// TestRun: a worker runs a step in a VM and writes a record of it that verifies with a key that it never had.
func TestRun(t *testing.T) {
	eachTier(t, func(t *testing.T, d driver) {
		r := newRig(t, d, `echo hello; getent hosts evil.example; getent hosts shop.example | cut -c1-7; echo x >/workspace/file; exit 3`)
		result, err := r.run(t.Context())
		if err != nil || result.ExitCode != 3 || result.Status != audit.StatusDone {
			t.Fatalf("%+v, %v", result, err)
		}
		if out := r.out.String(); out != "hello\n198.18.\n" {
			t.Errorf("the step printed %q", out)
		}
		kinds := map[audit.Kind]int{}
		var names []string
		for _, rec := range r.records(t) {
			kinds[rec.Kind]++
			if rec.Kind == audit.KindDNS {
				names = append(names, string(rec.DNS.Name)+" "+string(rec.DNS.Verdict))
			}
		}
		for _, kind := range []audit.Kind{audit.KindRun, audit.KindPolicy, audit.KindVM, audit.KindStep, audit.KindExec, audit.KindExit, audit.KindFile, audit.KindDNS, audit.KindOutput} {
			if kinds[kind] == 0 {
				t.Errorf("the record has no %s: %v", kind, kinds)
			}
		}
		if !slices.Contains(names, "evil.example deny") || !slices.Contains(names, "shop.example allow") {
			t.Errorf("DNS queries: %v", names)
		}
		if problems := r.events.all("problem"); len(problems) > 0 || len(r.events.all("sealed")) == 0 || len(r.events.all("committed")) == 0 {
			t.Errorf("the run reports the problems %q, and %q", problems, r.events.lines)
		}
	})
}

// TestPrivileges: the worker, which has the channel to the guest, QEMU's monitor and the sockets of the sandbox's network, has no
// privileges, and the process that started it has none of these sockets open.
func TestPrivileges(t *testing.T) {
	eachTier(t, func(t *testing.T, d driver) {
		r := newRig(t, d, "sleep 5")
		ended := r.start(t.Context())
		p := <-r.worker
		r.awaitExec(t)
		out, err := exec.Command("pgrep", "-U", strconv.Itoa(p.UID())).Output()
		must(t, err)
		pid := strings.TrimSpace(string(out))
		status, err := os.ReadFile("/proc/" + pid + "/status")
		must(t, err)
		for _, want := range []string{"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
			if !strings.Contains(string(status), want) {
				t.Errorf("the worker's status has no %q:\n%s", want, status)
			}
		}
		theirs := sockets(t, pid)
		for inode := range sockets(t, "self") {
			if theirs[inode] {
				t.Errorf("this process has the worker's socket %s open", inode)
			}
		}
		must(t, <-ended)
	})
}

// sockets returns the sockets that a process has open, except for the standard ones.
func sockets(t *testing.T, pid string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	entries, err := os.ReadDir("/proc/" + pid + "/fd")
	must(t, err)
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if link, err := os.Readlink("/proc/" + pid + "/fd/" + e.Name()); err == nil && n > 2 && strings.HasPrefix(link, "socket:") {
			all[link] = true
		}
		must(t, err)
	}
	return all
}

// TestKilled: when a worker is killed, its VM ends, another worker closes the record as interrupted, and nothing is left.
func TestKilled(t *testing.T) {
	eachTier(t, func(t *testing.T, d driver) {
		r := newRig(t, d, "sleep 60")
		ended := r.start(t.Context())
		p := <-r.worker
		r.awaitExec(t)
		kill(t, p)
		r.checkInterrupted(t, <-ended, worker.ErrDied.Error(), p)
	})
}

// TestCancelled: when the caller gives up, the worker ends the step and the run in order.
func TestCancelled(t *testing.T) {
	eachTier(t, func(t *testing.T, d driver) {
		r := newRig(t, d, "trap 'echo ended; exit 0' TERM; sleep 60 & wait")
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := r.start(ctx)
		<-r.worker
		r.awaitExec(t)
		cancel(fmt.Errorf("%w: by the test", context.Canceled))
		if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "by the test") {
			t.Errorf("the run ended with %v", err)
		}
		records := r.records(t)
		if last := records[len(records)-1]; last.Lifecycle == nil || last.Lifecycle.Status != audit.StatusCancelled {
			t.Errorf("the last record is %+v", last)
		}
		if out := r.out.String(); out != "ended\n" {
			t.Errorf("the step printed %q", out)
		}
	})
}

// TestGarbage: a worker that violates the protocol is killed, and the error states why.
func TestGarbage(t *testing.T) {
	t.Parallel()
	r := newRig(t, vmtest.GVisor(t), "true")
	r.parts.Start = func(ctx context.Context, w privsep.Worker, handlers map[string]privsep.Handler) (*privsep.Process, error) {
		test := privseptest.Worker(garbage)
		w.Env, w.Binds = test.Env, append(w.Binds, test.Binds...)
		return w.Start(ctx, handlers)
	}
	if _, err := r.run(t.Context()); !errors.Is(err, worker.ErrDied) || !strings.Contains(err.Error(), "message of the other process") {
		t.Errorf("the run ended with %v", err)
	}
}

// TestKilledAfterSigning: a worker that is killed when a segment was signed, and its manifest not written, leaves a record in
// which that manifest is the segment's only one.
func TestKilledAfterSigning(t *testing.T) {
	eachTier(t, func(t *testing.T, d driver) {
		r := newRig(t, d, "sleep 60")
		start := r.parts.Start
		var signed atomic.Bool
		r.parts.Start = func(ctx context.Context, w privsep.Worker, handlers map[string]privsep.Handler) (*privsep.Process, error) {
			seal := handlers["seal"]
			handlers["seal"] = func(ctx context.Context, body []byte, files []*os.File) (any, []*os.File, error) {
				manifest, with, err := seal(ctx, body, files)
				if signed.CompareAndSwap(false, true) {
					p := <-r.worker
					kill(t, p)
					r.worker <- p
					return nil, nil, errors.New("the worker does not get it")
				}
				return manifest, with, err
			}
			return start(ctx, w, handlers)
		}
		result, err := r.run(t.Context())
		must(t, err)
		r.checkInterrupted(t, result.Err, worker.ErrDied.Error(), <-r.worker)
	})
}

func kill(t *testing.T, p *privsep.Process) {
	t.Helper()
	if err := exec.Command("pkill", "-KILL", "-U", strconv.Itoa(p.UID())).Run(); err != nil {
		t.Errorf("kill the worker: %v", err)
	}
}

// checkInterrupted checks what is left of a run whose worker was killed.
func (r *rig) checkInterrupted(t *testing.T, err error, want string, p *privsep.Process) {
	t.Helper()
	if !errors.Is(err, worker.ErrDied) || err.Error() != want {
		t.Errorf("the run ended with %v", err)
	}
	records := r.records(t)
	last := records[len(records)-1]
	if last.Kind != audit.KindRun || last.Lifecycle.Phase != audit.PhaseEnd || last.Lifecycle.Status != audit.StatusInterrupted {
		t.Errorf("the last record is %+v", last)
	}
	select {
	case <-p.Done():
	default:
		t.Error("the worker is left")
	}
}

// start begins the run, and returns the channel that receives its error.
func (r *rig) start(ctx context.Context) <-chan error {
	ended := make(chan error, 1)
	go func() {
		result, err := r.run(ctx)
		ended <- errors.Join(err, result.Err, result.Record)
	}()
	return ended
}

// awaitExec waits until the log has the exec of sleep.
func (r *rig) awaitExec(t *testing.T) {
	t.Helper()
	for began := time.Now(); !r.executed(t); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("the step does not begin")
		}
	}
}

// executed reports whether the log has the exec of sleep.
func (r *rig) executed(t *testing.T) bool {
	for _, path := range r.logs(t) {
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), `bin/sleep"`) {
			return true
		}
	}
	return false
}

func (r *rig) logs(t *testing.T) []string {
	t.Helper()
	paths, err := wal.Segments(r.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return paths
}
