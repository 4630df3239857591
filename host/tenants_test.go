package host_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// homeOf returns a home of a tenant that uses the store.
func homeOf(t *testing.T, tenant, dsn string) *host.Host {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "host.yaml"), []byte("version: 1\ntenant: "+tenant+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	h.UseStore(dsn)
	return h
}

// recordFor records a run in the home.
func recordFor(t *testing.T, h *host.Host, id string, n int) error {
	t.Helper()
	run, err := h.Begin(t.Context(), host.RunOptions{ID: id, Mode: wal.Strict, Facts: statement.Facts{Tenant: h.Config().Tenant, Tier: "none"},
		Redactor: redact.New([]byte("0123456789abcdef0123456789abcdef"))})
	if err != nil {
		t.Fatal(err)
	}
	run.Ship(t.Context())
	start := audit.Event{Time: storetest.Start(), Observer: audit.Host, Kind: audit.KindRun, Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart, Tenant: h.Config().Tenant}}
	for _, e := range append([]audit.Event{start}, storetest.Events(n)...) {
		if _, err := run.Record(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	record, stored := run.Close(t.Context(), wal.Sealed)
	if record != nil {
		t.Fatal(record)
	}
	return stored
}

// TestOfAnotherTenant: a run that another host recorded for another tenant is proven from the store, and is never
// confused with a run of this host that has the same name.
func TestOfAnotherTenant(t *testing.T) {
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "shared.db")
	mine, other := homeOf(t, "acme", dsn), homeOf(t, "beta", dsn)
	there, same := host.NewRunID(storetest.Start()), host.NewRunID(storetest.Start())
	for _, id := range []string{there, same} {
		if err := recordFor(t, other, id, 10); err != nil {
			t.Fatal(err)
		}
	}
	if err := recordFor(t, mine, same, 20); err == nil {
		t.Error("the store took two runs of one name")
	}
	key, err := other.Keys().Trusted()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{there, same} {
		e, done, err := mine.Proofs().OfRun(t.Context(), "beta", id)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := proof.Verify(t.Context(), e, proof.Trust{Keys: key}); err != nil || r.Records != 11 {
			t.Errorf("%s: %d records, %v, want the 11 of the other tenant", id, r.Records, err)
		}
		if err := done(); err != nil {
			t.Error(err)
		}
		p, err := mine.Proofs().OfRecord(t.Context(), "beta", id, 5)
		if err == nil {
			_, err = p.Verify(proof.Trust{Keys: key})
		}
		if !errors.Is(err, verdict.ErrPending) { // it is not in this host's log
			t.Errorf("%s: proof: %v", id, err)
		}
		if _, err := mine.Proofs().OfRecord(t.Context(), "beta", id, 15); !errors.Is(err, verdict.ErrNoEvidence) {
			t.Errorf("%s: a record that the run lacks: %v", id, err)
		}
		var unknown *host.NotEnrolledError
		if err := mine.Proofs().Bundle(t.Context(), &bytes.Buffer{}, "beta", id, host.BundleOptions{}); !errors.As(err, &unknown) || !strings.Contains(unknown.Hint(), "fleet enrol") {
			t.Errorf("%s: a bundle without its host's key: %v", id, err)
		}
		for _, tenant := range []string{store.NoTenant, "gamma"} {
			if err := mine.Proofs().Bundle(t.Context(), &bytes.Buffer{}, tenant, id, host.BundleOptions{}); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s for %s: %v, want store.ErrNotFound", id, tenant, err)
			}
		}
	}
}
