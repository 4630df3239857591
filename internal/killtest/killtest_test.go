package killtest

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// Rounds in go test, how long events flow in each, and how far kills are apart on average.
const (
	fewRounds = 3
	atOnce    = 4
	roundTime = 3 * time.Second
	killEvery = 250 * time.Millisecond
	drainTime = time.Minute
)

// summary is what a run of rounds says in the end.
type summary struct {
	mu sync.Mutex // guards the sums

	Outcome string         `json:"outcome"`
	Store   string         `json:"store"`
	Rounds  int            `json:"rounds"`
	Kills   map[string]int `json:"kills"`
	Runs    int            `json:"runs"`
	Acked   int            `json:"events_acknowledged"`
	Records int            `json:"records_in_the_store"`
	Seed    uint64         `json:"seed"`
	Seconds float64        `json:"seconds"`
}

// TestTorture is rounds of kills. After each, every acknowledged event is in the
// store once, with the bytes that the log has, and every run's bundle verifies. Rounds wait
// more than they work, so several run concurrently, each with processes of its own.
func TestTorture(t *testing.T) { rounds(t, "SQLite", number("CUSTODY_ROUNDS", fewRounds), atOnce) }

// TestTortureClickHouse is the same with the current ClickHouse engine in a server
// of its own, which is killed too. It needs more memory, so there are fewer rounds.
func TestTortureClickHouse(t *testing.T) {
	if os.Getenv("CUSTODY_TEST_CHDB") == "" {
		t.Fatal("CUSTODY_TEST_CHDB is not set: it is what hack/build-chdb prints")
	}
	rounds(t, "ClickHouse", max(1, number("CUSTODY_ROUNDS", fewRounds)/4), 2)
}

// TestTortureHome is the same with a host as `custody run` makes it: package home over a
// $CUSTODY_HOME whose host.yaml names the servers. After each round fsck finds nothing.
func TestTortureHome(t *testing.T) {
	rounds(t, "SQLite, host by package home", max(1, number("CUSTODY_ROUNDS", fewRounds)/4), 2)
}

func rounds(t *testing.T, kind string, rounds, atOnce int) {
	seed := uint64(number("CUSTODY_SEED", int(time.Now().UnixNano())))
	s := summary{Store: kind, Kills: map[string]int{}, Seed: seed}
	began := time.Now()
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(rounds, atOnce) {
		workers.Go(func() {
			for i := range next {
				t.Run(strconv.Itoa(i), func(t *testing.T) { round(t, kind, seed, i, &s) })
			}
		})
	}
	for i := 0; i < rounds && !t.Failed(); i++ {
		next <- i
	}
	close(next)
	workers.Wait()
	s.Outcome = "all well"
	if t.Failed() {
		s.Outcome = "failed"
	}
	s.Seconds = time.Since(began).Round(time.Second).Seconds()
	s.tell(t)
}

func round(t *testing.T, kind string, seed uint64, i int, s *summary) {
	dice := mathrand.New(mathrand.NewPCG(seed, uint64(i)))
	w := newWorld(t, kind)
	w.killAll(t, dice)
	w.check(t, s)
	w.close(t)
	if t.Failed() {
		t.Logf("that was round %d of seed %d", i, seed)
	}
}

// tell logs the summary, and adds it to the file that CUSTODY_SUMMARY names.
func (s *summary) tell(t *testing.T) {
	text, err := json.MarshalIndent(s, "", "  ")
	check(t, err)
	t.Logf("%s", text)
	if path := os.Getenv("CUSTODY_SUMMARY"); path != "" {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		check(t, err)
		defer f.Close()
		_, err = fmt.Fprintf(f, "%s\n", text)
		check(t, err)
	}
}

func number(env string, usual int) int {
	n, err := strconv.Atoi(cmp.Or(os.Getenv(env), strconv.Itoa(usual)))
	if err != nil || n < 1 {
		panic(env + " is not a number")
	}
	return n
}

// world is all processes of a round with what they keep.
type world struct {
	home   string        // of a host that package home makes, else empty
	runs   string        // directory of the runs' logs
	db     string        // path of SQLite, or DSN of ClickHouse
	key    note.Verifier // of the host
	public string
	signer note.Signer

	nats, ingest, host *process
	store              *process // nil if it is the ingester

	mu    sync.Mutex                // guards the fields below
	acked map[string]map[uint64]int // run and seq to event
	run   string                    // that is being written
	words []string                  // of trouble

	dropped int // events
}

func newWorld(t *testing.T, kind string) *world {
	t.Helper()
	dir := t.TempDir()
	private, public, err := note.GenerateKey(rand.Reader, hostName)
	check(t, err)
	verifier, err := note.NewVerifier(public)
	check(t, err)
	signer, err := note.NewSigner(private)
	check(t, err)
	w := &world{signer: signer, runs: filepath.Join(dir, "runs"), db: filepath.Join(dir, "custody.db"), key: verifier, public: public, acked: map[string]map[uint64]int{}}
	check(t, os.Mkdir(w.runs, 0o700))
	port, monitor := freePort(t), freePort(t)
	config := filepath.Join(dir, "nats.conf")
	check(t, os.WriteFile(config, fmt.Appendf(nil, `server_name: killtest
listen: "127.0.0.1:%d"
http: "127.0.0.1:%d"
max_payload: 16MB
max_pending: 64MB
log_file: %q
jetstream { store_dir: %q, sync_interval: always, max_file_store: 1TB }
`, port, monitor, filepath.Join(dir, "nats.log"), filepath.Join(dir, "nats")), 0o600))
	if kind == "ClickHouse" {
		address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
		w.db = "http://" + address + "/killtest"
		w.store = &process{name: "store", args: []string{os.Getenv("CUSTODY_TEST_CHDB"), "-listen", address, "-path", filepath.Join(dir, "clickhouse")}}
	}
	env := []string{
		"CUSTODY_TORTURE_NATS=" + config,
		fmt.Sprintf("CUSTODY_TORTURE_URL=nats://127.0.0.1:%d", port),
		fmt.Sprintf("CUSTODY_TORTURE_MONITOR=http://127.0.0.1:%d", monitor),
		"CUSTODY_TORTURE_STORE=" + w.db, "CUSTODY_TORTURE_RUNS=" + w.runs, "CUSTODY_TORTURE_KEY=" + private, "CUSTODY_TORTURE_PUBLIC=" + public,
	}
	w.nats = &process{name: "nats", env: env}
	w.ingest = &process{name: "ingest", env: env, hear: w.trouble}
	w.host = &process{name: "host", env: env, hear: w.hear}
	if strings.Contains(kind, "home") {
		w.atHome(t, dir, port, monitor)
	}
	return w
}

// all returns the processes in the order in which they start.
func (w *world) all() []*process {
	all := []*process{w.nats, w.ingest, w.host}
	if w.store != nil {
		all = append([]*process{w.store}, all...)
	}
	return all
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// hear notes what the host says.
func (w *world) hear(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var run string
	var seq uint64
	var n int
	if c, _ := fmt.Sscanf(line, "run %s", &run); c == 1 {
		w.run, w.acked[run] = run, map[uint64]int{}
	} else if c, _ := fmt.Sscanf(line, "acked %d %d", &seq, &n); c == 2 {
		w.acked[w.run][seq] = n
	} else if strings.HasPrefix(line, "dropped ") {
		w.dropped++
	}
}

func (w *world) trouble(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.words = append(w.words, line)
}

// killAll kills and restarts until the time is up, and then lets all finish.
func (w *world) killAll(t *testing.T, dice *mathrand.Rand) {
	all := w.all()
	for _, p := range all {
		p.start(t)
	}
	for until := time.Now().Add(roundTime); time.Now().Before(until); {
		time.Sleep(time.Duration(dice.ExpFloat64() * float64(killEvery)))
		dead := []*process{all[dice.IntN(len(all))]}
		if other := all[dice.IntN(len(all))]; other != dead[0] && dice.IntN(3) == 0 {
			dead = append(dead, other)
		}
		for _, p := range dead {
			p.kill(t)
		}
		for _, p := range dead {
			time.Sleep(time.Duration(dice.IntN(200)) * time.Millisecond)
			p.start(t)
		}
	}
	w.host.waitFor(t, "run")
	if err := w.host.end(t, drainTime); err != nil {
		t.Errorf("the host's end: %v", err)
	}
	w.tidy(t)
}

// tidy has one more host ship what all those that died have left.
func (w *world) tidy(t *testing.T) {
	t.Helper()
	p := &process{name: "host", env: append([]string{"CUSTODY_TORTURE_TIDY=1"}, w.host.env...)}
	if w.home != "" {
		p.args = []string{w.host.args[0], "tidy", "-home", w.home}
	}
	p.start(t)
	timer := time.AfterFunc(drainTime, func() { p.cmd.Process.Kill() })
	if err := p.wait(); err != nil || !timer.Stop() {
		t.Errorf("what was left did not get into the store: %v", err)
	}
}

func (w *world) close(t *testing.T) {
	t.Helper()
	for _, p := range slices.Backward(w.all()) {
		if err := p.end(t, 20*time.Second); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}
