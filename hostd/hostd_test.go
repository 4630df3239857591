package hostd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/sealer"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/privsep/privseptest"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/project/registry"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/vmtest"
	"github.com/custody-project/custody/worker"
)

func TestMain(m *testing.M) {
	privseptest.Main(m, func() error {
		if privseptest.Mode() == "owner" {
			return own()
		}
		return worker.Main(context.Background())
	})
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rig is a Server with the home of root, and the home of the process that owns the runs.
type rig struct {
	home, own *host.Host
	socket    string
	workers   chan *privsep.Process

	pooled *hostd.Pooled // nil: there is no pool
	cold   atomic.Int32  // runs that got no warm sandbox

	mu      sync.Mutex // guards notices
	notices []string
}

// newRig starts a Server for the users.
func newRig(t *testing.T, users ...int) *rig {
	t.Helper()
	return newPooledRig(t, 0, users...)
}

// newPooledRig starts a Server that keeps warm sandboxes.
func newPooledRig(t *testing.T, idle int, users ...int) *rig {
	t.Helper()
	enough := func() (int64, error) { return 8 << 30, nil } // other tests must not decide whether the pool has a sandbox
	return newRigWith(t, rigOptions{idle: idle, users: users, max: 8, pool: hostd.PoolOptions{Available: enough}})
}

// rigOptions describe a Server.
type rigOptions struct {
	idle  int // warm sandboxes for each project; 0: there is no pool
	users []int
	max   int // connections
	lease time.Duration
	pool  hostd.PoolOptions // in addition to idle
	root  string            // the home of root, which exists; "": a new directory
	// settings are further lines of host.yaml.
	settings string
	// sandboxes, if set, returns what makes the sandboxes in place of o.
	sandboxes func(o hostd.Opener) hostd.Opener
}

func newRigWith(t *testing.T, o rigOptions) *rig {
	t.Helper()
	vmtest.GVisor(t)
	dir := t.TempDir()
	r := &rig{socket: filepath.Join(dir, "host.sock"), workers: make(chan *privsep.Process, 256)}
	if o.root == "" {
		o.root = filepath.Join(dir, "root")
		check(t, os.Mkdir(o.root, 0o700))
	}
	check(t, os.WriteFile(filepath.Join(o.root, host.ConfigFile), []byte("version: 1\nisolation: {require: gvisor, runsc: "+os.Getenv("CUSTODY_TEST_RUNSC")+"}\n"+o.settings), 0o600))
	var err error
	r.home, err = host.Open(o.root)
	check(t, err)
	r.own, err = host.OpenShared(filepath.Join(dir, "own"), r.home.Dir)
	check(t, err)
	ledger, err := sealer.OpenLedger(filepath.Join(dir, "ledger"), host.SandboxPrefix)
	check(t, err)
	l, err := privsep.Listen(t.Context(), r.socket, privsep.Access{UID: -1, GID: -1, Mode: 0o600})
	check(t, err)
	h := &hostd.Host{Home: r.home, Templates: vmtest.Templates(t), Start: r.start, Ledger: ledger, Silent: func(err error) { r.notice(err.Error()) }}
	var sandboxes hostd.Opener = h
	if o.idle > 0 {
		o.pool.Idle = o.idle
		pooled, err := hostd.NewPooled(t.Context(), h, o.pool)
		check(t, err)
		r.pooled = pooled
		t.Cleanup(func() { check(t, pooled.Close(context.Background())) }) // after the server's
		sandboxes = pooled
	}
	if o.sandboxes != nil {
		sandboxes = o.sandboxes(sandboxes)
	}
	s := &hostd.Server{
		Sandboxes: &hostd.Bounded{Home: r.home, Sandboxes: sandboxes},
		Users:     o.users, Max: o.max, Lease: o.lease, Notice: r.notice, Meters: o.pool.Meters,
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return r
}

// start starts this test's program as a worker.
func (r *rig) start(ctx context.Context, w privsep.Worker, handlers map[string]privsep.Handler) (*privsep.Process, error) {
	test := privseptest.Worker("worker")
	w.Env, w.Binds = test.Env, append(w.Binds, test.Binds...)
	p, err := w.Start(ctx, handlers)
	if err == nil {
		select {
		case r.workers <- p:
		default: // no one takes them
		}
	}
	return p, err
}

func (r *rig) notice(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notices = append(r.notices, text)
}

// noticed waits for a notice to the administrator.
func (r *rig) noticed(t *testing.T, want string) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		r.mu.Lock()
		all := strings.Join(r.notices, "\n")
		r.mu.Unlock()
		if strings.Contains(all, want) {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("no notice has %q: %s", want, all)
		}
	}
}

// prepare prepares a run of the registered project.
func (r *rig) prepare(t *testing.T, script string, out *bytes.Buffer) (*run.Job, error) {
	t.Helper()
	o := run.Options{
		Home: r.own, Command: []string{"bash", "-c", script}, Sandboxes: hostd.NewClient(r.socket),
		Attach: func() (run.Console, func()) { return run.Console{Stdout: out, Stderr: out}, func() {} },
		Notice: func(text string) { t.Log(text) }, Problem: func(err error) { t.Log(err) },
		Progress: func(text string) {
			if strings.HasPrefix(text, "no warm sandbox") {
				r.cold.Add(1)
			}
		},
	}
	name := "shop"
	check(t, o.SetProject(t.Context(), &name, ""))
	return run.Prepare(t.Context(), o)
}

// register registers a project.
func register(t *testing.T, h *host.Host, text string) {
	t.Helper()
	_, _, err := registry.Registry{Dir: h.Projects()}.Apply(t.Context(), []byte(text), registry.Change{Time: time.Now(), Author: "the test"}, func(registry.Version) error { return nil })
	check(t, err)
}

const shop = "version: 1\nproject: shop\nlimits: {memory: 256MiB}\n"

// TestRun: a run whose owner has no key and starts nothing itself.
func TestRun(t *testing.T) {
	t.Parallel()
	r := newRig(t, os.Getuid())
	var out bytes.Buffer
	register(t, r.home, shop)
	job, err := r.prepare(t, "echo hello; exit 3", &out)
	check(t, err)
	res, err := job.Run(t.Context())
	check(t, errors.Join(err, job.Close()))
	if res.ExitCode != 3 || res.Tier != vmm.GVisor || out.String() != "hello\n" {
		t.Errorf("%+v, output %q", res, out.String())
	}
}

// TestPooled: runs of one project get warm sandboxes when there are some, each a sandbox of its own, which has nothing of the run before.
func TestPooled(t *testing.T) {
	t.Parallel()
	r := newPooledRig(t, 1, os.Getuid())
	register(t, r.home, shop)
	const script = "cat /etc/hostname; test ! -e /workspace/mark; touch /workspace/mark"
	seen := map[string]bool{}
	for i := range 3 {
		var out bytes.Buffer
		job, err := r.prepare(t, script, &out)
		check(t, err)
		res, err := job.Run(t.Context())
		check(t, errors.Join(err, job.Close()))
		if res.ExitCode != 0 || seen[out.String()] || out.Len() == 0 {
			t.Fatalf("%+v, output %q", res, out.String())
		}
		seen[out.String()] = true
		why, first := r.started(t, res.ID).Reason, i == 0 // only the first of its kind finds no pool
		if r.cold.Load() != 1 || strings.HasPrefix(why, "no warm sandbox: ") != first {
			t.Errorf("run %d: %d runs had no warm sandbox; the record's reason is %q", i, r.cold.Load(), why)
		}
		r.awaitIdle(t, 1)
	}
}

// started returns the first event of a run.
func (r *rig) started(t *testing.T, run string) *audit.Lifecycle {
	t.Helper()
	segments, err := wal.Segments(r.own.RunDir(run))
	check(t, err)
	for f, err := range wal.ReadSegment(segments[0]) {
		check(t, err)
		var rec audit.Record
		check(t, json.Unmarshal(f.Bytes, &rec))
		return rec.Lifecycle
	}
	t.Fatal("the record is empty")
	return nil
}

// TestOwnerEnds: when the owner's connection ends, so do the worker and the machine.
func TestOwnerEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t, os.Getuid())
	sandbox, details, err := hostd.NewClient(r.socket).Open(t.Context(), spec(), hostd.Events{})
	check(t, err)
	if details.Tier != vmm.GVisor || details.TemplateDigest == "" {
		t.Errorf("%+v", details)
	}
	p := <-r.workers
	check(t, sandbox.Close())
	select {
	case <-p.Done():
	default:
		t.Error("the worker is left")
	}
	if err := sandbox.Begin(t.Context(), worker.Identity{Run: "r-1"}, nil); !errors.Is(err, privsep.ErrClosed) {
		t.Errorf("a run began in a closed sandbox: %v", err)
	}
}

// spec is a sandbox of a run without a project.
func spec() hostd.Spec {
	l := project.Default().Limits
	return hostd.Spec{Template: "base", Tier: vmm.GVisor, CPUs: 1, Memory: l.Memory, Disk: l.Disk}
}

// TestBounds: a process that root does not trust gets no more than the project allows.
func TestBounds(t *testing.T) {
	t.Parallel()
	r := newRigWith(t, rigOptions{users: []int{os.Getuid()}, max: 8, settings: "quotas: {tenants: {served: {}}}\n"})
	for name, c := range map[string]struct {
		change func(*hostd.Spec)
		want   string
	}{
		"no such project":   {func(s *hostd.Spec) { s.Project = "stranger" }, "stranger"},
		"no name":           {func(s *hostd.Spec) { s.Project = "../keys" }, "../keys"},
		"another template":  {func(s *hostd.Spec) { s.Template = "other" }, `template "other"`},
		"a weaker tier":     {func(s *hostd.Spec) { s.Tier = vmm.QEMUTCG }, `isolation "qemu-tcg"`},
		"no tier":           {func(s *hostd.Spec) { s.Tier = "" }, `isolation ""`},
		"more CPUs":         {func(s *hostd.Spec) { s.CPUs = 64 }, "64 CPUs"},
		"a negative number": {func(s *hostd.Spec) { s.CPUs = -1 }, "-1 CPUs"},
		"more memory":       {func(s *hostd.Spec) { s.Memory <<= 10 }, "bytes of memory"},
		"no memory":         {func(s *hostd.Spec) { s.Memory = 0 }, "bytes of memory"},
		"a larger disk":     {func(s *hostd.Spec) { s.Disk <<= 20 }, "a disk of"},
		"unhashed files":    {func(s *hostd.Spec) { s.HashOver = 1 << 40 }, "files are hashed above"},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec()
			c.change(&s)
			sandbox, _, err := hostd.NewClient(r.socket).Open(t.Context(), s, hostd.Events{})
			if err == nil {
				t.Fatal(sandbox.Close())
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
	sandbox, _, err := hostd.NewClient(r.socket).Open(t.Context(), spec(), hostd.Events{})
	check(t, err)
	defer sandbox.Close()
	var files []*os.File
	for range worker.OwnerFiles {
		f, err := os.Open(os.DevNull)
		check(t, err)
		defer f.Close()
		files = append(files, f)
	}
	for tenant, want := range map[string]string{"other": "cannot be of the tenant", "served": "facts"} {
		err := sandbox.Begin(t.Context(), worker.Identity{Run: host.NewRunID(time.Now()), Facts: statement.Facts{Tenant: tenant}}, files)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a run of the tenant %s: %v; want %q", tenant, err, want)
		}
	}
	elsewhere := worker.Identity{Run: host.NewRunID(time.Now()), Resolvers: []string{"udp://127.0.0.1:5353"}}
	if err := sandbox.Begin(t.Context(), elsewhere, files); err == nil || !strings.Contains(err.Error(), "DNS server") {
		t.Errorf("a run with a DNS server that the project does not name began: %v", err)
	}
	patient := worker.Identity{Run: host.NewRunID(time.Now()), Silence: time.Hour}
	if err := sandbox.Begin(t.Context(), patient, files); err == nil || !strings.Contains(err.Error(), "limits.silence is 1h0m0s; the project allows at most 30s") {
		t.Errorf("a run whose worker may be silent for longer than the project allows: %v", err)
	}
	for _, run := range []string{host.NewRunID(time.Now()), "", "../keys/host"} {
		if left, err := hostd.NewClient(r.socket).Reopen(t.Context(), run); err == nil {
			t.Errorf("%q was reopened: %v", run, left.Close())
		}
	}
	open := []string{"allow: evil.example"}
	if err := sandbox.SetPolicy(t.Context(), open); err == nil {
		t.Error("a policy that exceeds the project was accepted")
	}
	if err := sandbox.Begin(t.Context(), worker.Identity{Run: "r-1", Rules: open}, files); err == nil {
		t.Error("a run with a policy that exceeds the project began")
	}
}

// TestStrangers: other users are refused, and what violates the protocol ends only its own connection.
func TestStrangers(t *testing.T) {
	t.Parallel()
	r := newRig(t, os.Getuid()+1)
	if _, _, err := hostd.NewClient(r.socket).Open(t.Context(), spec(), hostd.Events{}); !errors.Is(err, privsep.ErrClosed) {
		t.Errorf("a stranger was served: %v", err)
	}
	r.noticed(t, "is not a user of this service")

	r = newRig(t, os.Getuid())
	for _, garbage := range []string{"garbage", `{"id":1,"call":"no such call"}`, `{"id":1,"body":{}}`, strings.Repeat("[", 60000)} {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: r.socket, Net: "unixpacket"})
		check(t, err)
		_, err = c.Write([]byte(garbage))
		check(t, err)
		if _, err := c.Read(make([]byte, 100)); err == nil {
			t.Errorf("%.20q got an answer", garbage)
		}
		check(t, c.Close())
	}
	sandbox, _, err := hostd.NewClient(r.socket).Open(t.Context(), spec(), hostd.Events{})
	check(t, err)
	check(t, sandbox.Close())
}

// TestPublish: the group can read the settings, and neither the key nor the templates.
func TestPublish(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	home := filepath.Join(dir, "home")
	check(t, errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)))
	check(t, os.Mkdir(home, 0o700))
	check(t, os.WriteFile(filepath.Join(home, host.ConfigFile), []byte("version: 1\n"), 0o600))
	h, err := host.Open(home)
	check(t, err)
	_, err = h.Keys().Signing()
	check(t, err)
	check(t, os.Mkdir(h.Templates(), 0o700))
	register(t, h, shop)
	const gid = 65533
	check(t, hostd.Publish(h.Layout, gid))
	for path, readable := range map[string]bool{
		host.ConfigFile: true, "keys/host.pub": true, "projects": true, "keys/host.key": false, "templates": false, "runs": false,
	} {
		open := "cat"
		if info, err := os.Stat(filepath.Join(home, path)); err == nil && info.IsDir() {
			open = "ls"
		}
		out, err := exec.Command("setpriv", "--reuid=65534", fmt.Sprintf("--regid=%d", gid), "--clear-groups", open, filepath.Join(home, path)).CombinedOutput()
		if (err == nil) != readable {
			t.Errorf("%s can be read: %v: %s", path, err == nil, out)
		}
	}
}
