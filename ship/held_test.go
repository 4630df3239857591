package ship

import (
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/store"
)

// TestStoredIsWhatTheStoreHas: runs of other tenants, unknown runs, and records that differ from their manifest.
func TestStoredIsWhatTheStoreHas(t *testing.T) {
	server := startNATS(t, alwaysSync, "")
	signer, _ := hostKey(t, "h1")
	db := openStore(t)
	ingester(t, server.config(), db, IngestOptions{})
	r := dial(t, server.config())
	segs := sealedRun(t, signer, "acme", "h1", "r-1", 40, 10)
	send(t, r, segs...)
	if err := drainRemote(t, r, 2*time.Minute); err != nil {
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

// TestHeldOracle compares deep answers with those computed from all records in one pass.
func TestHeldOracle(t *testing.T) {
	signer, _ := hostKey(t, "h1")
	db := openStore(t)
	segs := sealedRun(t, signer, "acme", "h1", "r-1", 60, 7)
	lacking := append([]store.Segment{}, segs...)
	lacking[2].Frames = lacking[2].Frames[:3] // the store has the manifest and not all of its records
	lacking[2].Last = lacking[2].Frames[2].Seq
	for i, seg := range lacking {
		if i == 4 {
			continue // the store lacks the whole segment
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
