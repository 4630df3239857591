package ship

import (
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

	"github.com/custody-project/custody/store"
)

// TestRefused: a segment that contradicts itself, its subject, its signature or the store is set aside, and
// the rest of its batch is stored.
func TestRefused(t *testing.T) {
	server := startNATS(t, alwaysSync, "")
	signer, verifier := hostKey(t, "h1")
	other, _ := hostKey(t, "h1") // with that name, and not trusted
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
	// On the subject of another segment, and a message that is not a segment.
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
	err = drainRemote(t, r, 2*time.Minute)
	if !errors.Is(err, store.ErrConflict) || !errors.Is(err, store.ErrMalformed) || strings.Count(err.Error(), "refused") != 5 {
		t.Errorf("Drain: %v", err)
	}
	if err := drainRemote(t, r, 2*time.Minute); err != nil {
		t.Errorf("Drain, after the notice: %v", err)
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
			return fmt.Errorf("%d messages", n) // acks are pending
		}
		return nil
	}); err != nil {
		t.Log(err)
	}
	return n
}

// gated is a real store with injected faults.
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

// TestStoreAway: nothing is acked while the store is unavailable, and nothing is lost.
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
	if err := drainRemote(t, r, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	wantExactly(t, db, segs)
}

// TestStumble: a segment at which the store fails with a transient error does not block the others.
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

// TestSharedWork: several ingesters divide the segments without overlap.
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

// TestGracefulEnd: an ingester that is stopped returns its messages immediately.
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
	if err := drainRemote(t, r, ackWait/2); err != nil { // shorter than the stream waits for a silent ingester
		t.Fatal(err)
	}
	wantExactly(t, db, segs)
}

func TestStatsOfNothing(t *testing.T) {
	if s := NewIngester(Config{}, nil, IngestOptions{}).Stats(); !reflect.DeepEqual(s, Stats{}) {
		t.Errorf("%+v", s)
	}
}
