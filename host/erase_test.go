package host_test

import (
	"crypto/rand"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/sampleruns"
)

// TestEraseSigned: a statement that another process signed erases only the record whose hash it has, and only with a key of the host.
func TestEraseSigned(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	run := sampleruns.Record(t, home, sampleruns.Review())
	h, err := host.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := h.Keys().Signing()
	if err != nil {
		t.Fatal(err)
	}
	stated, err := h.Erasures().State(host.Erasure{Run: run, Seq: outputOf(t, h, run), Reason: "request 4711", By: "dpo"})
	if err != nil {
		t.Fatal(err)
	}
	skey, _, err := note.GenerateKey(rand.Reader, signer.Name())
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := note.NewSigner(skey)
	if err != nil {
		t.Fatal(err)
	}
	erase := func(by note.Signer, change func(*statement.Erasure)) error {
		e := stated
		change(&e)
		signed, err := e.Sign(by)
		if err != nil {
			t.Fatal(err)
		}
		return h.Erasures().EraseSigned(t.Context(), signed)
	}
	for want, err := range map[string]error{
		"no verifiable signatures": erase(stranger, func(*statement.Erasure) {}),
		"another record":           erase(signer, func(e *statement.Erasure) { e.Leaf[0] ^= 1 }),
		"another record than":      erase(signer, func(e *statement.Erasure) { e.Seq = stated.Seq - 1 }),
		"no log on this host":      erase(signer, func(e *statement.Erasure) { e.Run = host.NewRunID(time.Now()) }),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one with %q", err, want)
		}
	}
	if names, err := filepath.Glob(filepath.Join(h.RunDir(run), "*"+statement.ErasureSuffix)); err != nil || len(names) > 0 {
		t.Errorf("refused statements are kept: %v, %v", names, err)
	}
	if got := outputOf(t, h, run); got != stated.Seq {
		t.Errorf("the first output is record %d, want %d", got, stated.Seq)
	}
	if err := erase(signer, func(*statement.Erasure) {}); err != nil {
		t.Fatal(err)
	}
	if got := outputOf(t, h, run); got == stated.Seq {
		t.Error("the record is still there")
	}
}

// outputOf returns the seq of the first output that a run's log has, 0 if it has none.
func outputOf(t *testing.T, h *host.Host, run string) uint64 {
	t.Helper()
	segments, err := wal.Segments(h.RunDir(run))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range segments {
		for f, err := range wal.ReadSegment(path) {
			if err != nil {
				t.Fatal(err)
			}
			if !f.Erased && strings.Contains(string(f.Bytes), `"kind":"`+string(audit.KindOutput)+`"`) {
				return f.Seq
			}
		}
	}
	return 0
}
