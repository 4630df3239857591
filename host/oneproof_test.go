package host_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/store/storetest"
)

// TestProofOf: a record's proof is the same whether its segment is in the log or only in the store.
func TestProofOf(t *testing.T) {
	h, err := host.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	id := host.NewRunID(storetest.Start())
	record(t, h, id, storetest.Events(20))
	if err := h.Shipping().Ship(t.Context(), false, func(s string) { t.Log(s) }); err != nil {
		t.Fatal(err)
	}
	key, err := h.Keys().Signing()
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := note.NewVerifier(key.Public)
	if err != nil {
		t.Fatal(err)
	}
	trust := proof.Trust{Keys: note.VerifierList(verifier)}
	here := map[uint64]proof.RecordProof{}
	for _, seq := range []uint64{1, 7, 20} {
		p, err := h.Proofs().OfRecord(t.Context(), "", id, seq)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := p.Verify(trust); err != nil || r.Seq != seq || p.HostKey != key.Public || p.State != proof.StateLogged {
			t.Errorf("seq %d: %+v, %v", seq, r, err)
		}
		here[seq] = p
	}
	files, err := filepath.Glob(filepath.Join(h.RunDir(id), "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files { // as after retention
		if strings.HasSuffix(f, ".seg") || strings.HasSuffix(f, ".leaves") {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := h.Proofs().OfRecord(t.Context(), "", id, 7); !errors.Is(err, verdict.ErrSegmentMissing) {
		t.Errorf("a segment that is missing and was not pruned: %v", err)
	}
	if err := os.WriteFile(filepath.Join(h.RunDir(id), "pruned"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for seq, want := range here {
		p, err := h.Proofs().OfRecord(t.Context(), "", id, seq)
		if err != nil || !reflect.DeepEqual(p, want) {
			t.Errorf("seq %d: %v, another proof than before: %v", seq, err, p)
		}
	}
	for _, seq := range []uint64{0, 1 << 40} {
		if _, err := h.Proofs().OfRecord(t.Context(), "", id, seq); !errors.Is(err, verdict.ErrNoEvidence) {
			t.Errorf("seq %d: %v", seq, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(h.Dir, "rebuilt-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
