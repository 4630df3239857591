package ship

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

func send(t testing.TB, r *Remote, segs ...store.Segment) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, seg := range segs {
		if err := r.Publish(ctx, seg); err != nil {
			t.Fatal(err)
		}
	}
}

func drainRemote(t testing.TB, r *Remote, d time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return r.Drain(ctx)
}

// TestOverTheWire: two runs, an ingester, exactly what was sent, and the answer of Stored.
func TestOverTheWire(t *testing.T) {
	server := startNATS(t, alwaysSync, "")
	signer, verifier := hostKey(t, "h1")
	db := openStore(t)
	var commits []Commit
	var mu sync.Mutex
	r := dial(t, server.config())
	one := sealedRun(t, signer, "acme", "h1", "r-1", 3000, 100)
	two := sealedRun(t, signer, "acme", "h1", "r-2.x_y", 50, 7)
	send(t, r, one...)
	g, _ := ingester(t, server.config(), db, IngestOptions{Keys: note.VerifierList(verifier), Observe: func(c Commit) {
		mu.Lock()
		defer mu.Unlock()
		commits = append(commits, c)
	}})
	send(t, r, two...)
	send(t, r, one[3], two[0]) // again
	if err := drainRemote(t, r, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	wantExactly(t, db, one)
	wantExactly(t, db, two)
	mu.Lock()
	if len(commits) > len(one)/2 {
		t.Errorf("%d commits for %d segments that were there together", len(commits), len(one))
	}
	mu.Unlock()
	for _, deep := range []bool{false, true} {
		found, err := r.Stored(t.Context(), "acme", "r-1", deep)
		if err != nil || len(found) != len(one) {
			t.Fatalf("deep %v: %d segments, %v", deep, len(found), err)
		}
		for i, h := range found {
			if !h.Is(one[i]) || h != heldAs(one[i]) {
				t.Errorf("deep %v: segment %d is %+v, want %+v", deep, i, h, heldAs(one[i]))
			}
		}
	}
	if s := r.Stats(); s.Segments != 0 || s.Bytes != 0 || s.Stored != uint64(len(one)+len(two)) || s.Publish.Count != s.Published {
		t.Errorf("the host's figures are %+v", s)
	}
	if s := g.Stats(); s.StoredRows != 3050 || s.Segments != 0 || s.Refused != 0 {
		t.Errorf("the ingester's figures are %+v", s)
	}
}

// TestFullStream: a publisher waits for space, and continues when the ingester has freed some.
func TestFullStream(t *testing.T) {
	server := startNATS(t, alwaysSync, "")
	signer, _ := hostKey(t, "h1")
	c := server.config()
	c.StreamBytes = 64 << 10
	r := dial(t, c)
	segs := sealedRun(t, signer, "acme", "h1", "r-1", 1000, 20)
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	n := 0
	var err error
	for ; err == nil; n++ {
		err = r.Publish(ctx, segs[n])
	}
	n--
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "full") || n == 0 {
		t.Fatalf("segment %d: %v", n, err)
	}
	if s := r.Stats(); !strings.Contains(s.Failing, "full") || s.Segments != n {
		t.Errorf("figures: %+v", s)
	}
	db := openStore(t)
	published := make(chan error)
	go func() {
		for _, seg := range segs[n:] {
			if err := r.Publish(t.Context(), seg); err != nil {
				published <- err
				return
			}
		}
		published <- nil
	}()
	ingester(t, c, db, IngestOptions{})
	if err := <-published; err != nil {
		t.Fatal(err)
	}
	if err := drainRemote(t, r, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	wantExactly(t, db, segs)
}

// TestRepublish: a segment that the store has lost reaches it again, although the stream had it a moment ago.
func TestRepublish(t *testing.T) {
	server := startNATS(t, alwaysSync, "")
	signer, _ := hostKey(t, "h1")
	segs := sealedRun(t, signer, "acme", "h1", "r-1", 50, 10)
	r := dial(t, server.config())
	_, stop := ingester(t, server.config(), openStore(t), IngestOptions{})
	send(t, r, segs...)
	if err := drainRemote(t, r, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	stop()
	db := openStore(t) // a new one, after the loss of the old
	ingester(t, server.config(), db, IngestOptions{})
	send(t, r, segs...)
	if err := drainRemote(t, r, time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the same ids again: %v", err)
	}
	for _, seg := range segs {
		if err := r.Republish(t.Context(), seg); err != nil {
			t.Fatal(err)
		}
	}
	if err := drainRemote(t, r, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	wantExactly(t, db, segs)
}

// TestDialWaits: a server that starts later is not an error; for one that never starts the error has the cause.
func TestDialWaits(t *testing.T) {
	server := startNATS(t, alwaysSync, "")
	server.kill()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, server.config()); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, nats.ErrNoServers) || !strings.Contains(err.Error(), server.addr) {
		t.Errorf("without a server: %v", err)
	}
	if err := Ingest(ctx, server.config(), nil, IngestOptions{}); err != nil {
		t.Errorf("an ingester that is ended before there is a server: %v", err)
	}
	dialled := make(chan *Remote)
	go func() { dialled <- dial(t, server.config()) }()
	time.Sleep(100 * time.Millisecond)
	server.start()
	<-dialled
}

// TestServerAway: publishing waits for the server, warns once, and continues.
func TestServerAway(t *testing.T) {
	server := startNATS(t, alwaysSync, "")
	signer, _ := hostKey(t, "h1")
	var mu sync.Mutex
	var said []string
	c := server.config()
	c.Warn = func(w string) {
		mu.Lock()
		defer mu.Unlock()
		if !strings.Contains(w, "sync_interval") { // the check may still be asking the server when it is killed
			said = append(said, w)
		}
	}
	r := dial(t, c)
	segs := sealedRun(t, signer, "acme", "h1", "r-1", 100, 10)
	send(t, r, segs[:5]...)
	server.kill()
	back := time.AfterFunc(3*time.Second, server.start)
	defer back.Stop()
	send(t, r, segs[5:]...)
	db := openStore(t)
	ingester(t, server.config(), db, IngestOptions{})
	if err := drainRemote(t, r, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	wantExactly(t, db, segs)
	if s := r.Stats(); s.Reconnects == 0 {
		t.Errorf("figures: %+v", s)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(said) != 2 || !strings.Contains(said[0], "wait") || !strings.Contains(said[1], "again") {
		t.Errorf("it said %q", said)
	}
}

func TestRemoteClosed(t *testing.T) {
	server := startNATS(t, alwaysSync, "")
	signer, _ := hostKey(t, "h1")
	segs := sealedRun(t, signer, "acme", "h1", "r-1", 20, 10)
	r := dial(t, server.config())
	send(t, r, segs[0])
	server.kill()
	waiting := make(chan error, 2)
	go func() { waiting <- r.Publish(t.Context(), segs[1]) }()
	go func() { waiting <- r.Drain(t.Context()) }()
	time.Sleep(100 * time.Millisecond)
	r.Close()
	for range 2 {
		if err := <-waiting; !errors.Is(err, ErrClosed) {
			t.Errorf("while it was closed: %v", err)
		}
	}
	if err := r.Publish(t.Context(), segs[1]); !errors.Is(err, ErrClosed) {
		t.Errorf("Publish after Close: %v", err)
	}
	if _, err := r.Stored(t.Context(), "acme", "r-1", false); err == nil {
		t.Error("Stored after Close works")
	}
	r.Close() // again is harmless
}

// TestNoIngester: without an ingester Drain returns ErrNoIngester.
func TestNoIngester(t *testing.T) {
	server := startNATS(t, alwaysSync, "")
	signer, _ := hostKey(t, "h1")
	r := dial(t, server.config())
	send(t, r, sealedRun(t, signer, "acme", "h1", "r-1", 20, 10)...)
	if err := drainRemote(t, r, time.Second); !errors.Is(err, ErrNoIngester) || !strings.Contains(err.Error(), "3 segments") {
		t.Errorf("Drain: %v", err)
	}
}

// largest is a run with a segment of the maximum size.
func largest(t testing.TB, signer note.Signer, run string) []store.Segment {
	t.Helper()
	frames := storetest.Frames(run, storetest.Events(8))
	for i, size := range []int{3 << 20, 1<<20 - 1000, store.MaxBody - 1000} {
		f := &frames[2+i]
		f.Body = fmt.Appendf(nil, `%s,"pad":"%s"}`, f.Body[:len(f.Body)-1], bytes.Repeat([]byte("x"), size))
	}
	return sealFrames(t, signer, "acme", "h1", run, frames, len(frames))
}

func TestLargest(t *testing.T) {
	server := startNATS(t, alwaysSync, "")
	signer, _ := hostKey(t, "h1")
	db := openStore(t)
	ingester(t, server.config(), db, IngestOptions{})
	r := dial(t, server.config())
	segs := largest(t, signer, "r-1")
	send(t, r, segs...)
	if err := drainRemote(t, r, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	wantExactly(t, db, segs)
	huge := store.Segment{Run: "r-2", First: 1, Last: 3}
	for i := range 3 {
		huge.Frames = append(huge.Frames, store.Frame{Seq: uint64(i + 1), Body: make([]byte, store.MaxBody)})
	}
	if err := r.Publish(t.Context(), huge); !errors.Is(err, ErrTooLarge) {
		t.Errorf("three records of 8 MiB: %v", err)
	}
}

// TestServersLoseAll: the stream loses everything that it had acknowledged; the host detects that, and sends it again.
func TestServersLoseAll(t *testing.T) {
	server := startNATS(t, alwaysSync, "")
	signer, _ := hostKey(t, "h1")
	db := openStore(t)
	r := dial(t, server.config())
	segs := sealedRun(t, signer, "acme", "h1", "r-1", 100, 10)
	_, stop := ingester(t, server.config(), db, IngestOptions{})
	send(t, r, segs[:4]...)
	if err := drainRemote(t, r, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	stop()
	send(t, r, segs[4:]...)
	var mu sync.Mutex
	said := ""
	c := server.config()
	c.Warn = func(w string) {
		mu.Lock()
		defer mu.Unlock()
		said += w
	}
	server.kill()
	if err := os.RemoveAll(server.dir + "/js"); err != nil {
		t.Fatal(err)
	}
	server.start()
	g, _ := ingester(t, c, db, IngestOptions{}) // creates the stream
	if err := drainRemote(t, r, time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Drain: %v", err)
	}
	if n, err := reconcile(t.Context(), r, segs); err != nil || n != len(segs)-4 {
		t.Fatalf("%d segments were sent again, %v", n, err)
	}
	if err := drainRemote(t, r, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	wantExactly(t, db, segs)

	// Again, with an active ingester.
	server.kill()
	if err := os.RemoveAll(server.dir + "/js"); err != nil {
		t.Fatal(err)
	}
	server.start()
	more := sealedRun(t, signer, "acme", "h1", "r-2", 100, 10)
	send(t, r, more...)
	if err := drainRemote(t, r, 2*time.Minute); err != nil {
		t.Fatalf("%v; the ingester: %+v", err, g.Stats())
	}
	wantExactly(t, db, more)
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(said, "lost the stream") {
		t.Errorf("it said %q", said)
	}
}
