package ship

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/sqlite"
	"github.com/custody-project/custody/store/storetest"
)

// TestMain also runs the child processes of the tests: see process_test.go.
func TestMain(m *testing.M) {
	if role := os.Getenv("CUSTODY_SHIP_ROLE"); role != "" {
		os.Exit(play(role))
	}
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

var built struct {
	sync.Once
	dir, path string
	err       error
}

// serverBinary builds the nats-server of the module's go.mod, once.
func serverBinary(t testing.TB) string {
	t.Helper()
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "custody-nats-"); built.err != nil {
			return
		}
		built.path = filepath.Join(built.dir, "nats-server")
		out, err := exec.Command("go", "build", "-o", built.path, "github.com/nats-io/nats-server/v2").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("build nats-server: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

// natsServer is a real nats-server in a separate process, at a unique address in 127/8.
type natsServer struct {
	t    testing.TB
	addr string
	dir  string
	wrap []string // a prefix of the server's command, such as ip netns exec
	cmd  *exec.Cmd
}

// startNATS starts a server; conf is added to its configuration, and may have a sync_interval.
func startNATS(t testing.TB, jetstream, conf string) *natsServer {
	t.Helper()
	s := &natsServer{t: t, dir: t.TempDir(),
		addr: fmt.Sprintf("127.%d.%d.%d", 1+mathrand.N(254), mathrand.N(256), 1+mathrand.N(254))}
	s.configure(jetstream, conf)
	t.Cleanup(s.kill)
	s.start()
	return s
}

const alwaysSync = "sync_interval: always"

func (s *natsServer) configure(jetstream, conf string) {
	if jetstream != "" {
		jetstream = fmt.Sprintf("jetstream { store_dir: %q, max_file_store: 4GB, %s }", s.dir+"/js", jetstream)
	}
	text := fmt.Sprintf("listen: \"%s:4222\"\nhttp: \"%s:8222\"\nmax_payload: 16MB\n%s\n%s\n", s.addr, s.addr, jetstream, conf)
	if err := os.WriteFile(s.dir+"/nats.conf", []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *natsServer) url() string     { return "nats://" + s.addr + ":4222" }
func (s *natsServer) monitor() string { return "http://" + s.addr + ":8222" }

// start starts the process without waiting until it is ready.
func (s *natsServer) start() {
	s.t.Helper()
	args := append(append([]string{}, s.wrap...), serverBinary(s.t), "-c", s.dir+"/nats.conf", "-l", s.dir+"/log")
	s.cmd = exec.Command(args[0], args[1:]...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // if the test is killed
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
}

// kill kills the process with SIGKILL and waits for it.
func (s *natsServer) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// conn is a connection without the code under test.
func (s *natsServer) conn(options ...nats.Option) *nats.Conn {
	s.t.Helper()
	options = append([]nats.Option{nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond)}, options...)
	c, err := nats.Connect(s.url(), options...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	if err := waitFor(s.t, func() error {
		if !c.IsConnected() {
			return fmt.Errorf("not connected: %v", c.LastError())
		}
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// waitFor repeats f until it succeeds, for 20 s.
func waitFor(t testing.TB, f func() error) error {
	t.Helper()
	return waitLong(t, 2*time.Minute, f)
}

func waitLong(t testing.TB, d time.Duration, f func() error) error {
	t.Helper()
	var err error
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = f(); err == nil {
			return nil
		}
	}
	return err
}

func (s *natsServer) config() Config {
	return Config{URL: s.url(), Tenant: "acme", Host: "h1", Monitor: s.monitor(), StreamBytes: 256 << 20}
}

func dial(t testing.TB, c Config) *Remote {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := Dial(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// ingester runs an ingester until the test ends, or the returned function is called.
func ingester(t testing.TB, c Config, s Store, o IngestOptions) (*Ingester, func()) {
	t.Helper()
	g := NewIngester(c, s, o)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("ingester: %v", err)
		}
	})
	t.Cleanup(stop)
	return g, stop
}

func openStore(t testing.TB) *sqlite.Store {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// hostKey is a signing key with a host's name.
func hostKey(t testing.TB, host string) (note.Signer, note.Verifier) {
	t.Helper()
	private, public, err := note.GenerateKey(rand.Reader, host)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := note.NewVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	return signer, verifier
}

// sealedRun is a run of n records in segments of the given size, with the log's manifests.
func sealedRun(t testing.TB, signer note.Signer, tenant, host, run string, n, size int) []store.Segment {
	t.Helper()
	return sealFrames(t, signer, tenant, host, run, storetest.Frames(run, storetest.Events(n)), size)
}

func sealFrames(t testing.TB, signer note.Signer, tenant, host, run string, frames []store.Frame, size int) []store.Segment {
	t.Helper()
	sealer := statement.NewSealer(signer, statement.Facts{Tier: "qemu-tcg"})
	segs := storetest.Segments(run, frames, size)
	var prev []byte
	for i := range segs {
		s := &segs[i]
		s.Tenant, s.Host = tenant, host
		ws := wal.Segment{Run: run, Index: s.Index, First: s.First, Last: s.Last, Count: uint64(len(s.Frames)),
			Time: storetest.Start().Add(time.Duration(i) * time.Second), Closing: wal.Open, Prev: prev}
		for _, f := range s.Frames {
			ws.Leaves = append(ws.Leaves, f.Leaf())
			ws.Bytes += int64(len(f.Body))
		}
		if len(s.Frames) == 0 {
			ws.Closing, ws.First, ws.Last = wal.Sealed, uint64(len(frames)+1), uint64(len(frames))
			s.First, s.Last = ws.First, ws.Last
		}
		_, manifest, err := sealer.Seal(ws)
		if err != nil {
			t.Fatal(err)
		}
		s.Manifest, prev = manifest, manifest
		s.Root = merkle.Root(hashes(ws.Leaves))
	}
	return segs
}

func hashes(leaves [][32]byte) []merkle.Hash {
	all := make([]merkle.Hash, len(leaves))
	for i, l := range leaves {
		all[i] = l
	}
	return all
}

// rounds returns how often a randomized test is repeated: a few times, or CUSTODY_ROUNDS.
func rounds(few int) int {
	if n, err := strconv.Atoi(os.Getenv("CUSTODY_ROUNDS")); err == nil && n > 0 {
		return n
	}
	return few
}

// wantExactly fails unless the store has each of the run's records once, as sent, and its complete chain.
func wantExactly(t testing.TB, s store.Store, segs []store.Segment) {
	t.Helper()
	tenant, run := segs[0].Tenant, segs[0].Run
	var want []store.Frame
	for _, seg := range segs {
		want = append(want, seg.Frames...)
	}
	n := 0
	for row, err := range s.Records(t.Context(), store.Query{Tenant: tenant, Run: run}) {
		if err != nil {
			t.Fatal(err)
		}
		if n >= len(want) || row.Seq != want[n].Seq || row.Frame().Leaf() != want[n].Leaf() || row.Tenant != tenant {
			t.Fatalf("run %s: record %d in the store is seq %d of tenant %q, and not what was sent", run, n, row.Seq, row.Tenant)
		}
		n++
	}
	chain, err := s.Manifests(t.Context(), tenant, run)
	if err != nil || n != len(want) || len(chain) != len(segs) {
		t.Fatalf("run %s: the store has %d records and %d manifests, %d and %d were sent (%v)", run, n, len(chain), len(want), len(segs), err)
	}
}
