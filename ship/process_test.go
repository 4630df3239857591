package ship

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/sqlite"
)

// The child processes of these tests run this test binary again, with a role:
//
//	host    publishes the segments in a directory in order, prints a line for each that
//	        was acknowledged, waits until the store has all, and ends; after a while it may send again what
//	        the store does not have, as a host does
//	ingest  is an ingester into a SQLite store, which may kill itself right after a commit
//
// play returns the exit status.
func play(role string) int {
	c := Config{URL: os.Getenv("CUSTODY_SHIP_URL"), Tenant: "acme", Host: "h1", StreamBytes: 512 << 20}
	var err error
	switch role {
	case "host":
		err = playHost(c, os.Getenv("CUSTODY_SHIP_SEGMENTS"), os.Getenv("CUSTODY_SHIP_AGAIN") != "")
	case "ingest":
		die, _ := strconv.Atoi(os.Getenv("CUSTODY_SHIP_DIE"))
		err = playIngest(c, os.Getenv("CUSTODY_SHIP_DB"), die)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func playHost(c Config, dir string, again bool) error {
	ctx := context.Background()
	var segs []store.Segment
	r, err := Dial(ctx, c)
	if err != nil {
		return err
	}
	defer r.Close()
	files, err := filepath.Glob(dir + "/*")
	if err != nil {
		return err
	}
	for i, path := range files {
		message, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		seg, err := Decode(message)
		if err != nil {
			return err
		}
		if err := r.Publish(ctx, seg); err != nil {
			return err
		}
		fmt.Println(i)
		segs = append(segs, seg)
	}
	for again {
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := r.Drain(short)
		cancel()
		if err == nil {
			return nil
		}
		n, err := reconcile(ctx, r, segs)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "sent %d segments again\n", n)
	}
	return r.Drain(ctx)
}

// reconcile sends the segments of segs that the store does not have again.
func reconcile(ctx context.Context, r *Remote, segs []store.Segment) (n int, err error) {
	has := map[string]map[uint64]Held{}
	for _, seg := range segs {
		if has[seg.Run] == nil {
			has[seg.Run] = map[uint64]Held{}
			found, err := r.Stored(ctx, seg.Tenant, seg.Run, true)
			if err != nil {
				return n, err
			}
			for _, h := range found {
				has[seg.Run][h.Index] = h
			}
		}
		if has[seg.Run][seg.Index].Is(seg) {
			continue
		}
		if err := r.Republish(ctx, seg); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// deadly kills its process after so many commits, before the last one is acknowledged.
type deadly struct {
	Store
	left int
}

func (d *deadly) Ingest(ctx context.Context, segs ...store.Segment) error {
	err := d.Store.Ingest(ctx, segs...)
	if err == nil {
		if d.left--; d.left == 0 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	return err
}

func playIngest(c Config, path string, die int) error {
	db, err := sqlite.Open(context.Background(), path)
	if err != nil {
		return err
	}
	defer db.Close()
	c.Tenant, c.Host = "", ""
	return Ingest(context.Background(), c, &deadly{db, die}, IngestOptions{AckWait: time.Second, Batch: Batch{Rows: 100, Idle: 10 * time.Millisecond}})
}

// process is such a child, restarted whenever it ends before its work is done.
type process struct {
	t    *testing.T
	role string
	env  []string
	wrap []string // a prefix of its command

	mu      sync.Mutex // guards the fields below
	cmd     *exec.Cmd
	acked   int // greatest number printed on a line, plus one
	stderr  strings.Builder
	stopped bool
	started int
	done    chan struct{} // closed when it has ended normally
	ended   sync.WaitGroup
}

func begin(t *testing.T, role string, env ...string) *process { return beginIn(t, nil, role, env...) }

// beginIn starts it with a prefix of its command.
func beginIn(t *testing.T, wrap []string, role string, env ...string) *process {
	p := &process{t: t, role: role, wrap: wrap, env: append(env, "CUSTODY_SHIP_ROLE="+role), done: make(chan struct{})}
	p.ended.Go(p.run)
	t.Cleanup(p.stop)
	return p
}

func (p *process) run() {
	for p.once() {
		time.Sleep(10 * time.Millisecond)
	}
}

// once runs the process to its end and reports whether to restart it.
func (p *process) once() bool {
	args := append(append([]string{}, p.wrap...), os.Args[0])
	cmd := exec.Command(args[0], args[1:]...)
	p.mu.Lock()
	if p.stopped {
		p.mu.Unlock()
		return false
	}
	cmd.Env = append(os.Environ(), p.env...)
	if p.started++; p.started > 1 {
		cmd.Env = append(cmd.Env, "CUSTODY_SHIP_DIE=") // once
	}
	cmd.Stderr = &p.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // if the test is killed
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	p.cmd = cmd
	p.mu.Unlock()
	if err != nil {
		p.t.Error(err)
		return false
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		n, _ := strconv.Atoi(lines.Text())
		p.mu.Lock()
		p.acked = max(p.acked, n+1)
		p.mu.Unlock()
	}
	if err := cmd.Wait(); err == nil {
		close(p.done)
		return false
	}
	return true
}

// kill is kill -9.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil && p.cmd.Process != nil {
		_ = p.cmd.Process.Kill()
	}
}

func (p *process) stop() {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	for range 3 { // it may be restarting
		p.kill()
		time.Sleep(5 * time.Millisecond)
	}
	p.ended.Wait()
}

func (p *process) wait(d time.Duration) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(d):
		p.mu.Lock()
		defer p.mu.Unlock()
		p.t.Fatalf("the %s is not done after %v and %d starts; it acknowledged %d; it says: %s", p.role, d, p.started, p.acked, p.stderr.String())
	}
}

// waitAcked waits until that many segments were acknowledged.
func (p *process) waitAcked(n int) {
	p.t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		p.mu.Lock()
		acked, says := p.acked, p.stderr.String()
		p.mu.Unlock()
		if acked >= n {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("%d segments were acknowledged, want %d; the host says: %s", acked, n, says)
		}
	}
}

func writeSegments(t testing.TB, segs []store.Segment) string {
	t.Helper()
	dir := t.TempDir()
	for i, seg := range segs {
		message, err := Encode(seg)
		if err == nil {
			err = os.WriteFile(fmt.Sprintf("%s/%08d", dir, i), message, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestKilled kills the host, the server (sync_interval always) and one of two ingesters at random
// moments while segments are sent; in the end the store has each record exactly once.
func TestKilled(t *testing.T) {
	signer, _ := hostKey(t, "h1")
	s := startNATS(t, alwaysSync, "")
	path := filepath.Join(t.TempDir(), "store.db")
	var ingesters []*process
	for range 2 {
		ingesters = append(ingesters, begin(t, "ingest", "CUSTODY_SHIP_URL="+s.url(), "CUSTODY_SHIP_DB="+path, "CUSTODY_SHIP_DIE=3"))
	}
	kills := map[string]int{}
	for round := range rounds(2) {
		segs := sealedRun(t, signer, "acme", "h1", fmt.Sprint("r-", round), 4000, 20)
		host := begin(t, "host", "CUSTODY_SHIP_URL="+s.url(), "CUSTODY_SHIP_SEGMENTS="+writeSegments(t, segs))
		for range 4 {
			select {
			case <-host.done:
			case <-time.After(rand.N(400 * time.Millisecond)):
				kills[killOne(s, host, ingesters)]++
			}
		}
		host.wait(60 * time.Second)
		db, err := sqlite.OpenReader(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		wantExactly(t, db, segs)
		db.Close()
	}
	t.Logf("killed: %v", kills)
}

func killOne(s *natsServer, host *process, ingesters []*process) string {
	switch n := rand.N(4); n {
	case 0:
		s.kill()
		time.Sleep(rand.N(100 * time.Millisecond))
		s.start()
		return "server"
	case 1:
		host.kill()
		return "host"
	default:
		ingesters[n-2].kill()
		return "ingester"
	}
}

// TestKilledBetween kills an ingester between commit and ack, three times, and the host between a
// publish and its acknowledgement: the host sends the segment again, and the store has it once.
func TestKilledBetween(t *testing.T) {
	signer, verifier := hostKey(t, "h1")
	for round := range rounds(3) {
		s := startNATS(t, alwaysSync, "")
		path := filepath.Join(t.TempDir(), "store.db")
		segs := sealedRun(t, signer, "acme", "h1", "r-1", 400, 10)
		ingest := begin(t, "ingest", "CUSTODY_SHIP_URL="+s.url(), "CUSTODY_SHIP_DB="+path, fmt.Sprint("CUSTODY_SHIP_DIE=", round%3+1))
		host := begin(t, "host", "CUSTODY_SHIP_URL="+s.url(), "CUSTODY_SHIP_SEGMENTS="+writeSegments(t, segs))
		host.waitAcked(round%4*3 + 1)
		host.kill()
		host.wait(60 * time.Second)
		ingest.mu.Lock()
		if ingest.started < 2 {
			t.Errorf("the ingester was started %d times: it did not die", ingest.started)
		}
		ingest.mu.Unlock()
		ingest.stop()
		db, err := sqlite.Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		wantExactly(t, db, segs)
		for _, seg := range segs {
			if err := checkManifest(seg, note.VerifierList(verifier)); err != nil {
				t.Error(err)
			}
		}
		db.Close()
		s.kill()
	}
}

// TestSlowStore: a commit that takes longer than AckWait is not repeated, and one that fails for longer is done once
// the store is available again.
func TestSlowStore(t *testing.T) {
	s := startNATS(t, alwaysSync, "")
	signer, _ := hostKey(t, "h1")
	db := openStore(t)
	var mu sync.Mutex
	calls := map[uint64]int{}
	slow := &gated{db, func(segs []store.Segment) error {
		mu.Lock()
		for _, seg := range segs {
			calls[seg.Index]++
		}
		first := calls[0] == 1 && segs[0].Index == 0
		mu.Unlock()
		if first {
			time.Sleep(2500 * time.Millisecond)
		}
		return nil
	}}
	g, _ := ingester(t, s.config(), slow, IngestOptions{AckWait: time.Second, Batch: Batch{Rows: 50}})
	ingester(t, s.config(), slow, IngestOptions{AckWait: time.Second, Batch: Batch{Rows: 50}}) // would take over a redelivered message
	r := dial(t, s.config())
	segs := sealedRun(t, signer, "acme", "h1", "r-1", 500, 10)
	send(t, r, segs...)
	if err := drainRemote(t, r, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	wantExactly(t, db, segs)
	mu.Lock()
	defer mu.Unlock()
	for i, n := range calls {
		if n != 1 {
			t.Errorf("segment %d was handed to the store %d times; figures: %+v", i, n, g.Stats())
		}
	}
}

// TestAwayLongerThanAckWait: the store fails for longer than the stream waits.
func TestAwayLongerThanAckWait(t *testing.T) {
	s := startNATS(t, alwaysSync, "")
	signer, _ := hostKey(t, "h1")
	db := openStore(t)
	back := time.Now().Add(2500 * time.Millisecond)
	away := &gated{db, func([]store.Segment) error {
		if time.Now().Before(back) {
			return fmt.Errorf("injected: away")
		}
		return nil
	}}
	g, _ := ingester(t, s.config(), away, IngestOptions{AckWait: time.Second})
	r := dial(t, s.config())
	segs := sealedRun(t, signer, "acme", "h1", "r-1", 500, 10)
	send(t, r, segs...)
	if err := drainRemote(t, r, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	wantExactly(t, db, segs)
	if f := g.Stats(); f.StoreFailures == 0 || f.Redelivered > 0 {
		t.Errorf("figures: %+v", f)
	}
}
