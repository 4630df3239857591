package ship

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/store"
	"github.com/custody-project/custody/audit/store/storetest"
)

func send(t testing.TB, r *Remote, segs ...store.Segment) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
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

// TestOverTheWire: two runs, an ingester, exactly what was sent, and what Stored says of it.
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
	if err := drainRemote(t, r, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	wantExactly(t, db, one)
	wantExactly(t, db, two)
	mu.Lock()
	if len(commits) > len(one)/2 {
		t.Errorf("%d commits for %d segments that were there at once", len(commits), len(one))
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

// TestStoredIsWhatTheStoreHas: other tenants' runs, unknown runs, and records that are not as their manifest says.
func TestStoredIsWhatTheStoreHas(t *testing.T) {
	server := startNATS(t, alwaysSync, "")
	signer, _ := hostKey(t, "h1")
	db := openStore(t)
	ingester(t, server.config(), db, IngestOptions{})
	r := dial(t, server.config())
	segs := sealedRun(t, signer, "acme", "h1", "r-1", 40, 10)
	send(t, r, segs...)
	if err := drainRemote(t, r, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	for _, whose := range [][2]string{{"other", "r-1"}, {"", "r-1"}, {"acme", "r-2"}} {
		if found, err := r.Stored(t.Context(), whose[0], whose[1], false); err != nil || len(found) > 0 {
			t.Errorf("tenant %q, run %q: %d segments, %v", whose[0], whose[1], len(found), err)
		}
	}
	if err := db.Erase(t.Context(), "acme", "r-1", 12); err != nil {
		t.Fatal(err)
	}
	found, err := r.Stored(t.Context(), "acme", "r-1", true)
	if err != nil || !found[1].Is(segs[1]) {
		t.Errorf("with an erased record: %+v, %v", found[1], err)
	}
	for _, name := range []string{"", "a b", "*", strings.Repeat("x", 5000)} {
		if _, err := r.Stored(t.Context(), "acme", name, false); err == nil {
			t.Errorf("a run called %.20q has an answer", name)
		}
	}
}

// TestHeldOracle compares deep answers with ones that are made from all records at once.
func TestHeldOracle(t *testing.T) {
	signer, _ := hostKey(t, "h1")
	db := openStore(t)
	segs := sealedRun(t, signer, "acme", "h1", "r-1", 60, 7)
	lacking := append([]store.Segment{}, segs...)
	lacking[2].Frames = lacking[2].Frames[:3] // the store has the manifest and not all of its records
	lacking[2].Last = lacking[2].Frames[2].Seq
	for i, seg := range lacking {
		if i == 4 {
			continue // the store lacks it whole
		}
		if err := db.Ingest(t.Context(), seg); err != nil {
			t.Fatal(err)
		}
	}
	tr := Start(t.Context(), db)
	defer tr.Close()
	found, err := tr.Stored(t.Context(), "acme", "r-1", true)
	if err != nil || len(found) != len(segs)-1 {
		t.Fatalf("%d segments, %v", len(found), err)
	}
	for _, h := range found {
		if want := h.Index != 2; h.Is(segs[h.Index]) != want {
			t.Errorf("segment %d is as it was sealed: %v, want %v: %+v", h.Index, !want, want, h)
		}
	}
	from := 0
	err = held(t.Context(), db, "acme", "r-1", 3, true, func(h Held) error {
		if from == 0 && h.Index != 3 || !h.Is(segs[h.Index]) {
			t.Errorf("from 3 on: %+v", h)
		}
		from++
		return nil
	})
	if err != nil || from != len(segs)-4 {
		t.Errorf("%d segments from 3 on, %v", from, err)
	}
}

// TestRefused: what contradicts itself, its subject, its signature or the store is kept apart, and
// the rest of its batch is not.
func TestRefused(t *testing.T) {
	server := startNATS(t, alwaysSync, "")
	signer, verifier := hostKey(t, "h1")
	other, _ := hostKey(t, "h1") // of that name, and not trusted
	db := openStore(t)
	good := sealedRun(t, signer, "acme", "h1", "r-1", 200, 10)
	if err := db.Ingest(t.Context(), good[0]); err != nil {
		t.Fatal(err)
	}
	fork := sealedRun(t, signer, "acme", "h1", "r-1", 200, 10)[0]
	fork.Frames[0].Salt[0]++
	fork = sealFrames(t, signer, "acme", "h1", "r-1", fork.Frames, 10)[0]
	bent := sealedRun(t, signer, "acme", "h1", "r-3", 20, 10)[0]
	bent.Frames[3].Salt[2]++
	stranger := sealedRun(t, other, "acme", "h1", "r-4", 20, 10)[0]
	unsigned := sealedRun(t, signer, "acme", "h1", "r-5", 20, 10)[0]
	unsigned.Manifest = nil
	swapped := sealedRun(t, signer, "acme", "h1", "r-6", 20, 10)
	swapped[0].Manifest = swapped[1].Manifest

	r := dial(t, server.config())
	send(t, r, good[1:5]...)
	send(t, r, fork, bent, stranger, unsigned, swapped[0])
	send(t, r, good[5:]...)
	// On a subject that is not the segment's, and no segment at all.
	js, err := jetstream.New(server.conn())
	if err != nil {
		t.Fatal(err)
	}
	posed := sealedRun(t, signer, "rival", "h1", "r-7", 20, 10)[0]
	message, err := Encode(posed)
	if err != nil {
		t.Fatal(err)
	}
	for id, body := range map[string][]byte{"posed": message, "garbage": []byte("CSG2 and what else")} {
		m := &nats.Msg{Subject: segmentRoot + "acme.h1.r-7", Data: body, Header: nats.Header{jetstream.MsgIDHeader: {id}}}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	refused := map[string]error{}
	g, _ := ingester(t, server.config(), db, IngestOptions{Keys: note.VerifierList(verifier), Refused: func(f Refused) {
		mu.Lock()
		defer mu.Unlock()
		refused[f.ID] = f.Err
	}})
	err = drainRemote(t, r, 20*time.Second)
	if !errors.Is(err, store.ErrConflict) || !errors.Is(err, store.ErrMalformed) || strings.Count(err.Error(), "refused") != 5 {
		t.Errorf("Drain: %v", err)
	}
	if err := drainRemote(t, r, 20*time.Second); err != nil {
		t.Errorf("Drain, once it was told: %v", err)
	}
	if err := waitFor(t, func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(refused) != 7 {
			return fmt.Errorf("%d were refused, want 7: %v", len(refused), refused)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	for id, want := range map[string]error{messageID(fork): store.ErrConflict, messageID(bent): store.ErrMalformed, messageID(stranger): store.ErrMalformed,
		messageID(unsigned): store.ErrMalformed, messageID(swapped[0]): store.ErrMalformed, "posed": store.ErrMalformed, "garbage": store.ErrMalformed} {
		if !errors.Is(refused[id], want) {
			t.Errorf("%s: %v, want %v", id, refused[id], want)
		}
	}
	mu.Unlock()
	wantExactly(t, db, good)
	for _, run := range []string{"r-3", "r-4", "r-5", "r-6", "r-7"} {
		for range db.Records(t.Context(), store.Query{Run: run}) {
			t.Fatalf("the store took records of %s", run)
		}
	}
	stream, err := js.Stream(t.Context(), refusedStream)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := stream.Info(t.Context()); err != nil || info.State.Msgs != 7 {
		t.Errorf("%d segments are kept, %v", info.State.Msgs, err)
	}
	kept, err := stream.GetLastMsgForSubject(t.Context(), refusedRoot+"acme")
	if err != nil || kept.Header.Get(headerSubject) == "" || kept.Header.Get(headerReason) == "" {
		t.Errorf("the last one that is kept: %+v, %v", kept, err)
	}
	if s := g.Stats(); s.Refused != 7 || s.Segments != 0 {
		t.Errorf("figures: %+v", s)
	}
	if left := inStream(t, js); left != 0 {
		t.Errorf("%d messages are left in the stream", left)
	}
}

func inStream(t testing.TB, js jetstream.JetStream) uint64 {
	t.Helper()
	var n uint64
	if err := waitFor(t, func() error {
		stream, err := js.Stream(t.Context(), streamName)
		if err != nil {
			return err
		}
		n = stream.CachedInfo().State.Msgs
		if n > 0 {
			return fmt.Errorf("%d messages", n) // acks are under way
		}
		return nil
	}); err != nil {
		t.Log(err)
	}
	return n
}

// gated is a real store in front of which a fault is put.
type gated struct {
	store.Store
	fault func(segs []store.Segment) error
}

func (g *gated) Ingest(ctx context.Context, segs ...store.Segment) error {
	if err := g.fault(segs); err != nil {
		return err
	}
	return g.Store.Ingest(ctx, segs...)
}

// TestStoreAway: nothing is acked while the store is away, and nothing is lost.
func TestStoreAway(t *testing.T) {
	server := startNATS(t, alwaysSync, "")
	signer, _ := hostKey(t, "h1")
	db := openStore(t)
	var mu sync.Mutex
	away := errors.New("injected: the store is away")
	g, _ := ingester(t, server.config(), &gated{db, func([]store.Segment) error {
		mu.Lock()
		defer mu.Unlock()
		return away
	}}, IngestOptions{})
	r := dial(t, server.config())
	segs := sealedRun(t, signer, "acme", "h1", "r-1", 400, 10)
	send(t, r, segs...)
	if err := drainRemote(t, r, time.Second); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), fmt.Sprint(len(segs), " segments")) {
		t.Errorf("Drain while the store is away: %v", err)
	}
	if s := g.Stats(); s.Stored != 0 || s.StoreFailures == 0 || !strings.Contains(s.Failing, "away") || s.Oldest == 0 {
		t.Errorf("figures: %+v", s)
	}
	mu.Lock()
	away = nil
	mu.Unlock()
	if err := drainRemote(t, r, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	wantExactly(t, db, segs)
}

// TestStumble: a segment that the store fails at without a word that it is final does not keep the others from it.
func TestStumble(t *testing.T) {
	server := startNATS(t, alwaysSync, "")
	signer, _ := hostKey(t, "h1")
	db := openStore(t)
	var mu sync.Mutex
	stumbles := true
	ingester(t, server.config(), &gated{db, func(segs []store.Segment) error {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range segs {
			if stumbles && s.Run == "r-bad" && s.Index == 1 {
				return errors.New("injected: out of memory")
			}
		}
		return nil
	}}, IngestOptions{})
	r := dial(t, server.config())
	bad := sealedRun(t, signer, "acme", "h1", "r-bad", 100, 10)
	send(t, r, bad...)
	good := sealedRun(t, signer, "acme", "h1", "r-good", 100, 10)
	send(t, r, good...)
	if err := waitFor(t, func() error {
		if s := r.Stats(); s.Segments != 1 {
			return fmt.Errorf("%d segments wait, want 1", s.Segments)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	wantExactly(t, db, good)
	mu.Lock()
	stumbles = false
	mu.Unlock()
	if err := drainRemote(t, r, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	wantExactly(t, db, bad)
}

// TestFullStream: a publisher waits for room, and goes on when the ingester has made some.
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
	if err := drainRemote(t, r, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	wantExactly(t, db, segs)
}

// TestRepublish: what the store has lost reaches it again, though the stream saw it a moment ago.
func TestRepublish(t *testing.T) {
	server := startNATS(t, alwaysSync, "")
	signer, _ := hostKey(t, "h1")
	segs := sealedRun(t, signer, "acme", "h1", "r-1", 50, 10)
	r := dial(t, server.config())
	_, stop := ingester(t, server.config(), openStore(t), IngestOptions{})
	send(t, r, segs...)
	if err := drainRemote(t, r, 20*time.Second); err != nil {
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
	if err := drainRemote(t, r, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	wantExactly(t, db, segs)
}

// TestSharedWork: several ingesters, none of which does what another did.
func TestSharedWork(t *testing.T) {
	server := startNATS(t, alwaysSync, "")
	signer, _ := hostKey(t, "h1")
	db := openStore(t)
	slow := &gated{db, func([]store.Segment) error { time.Sleep(5 * time.Millisecond); return nil }}
	var all []*Ingester
	for range 3 {
		g, _ := ingester(t, server.config(), slow, IngestOptions{Batch: Batch{Rows: 40}})
		all = append(all, g)
	}
	r := dial(t, server.config())
	var runs [][]store.Segment
	var wg sync.WaitGroup
	for i := range 4 {
		segs := sealedRun(t, signer, "acme", "h1", fmt.Sprint("r-", i), 600, 10)
		runs = append(runs, segs)
		wg.Go(func() { send(t, r, segs...) })
	}
	wg.Wait()
	if err := drainRemote(t, r, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	total, busy := uint64(0), 0
	for _, g := range all {
		s := g.Stats()
		total += s.Stored
		if s.Stored > 0 {
			busy++
		}
	}
	if total != uint64(4*len(runs[0])) || busy == 0 {
		t.Errorf("%d segments were committed by %d ingesters", total, busy)
	}
	for _, segs := range runs {
		wantExactly(t, db, segs)
	}
}

// TestGracefulEnd: an ingester that is told to end gives back what it has, at once.
func TestGracefulEnd(t *testing.T) {
	server := startNATS(t, alwaysSync, "")
	signer, _ := hostKey(t, "h1")
	entered, leave := make(chan struct{}, 100), make(chan struct{})
	db := openStore(t)
	_, stop := ingester(t, server.config(), &gated{db, func([]store.Segment) error {
		entered <- struct{}{}
		<-leave
		return nil
	}}, IngestOptions{Batch: Batch{Rows: 20}})
	r := dial(t, server.config())
	segs := sealedRun(t, signer, "acme", "h1", "r-1", 200, 10)
	send(t, r, segs...)
	<-entered
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	time.Sleep(20 * time.Millisecond)
	close(leave)
	<-stopped
	done := 0
	for range db.Records(t.Context(), store.Query{Run: "r-1"}) {
		done++
	}
	if done == 0 || done > 100 {
		t.Errorf("%d records were committed by the one that ended", done)
	}
	ingester(t, server.config(), db, IngestOptions{})
	if err := drainRemote(t, r, ackWait/2); err != nil { // less than the stream waits for the silent
		t.Fatal(err)
	}
	wantExactly(t, db, segs)
}

func TestStatsOfNothing(t *testing.T) {
	if s := NewIngester(Config{}, nil, IngestOptions{}).Stats(); !reflect.DeepEqual(s, Stats{}) {
		t.Errorf("%+v", s)
	}
}

// TestDialWaits: a server that comes up later is no error, and one that never does is told with its cause.
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

// TestServerAway: publishing waits for the server, says so once, and goes on.
func TestServerAway(t *testing.T) {
	server := startNATS(t, alwaysSync, "")
	signer, _ := hostKey(t, "h1")
	var mu sync.Mutex
	var said []string
	c := server.config()
	c.Warn = func(w string) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, w)
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
	if err := drainRemote(t, r, 20*time.Second); err != nil {
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

// TestNobodyAnswers: without an ingester Drain says that nobody is there.
func TestNobodyAnswers(t *testing.T) {
	server := startNATS(t, alwaysSync, "")
	signer, _ := hostKey(t, "h1")
	r := dial(t, server.config())
	send(t, r, sealedRun(t, signer, "acme", "h1", "r-1", 20, 10)...)
	if err := drainRemote(t, r, time.Second); !errors.Is(err, ErrNoIngester) || !strings.Contains(err.Error(), "3 segments") {
		t.Errorf("Drain: %v", err)
	}
}

// largest is a run with a segment that is as large as one of the log can be.
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
