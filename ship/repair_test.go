package ship

import (
	"errors"
	"slices"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// untrue is seg with its manifest and other rows, like in an altered store.
func untrue(seg store.Segment) store.Segment {
	seg.Frames = slices.Clone(seg.Frames)
	seg.Frames[3].Salt[0]++
	seg.Frames = slices.Delete(seg.Frames, 5, 7)
	return seg
}

// TestRepairHere: the transport in this process makes the store repair what was altered.
func TestRepairHere(t *testing.T) {
	tr, f := start(t, nil)
	segs := storetest.Run("r-1", 50, 10)
	storetest.Ingest(t, f.Store, []store.Segment{segs[0], untrue(segs[1]), segs[2], segs[3], segs[4], segs[5]})
	publish(t, tr, segs[1])
	if err := drain(t, tr); !errors.Is(err, store.ErrConflict) {
		t.Errorf("published: %v, want ErrConflict", err)
	}
	tr2, f2 := Start(t.Context(), f), f
	defer tr2.Close()
	if err := tr2.Republish(t.Context(), segs[1]); err != nil {
		t.Fatal(err)
	}
	if err := drain(t, tr2); err != nil {
		t.Fatal(err)
	}
	storetest.WantRecords(t, f2.Store, "r-1", segs)
}

// TestRepairThere: the ingester repairs verified segments, and Drain waits for the rows. A segment that differs from
// its manifest is refused, and changes nothing.
func TestRepairThere(t *testing.T) {
	server := startNATS(t, alwaysSync, "")
	signer, verifier := hostKey(t, "h1")
	segs := sealedRun(t, signer, "acme", "h1", "r-1", 50, 10)
	db := openStore(t)
	storetest.Ingest(t, db, []store.Segment{segs[0], untrue(segs[1]), segs[2], untrue(segs[3]), segs[4], segs[5]})
	ingester(t, server.config(), db, IngestOptions{Keys: note.VerifierList(verifier)})
	r := dial(t, server.config())

	send(t, r, segs[1])
	if err := r.Republish(t.Context(), untrue(segs[1])); err != nil {
		t.Fatal(err)
	}
	forged := sealedRun(t, signer, "acme", "h1", "r-1", 50, 10)[1]
	forged.Manifest = sealedRun(t, signer, "acme", "h1", "r-1", 40, 10)[2].Manifest
	if err := r.Republish(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	err := drainRemote(t, r, 2*time.Minute)
	if !errors.Is(err, store.ErrConflict) || !errors.Is(err, store.ErrMalformed) {
		t.Errorf("got %v, want the plain one in conflict and the untrue ones malformed", err)
	}
	for _, i := range []int{1, 3} {
		if err := r.Republish(t.Context(), segs[i]); err != nil {
			t.Fatal(err)
		}
	}
	r.mu.Lock()
	under := len(r.sent)
	r.mu.Unlock()
	if err := drainRemote(t, r, 2*time.Minute); err != nil {
		t.Fatalf("%d were under way: %v", under, err)
	}
	wantExactly(t, db, segs)
}

// TestRepairAsked: an answer from the manifests alone does not complete a repair.
func TestRepairAsked(t *testing.T) {
	server := startNATS(t, alwaysSync, "")
	signer, _ := hostKey(t, "h1")
	segs := sealedRun(t, signer, "acme", "h1", "r-1", 50, 10)
	db := openStore(t)
	storetest.Ingest(t, db, []store.Segment{segs[0], untrue(segs[1])})
	ingester(t, server.config(), &gated{db, func([]store.Segment) error { return nil }}, IngestOptions{})
	r := dial(t, server.config())
	id := repairHeader(segs[1]).Get("Nats-Msg-Id") // as if it had been sent, and its notice lost
	r.track(id, sent{held: heldAs(segs[1]), tenant: "acme", run: "r-1", repair: true, duplicate: true})
	if err := drainRemote(t, r, time.Second); err == nil {
		t.Error("a repair that was never made counts as done")
	}
	if err := r.Republish(t.Context(), segs[1]); err != nil {
		t.Fatal(err)
	}
	if err := drainRemote(t, r, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
}
