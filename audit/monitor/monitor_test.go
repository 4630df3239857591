package monitor

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/storage/posix"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/hostlog"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/witness"
)

// host is a real log and its key.
type host struct {
	signer note.Signer
	key    note.Verifier
	dir    string
	policy *witness.Policy
}

func newHost(t testing.TB) *host {
	t.Helper()
	skey, vkey, err := note.GenerateKey(rand.Reader, "custody-test")
	check(t, err)
	h := &host{dir: filepath.Join(t.TempDir(), "log")}
	h.signer, err = note.NewSigner(skey)
	check(t, err)
	h.key, err = note.NewVerifier(vkey)
	check(t, err)
	return h
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// add adds manifests as the host's program does, and publishes them.
func (h *host) add(t testing.TB, all ...[]byte) error {
	t.Helper()
	l, err := hostlog.Open(t.Context(), hostlog.Options{Dir: h.dir, Signer: h.signer, Verifier: h.key, Witnesses: h.policy})
	check(t, err)
	var index uint64
	for _, entry := range all {
		index, err = l.Add(t.Context(), entry)
		check(t, err)
	}
	_, err = l.Publish(t.Context(), index)
	return errors.Join(err, l.Close(context.WithoutCancel(t.Context())))
}

// force adds an entry as an attacker on the host would, with another program.
func (h *host) force(t testing.TB, entry []byte) {
	t.Helper()
	driver, err := posix.New(t.Context(), posix.Config{Path: h.dir})
	check(t, err)
	options := tessera.NewAppendOptions().WithCheckpointSigner(h.signer).WithBatching(1, time.Second).
		WithCheckpointInterval(time.Hour).WithCheckpointRepublishInterval(0).WithGarbageCollectionInterval(0)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	a, _, _, err := tessera.NewAppender(ctx, driver, options)
	check(t, err)
	_, err = a.Add(ctx, tessera.NewEntry(entry))()
	check(t, err)
}

func manifest(run string, segment uint64, content byte) []byte {
	return statement.ManifestLeaf(run, segment, merkle.Hash{content})
}

// watch opens a monitor of a source, with a new state or an existing one.
func (h *host) watch(t testing.TB, s Source, state string) *Monitor {
	t.Helper()
	m, err := Open(state, s, h.key)
	check(t, err)
	t.Cleanup(func() { check(t, m.Close()) })
	return m
}

// source opens the log over a transport: its directory or HTTP.
func (h *host) source(t testing.TB, way string) Source {
	t.Helper()
	where := h.dir
	if way == "web" {
		s := httptest.NewServer(http.FileServer(http.Dir(h.dir)))
		t.Cleanup(s.Close)
		where = s.URL + "/"
	}
	source, err := OpenSource(where)
	check(t, err)
	return source
}

func wantNames(t *testing.T, r Report, err error, want ...string) {
	t.Helper()
	var got []string
	for _, a := range r.Alarms {
		got = append(got, a.Name)
	}
	if !slices.Equal(got, want) || errors.Is(err, ErrAlarm) != (len(want) > 0) || err != nil && !errors.Is(err, ErrAlarm) {
		t.Errorf("alarms %q, %v; want %q\n%s", got, err, want, r)
	}
}

// TestMonitor: a manifest of a run that is added to the log again, by anyone with the key and the disk, is detected over
// each transport to the log, in every later check too.
func TestMonitor(t *testing.T) {
	for _, way := range []string{"directory", "web"} {
		t.Run(way, func(t *testing.T) {
			h := newHost(t)
			var first [][]byte
			for i := range uint64(260) {
				first = append(first, manifest("r-a", i, 1))
			}
			first = append(first, manifest("r-b", 0, 1), statement.ErasureLeaf("r-a", 4, merkle.Hash{1}), statement.RotationLeaf(merkle.Hash{1}))
			check(t, h.add(t, first...))
			state := filepath.Join(t.TempDir(), "state")
			m := h.watch(t, h.source(t, way), state)
			r, err := m.Check(t.Context())
			wantNames(t, r, err)
			if r.Size != 263 || r.Read != 263 || r.Log != "custody-test" {
				t.Errorf("%+v", r)
			}
			for i := range uint64(3) { // partial bundles are replaced
				check(t, h.add(t, manifest("r-b", i+1, 1)))
			}
			r, err = m.Check(t.Context())
			wantNames(t, r, err)
			if r.Size != 266 || r.Read != 3 {
				t.Errorf("%+v", r)
			}

			h.force(t, manifest("r-a", 7, 2))
			check(t, h.add(t, manifest("r-c", 0, 1)))
			r, err = m.Check(t.Context())
			wantNames(t, r, err, Twice)
			if !strings.Contains(r.String(), "entry 7 is manifest r-a 7, entry 266 another") {
				t.Errorf("the report is %s", r)
			}
			h.force(t, manifest("r-d", 1, 1))
			h.force(t, statement.ErasureLeaf("r-a", 4, merkle.Hash{2}))
			h.force(t, []byte("something else"))
			h.force(t, manifest("r-b", 0, 1)) // so that its entry seems more recent than it is
			h.force(t, statement.RotationLeaf(merkle.Hash{1}))
			check(t, h.add(t, manifest("r-c", 1, 1)))
			r, err = m.Check(t.Context())
			wantNames(t, r, err, Twice, Order, Twice, Unknown, Again)
			check(t, m.index.Close())
			m = h.watch(t, h.source(t, way), state)
			r, err = m.Check(t.Context())
			wantNames(t, r, err, Twice, Order, Twice, Unknown, Again)
			if r.Read != 0 || r.Size != 274 {
				t.Errorf("%+v", r)
			}
			fresh := h.watch(t, h.source(t, way), filepath.Join(t.TempDir(), "state"))
			r, err = fresh.Check(t.Context())
			wantNames(t, r, err, Twice, Order, Twice, Unknown, Again)
			text, err := json.Marshal(r)
			if err != nil || !strings.Contains(string(text), `"name":"entry-twice","detail":"`) {
				t.Errorf("%s, %v", text, err)
			}
		})
	}
}

// TestTrees: a log that was rolled back, or that shows different trees to different readers, is detected.
func TestTrees(t *testing.T) {
	h, other := newHost(t), newHost(t)
	other.signer, other.key = h.signer, h.key
	check(t, h.add(t, manifest("r-a", 0, 1), manifest("r-a", 1, 1)))
	old := filepath.Join(t.TempDir(), "old")
	check(t, os.CopyFS(old, os.DirFS(h.dir)))
	check(t, h.add(t, manifest("r-a", 2, 1)))
	check(t, other.add(t, manifest("r-a", 0, 1), manifest("r-a", 1, 2), manifest("r-a", 2, 1)))
	state := filepath.Join(t.TempDir(), "state")
	read := func(dir string) (Report, error) {
		t.Helper()
		source, err := OpenSource(dir)
		check(t, err)
		m, err := Open(state, source, h.key)
		check(t, err)
		defer m.Close()
		return m.Check(t.Context())
	}
	r, err := read(h.dir)
	wantNames(t, r, err)
	r, err = read(old)
	wantNames(t, r, err, RolledBack)
	r, err = read(h.dir) // a party between log and monitor could have replayed the old one
	wantNames(t, r, err)
	r, err = read(other.dir)
	wantNames(t, r, err, Forked)
	check(t, other.add(t, manifest("r-b", 0, 1)))
	r, err = read(other.dir)
	wantNames(t, r, err, Forked, Altered)
	r, err = read(h.dir) // the log has signed this one
	wantNames(t, r, err, Forked)
	stranger := newHost(t)
	check(t, stranger.add(t, manifest("r-a", 0, 1)))
	r, err = read(stranger.dir)
	wantNames(t, r, err, Forked, Forged)
}

// TestViews: two monitors that see two logs of one key raise no alarm each. The log has signed what each reports,
// and both reports together prove the fork.
func TestViews(t *testing.T) {
	h, other := newHost(t), newHost(t)
	other.signer, other.key = h.signer, h.key
	check(t, h.add(t, manifest("r-a", 0, 1), manifest("r-a", 1, 1)))
	check(t, other.add(t, manifest("r-a", 0, 1), manifest("r-a", 1, 2)))
	var shown []statement.Checkpoint
	for _, h := range []*host{h, other} {
		m := h.watch(t, h.source(t, "directory"), filepath.Join(t.TempDir(), "state"))
		for range 2 { // the second check finds nothing new
			r, err := m.Check(t.Context())
			wantNames(t, r, err)
			c, err := m.open([]byte(r.Checkpoint))
			check(t, err)
			shown = append(shown, c)
		}
	}
	if shown[0] != shown[1] || shown[2] != shown[3] || shown[0].Size != shown[2].Size || shown[0].Root == shown[2].Root {
		t.Errorf("they report %v", shown)
	}
}

// TestSources: an unreadable source is an error and not an alarm, and reads are bounded.
func TestSources(t *testing.T) {
	h := newHost(t)
	check(t, h.add(t, manifest("r-a", 0, 1), manifest("r-a", 1, 1)))
	endless := func(w http.ResponseWriter, name string) {
		if name == "checkpoint" {
			text, _ := os.ReadFile(filepath.Join(h.dir, name))
			w.Write(text)
			return
		}
		for {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	}
	for title, answer := range map[string]func(w http.ResponseWriter, name string){
		"no entries":         func(w http.ResponseWriter, name string) { w.WriteHeader(http.StatusNotFound) },
		"endless entries":    endless,
		"endless checkpoint": func(w http.ResponseWriter, name string) { endless(w, "") },
		"error":              func(w http.ResponseWriter, name string) { w.WriteHeader(http.StatusBadGateway) },
	} {
		t.Run(title, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, strings.TrimPrefix(r.URL.Path, "/")) }))
			defer s.Close()
			source, err := OpenSource(s.URL)
			check(t, err)
			m := h.watch(t, source, filepath.Join(t.TempDir(), "state"))
			r, err := m.Check(t.Context())
			if err == nil || errors.Is(err, ErrAlarm) || len(r.Alarms) > 0 {
				t.Errorf("%v, %v", r, err)
			}
		})
	}
	for _, where := range []string{"/none", "http://", "https://x/?a=b", filepath.Join(h.dir, "checkpoint")} {
		if _, err := OpenSource(where); err == nil {
			t.Errorf("%s was opened", where)
		}
	}
	empty, err := OpenSource(t.TempDir())
	check(t, err)
	if _, err := h.watch(t, empty, filepath.Join(t.TempDir(), "state")).Check(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a log that is not there: %v", err)
	}
	bad := filepath.Join(t.TempDir(), "state")
	check(t, os.WriteFile(bad, []byte(strings.Repeat("no state", 1<<12)), 0o600))
	if m, err := Open(bad, empty, h.key); err == nil {
		m.Close()
		t.Error("a file that is not a state was opened")
	}
}

// objecting makes a monitor a witness.Reader, as the command does.
type objecting struct{ *Monitor }

func (o objecting) Read(ctx context.Context, signed []byte) error {
	_, err := o.Follow(ctx, signed)
	if errors.Is(err, ErrAlarm) {
		return fmt.Errorf("%w: %w", witness.ErrObjection, err)
	}
	return err
}

// TestWitnessReads: a witness that reads the entries cosigns an honest log, and not one with two histories of a run; if it
// cannot read the entries, it does not cosign either.
func TestWitnessReads(t *testing.T) {
	h := newHost(t)
	check(t, h.add(t, manifest("r-a", 0, 1)))
	dir := t.TempDir()
	vkey, err := witness.Generate(dir, "witness.example")
	check(t, err)
	signer, verifier, err := witness.Load(dir)
	check(t, err)
	m := h.watch(t, h.source(t, "web"), filepath.Join(t.TempDir(), "state"))
	w, err := witness.New(witness.Config{Dir: dir, Signer: signer, Verifier: verifier, Logs: []note.Verifier{h.key},
		Readers: map[string]witness.Reader{"custody-test": objecting{m}}, PerSecond: 1e6})
	check(t, err)
	defer w.Close()
	s := httptest.NewServer(w)
	defer s.Close()
	h.policy, err = witness.ParsePolicy(fmt.Appendf(nil, "witness w %s %s\nquorum w\n", vkey, s.URL))
	check(t, err)
	check(t, h.add(t, manifest("r-a", 1, 1)))
	check(t, h.add(t, manifest("r-b", 0, 1)))

	m.source = failing{}
	if err := h.add(t, manifest("r-b", 1, 1)); !errors.Is(err, hostlog.ErrUnwitnessed) || errors.Is(err, hostlog.ErrForked) {
		t.Errorf("entries that cannot be read: %v", err)
	}
	m.source = h.source(t, "directory")
	check(t, h.add(t, manifest("r-b", 2, 1)))

	h.force(t, manifest("r-a", 0, 2))
	if err := h.add(t, manifest("r-c", 0, 1)); !errors.Is(err, hostlog.ErrForked) {
		t.Errorf("two histories of a run: %v", err)
	}
	if err := h.add(t, manifest("r-c", 1, 1)); !errors.Is(err, hostlog.ErrForked) {
		t.Errorf("two histories of a run, second request: %v", err)
	}
}

type failing struct{}

func (failing) Checkpoint(context.Context) ([]byte, error) { return nil, errors.New("away") }
func (failing) Bundle(context.Context, uint64, uint8) ([][]byte, error) {
	return nil, errors.New("away")
}

// TestAlarmKept: a monitor that ends (a kill, a full disk, a deadline) after it has read two histories and before it has
// stored the alarm detects them again in the next check, although it reads each entry only once.
func TestAlarmKept(t *testing.T) {
	h := newHost(t)
	check(t, h.add(t, manifest("r-a", 0, 1)))
	h.force(t, manifest("r-a", 0, 2))
	check(t, h.add(t, manifest("r-b", 0, 1)))
	state := filepath.Join(t.TempDir(), "state")
	m := h.watch(t, h.source(t, "directory"), state)
	db, err := sql.Open("sqlite", state)
	check(t, err)
	t.Cleanup(func() { check(t, db.Close()) })
	exec := func(stated string) {
		t.Helper()
		_, err := db.ExecContext(t.Context(), stated)
		check(t, err)
	}
	exec("CREATE TRIGGER ended BEFORE INSERT ON notes WHEN new.name = 'alarms' BEGIN SELECT RAISE(ABORT, 'ended'); END")
	if r, err := m.Check(t.Context()); err == nil || errors.Is(err, ErrAlarm) {
		t.Fatalf("%+v, %v", r, err)
	}
	exec("DROP TRIGGER ended")
	r, err := m.Check(t.Context())
	wantNames(t, r, err, Twice)
	if r.Size != 3 || r.Read != 3 {
		t.Errorf("%+v", r)
	}
	r, err = m.Check(t.Context())
	wantNames(t, r, err, Twice)
}

// TestStateFIFO: a FIFO in place of a file that SQLite opens for the state is an error and does not block.
func TestStateFIFO(t *testing.T) {
	h := newHost(t)
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		state := filepath.Join(t.TempDir(), "state")
		check(t, unix.Mkfifo(state+suffix, 0o600))
		opened := make(chan error, 1)
		go func() {
			m, err := Open(state, nil, h.key)
			if err == nil {
				err = m.Close()
				t.Errorf("state%s: it was opened", suffix)
			}
			opened <- err
		}()
		select {
		case err := <-opened:
			if err == nil || !strings.Contains(err.Error(), "is not a regular file") {
				t.Errorf("state%s: %v", suffix, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("state%s: opening it blocks", suffix)
		}
	}
}
