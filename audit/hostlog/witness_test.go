package hostlog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/witness"
)

// watcher is a witness on loopback, with its directory and its key and address for a policy.
type watcher struct {
	dir, vkey, addr string
	key             note.Verifier
	stop            func()
}

func newWatcher(t testing.TB, name string, logs ...note.Verifier) *watcher {
	t.Helper()
	w := &watcher{dir: tempDir(t), stop: func() {}}
	var err error
	if w.vkey, err = witness.Generate(w.dir, name); err != nil {
		t.Fatal(err)
	}
	w.start(t, logs...)
	return w
}

// start serves it, on the same port after the first time.
func (w *watcher) start(t testing.TB, logs ...note.Verifier) {
	t.Helper()
	signer, verifier, err := witness.Load(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	w.key = verifier
	server, err := witness.New(witness.Config{Dir: w.dir, Signer: signer, Verifier: verifier, Logs: logs, PerSecond: 1e6})
	if err != nil {
		t.Fatal(err)
	}
	if w.addr == "" {
		w.addr = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	w.addr = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, listener, nil) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, server.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { w.stop() })
}

func (w *watcher) line(name string) string {
	return fmt.Sprintf("witness %s %s http://%s/\n", name, w.vkey, w.addr)
}

// quorum returns a policy that requires n of the watchers.
func quorum(t testing.TB, n int, all ...*watcher) *witness.Policy {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "")
	names := ""
	for i, w := range all {
		name := fmt.Sprint("w", i)
		text.WriteString(w.line(name))
		names += " " + name
	}
	fmt.Fprintf(&text, "group g %d%s\nquorum g\n", n, names)
	p, err := witness.ParsePolicy([]byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// under opens the log with a policy, and a transport that is closed when the test ends.
func under(t testing.TB, p *witness.Policy, more ...func(*Options)) func(*Options) {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return func(o *Options) {
		o.Witnesses, o.Transport, o.WitnessTimeout = p, transport, 2*time.Second
		for _, m := range more {
			m(o)
		}
	}
}

func cosignedBy(cp []byte, w *watcher) bool {
	n, err := note.Open(cp, note.VerifierList(w.key))
	return err == nil && len(n.Sigs) == 1
}

func TestWitnessed(t *testing.T) {
	k := newKey(t, "custody-test")
	a, b, c := newWatcher(t, "a", k.v), newWatcher(t, "b", k.v), newWatcher(t, "c", k.v)
	dir, policy := filepath.Join(tempDir(t), "log"), quorum(t, 2, a, b, c)
	l := mustOpen(t, dir, k, under(t, policy))
	for i := range 20 {
		cp := mustPublish(t, l, mustAdd(t, l, manifest(i)))
		if !policy.Satisfied(cp) {
			t.Fatalf("no quorum on %s", cp)
		}
	}
	c.stop() // one may be missing
	mustPublish(t, l, mustAdd(t, l, []byte("x")))

	b.stop() // two may not
	index := mustAdd(t, l, []byte("y"))
	cp, err := l.Publish(t.Context(), index)
	var u *Unwitnessed
	if cp != nil || !errors.As(err, &u) || !errors.Is(err, ErrUnwitnessed) || u.Published {
		t.Fatalf("published %q without a quorum: %v", cp, err)
	}
	if len(u.Refusals) != 2 || u.Hint() == "" {
		t.Errorf("refusals: %v", u.Refusals)
	}
	for _, r := range u.Refusals {
		if r.Name == "a" || r.Err == nil || !strings.Contains(err.Error(), r.URL) {
			t.Errorf("%v is missing", r)
		}
	}
	if last, err := reader(t, dir, k).checkpoint(); err != nil || last.Size > index {
		t.Errorf("published without a quorum: %d, %v", last.Size, err)
	}
	b.start(t, k.v) // it comes back, and the log catches up
	if cp := mustPublish(t, l, index); !cosignedBy(cp, a) || !cosignedBy(cp, b) {
		t.Errorf("not by both: %s", cp)
	}
	if err := reader(t, dir, k).Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestFailOpen(t *testing.T) {
	k := newKey(t, "custody-test")
	a, b := newWatcher(t, "a", k.v), newWatcher(t, "b", k.v)
	dir := filepath.Join(tempDir(t), "log")
	policy := quorum(t, 2, a, b)
	l := mustOpen(t, dir, k, under(t, policy, func(o *Options) { o.FailOpen = true }))
	b.stop()
	index := mustAdd(t, l, []byte("x"))
	cp, err := l.Publish(t.Context(), index)
	var u *Unwitnessed
	if !errors.As(err, &u) || !u.Published || len(u.Refusals) != 1 || u.Refusals[0].Name != "b" {
		t.Fatalf("%v", err)
	}
	if got, err := reader(t, dir, k).Checkpoint(t.Context()); err != nil || string(got) != string(cp) || !cosignedBy(got, a) {
		t.Errorf("published is %q, returned was %q: %v", got, cp, err)
	}
	b.start(t, k.v)
	if cp = mustPublish(t, l, index); !policy.Satisfied(cp) { // the same entry, now with a quorum
		t.Errorf("no quorum on %s", cp)
	}
	all, err := reader(t, dir, k).Checkpoints(t.Context())
	if err != nil || len(all) != 3 {
		t.Errorf("%d checkpoints are kept: %v", len(all), err)
	}
}

// TestWitnessKnowsMore: the log and its file of checkpoints were restored from a copy. Only the witness can
// detect that.
func TestWitnessKnowsMore(t *testing.T) {
	k := newKey(t, "custody-test")
	w := newWatcher(t, "w", k.v)
	root := tempDir(t)
	dir := filepath.Join(root, "log")
	l := mustOpen(t, dir, k, under(t, quorum(t, 1, w)))
	mustPublish(t, l, mustAdd(t, l, []byte("a")))
	copyOf := filepath.Join(tempDir(t), "copy")
	copyTree(t, root, copyOf)
	mustPublish(t, l, mustAdd(t, l, []byte("b")))
	mustPublish(t, l, mustAdd(t, l, []byte("c")))

	l = mustOpen(t, filepath.Join(copyOf, "log"), k, under(t, quorum(t, 1, w)))
	index := mustAdd(t, l, []byte("B"))
	if cp, err := l.Publish(t.Context(), index); cp != nil || !errors.Is(err, ErrRolledBack) || !errors.Is(err, ErrUnwitnessed) {
		t.Fatalf("a log that went back was published: %q, %v", cp, err)
	}
	mustAdd(t, l, []byte("C")) // as large as the tree that the witness has cosigned, and different
	if cp, err := l.Publish(t.Context(), 2); cp != nil || !errors.Is(err, ErrForked) {
		t.Fatalf("a fork was published: %q, %v", cp, err)
	}
	mustAdd(t, l, []byte("D"))
	if cp, err := l.Publish(t.Context(), 3); cp != nil || !errors.Is(err, ErrForked) {
		t.Fatalf("a fork was published: %q, %v", cp, err)
	}
}

// TestWitnessRestored: a witness that was restored from a copy is behind, and catches up.
func TestWitnessRestored(t *testing.T) {
	k := newKey(t, "custody-test")
	w := newWatcher(t, "w", k.v)
	dir := filepath.Join(tempDir(t), "log")
	l := mustOpen(t, dir, k, under(t, quorum(t, 1, w)))
	fill(t, l, 3, 1)
	w.stop()
	old := filepath.Join(tempDir(t), "old")
	copyTree(t, w.dir, old)
	w.start(t, k.v)
	fill(t, l, 100, 50)
	w.stop()
	w.dir = old
	w.start(t, k.v)
	cp := mustPublish(t, l, mustAdd(t, l, []byte("after")))
	if !cosignedBy(cp, w) {
		t.Errorf("not cosigned: %s", cp)
	}
}

func TestWitnessRotation(t *testing.T) {
	old, next := newKey(t, "custody-test"), newKey(t, "custody-test")
	w := newWatcher(t, "w", old.v)
	dir := filepath.Join(tempDir(t), "log")
	l := mustOpen(t, dir, old, under(t, quorum(t, 1, w)))
	mustPublish(t, l, mustAdd(t, l, []byte("a")))
	both := func(o *Options) { o.Others, o.Older = []note.Signer{old}, []note.Verifier{old.v} }
	l = mustOpen(t, dir, next, under(t, quorum(t, 1, w), both))
	mustPublish(t, l, mustAdd(t, l, []byte("b"))) // the witness knows the old key, which also signs
	l = mustOpen(t, dir, next, under(t, quorum(t, 1, w), func(o *Options) { o.Older = []note.Verifier{old.v} }))
	index := mustAdd(t, l, []byte("c"))
	if _, err := l.Publish(t.Context(), index); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("with a key that the witness does not know: %v", err)
	}
	w.stop()
	w.start(t, old.v, next.v)
	mustPublish(t, l, index)
}

// TestBadWitness: servers that are not witnesses, or lie.
func TestBadWitness(t *testing.T) {
	k := newKey(t, "custody-test")
	honest := newWatcher(t, "honest", k.v)
	release := make(chan struct{})
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"nothing":  {func(rw http.ResponseWriter, _ *http.Request) {}, "not signed by the key"},
		"a page":   {func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "<html>") }, "not signed by the key"},
		"too much": {func(rw http.ResponseWriter, _ *http.Request) { rw.Write(make([]byte, 1<<20)) }, "more than"},
		"moved": {func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "http://"+honest.addr+"/add-checkpoint", http.StatusTemporaryRedirect)
		}, "status 307"},
		"never":            {func(rw http.ResponseWriter, r *http.Request) { <-release }, "deadline"},
		"always conflict":  {conflict("1"), "changes between requests"},
		"conflict, larger": {conflict("18446744073709551615"), "older state"},
		"conflict, words":  {conflict("no"), "another tree"},
		"reset":            {reset, "EOF"},
		"too many":         {func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(429) }, "429"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.answer)
			w := &watcher{vkey: honest.vkey, addr: server.Listener.Addr().String(), key: honest.key}
			l := mustOpen(t, filepath.Join(tempDir(t), "log"), k, under(t, quorum(t, 1, w), func(o *Options) { o.WitnessTimeout = 300 * time.Millisecond }))
			mustAdd(t, l, []byte("a"))
			cp, err := l.Publish(t.Context(), mustAdd(t, l, []byte("b")))
			if cp != nil || !errors.Is(err, ErrUnwitnessed) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("published %q: %v", cp, err)
			}
			if name == "never" {
				close(release)
			}
			server.Close()
		})
	}
}

func conflict(size string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/x.tlog.size")
		rw.WriteHeader(http.StatusConflict)
		fmt.Fprintln(rw, size)
	}
}

func reset(rw http.ResponseWriter, _ *http.Request) {
	c, _, err := rw.(http.Hijacker).Hijack()
	if err == nil {
		c.Close()
	}
}

func copyTree(t testing.TB, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}
