package host_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
)

// TestReserve: the facts of a run are stored before its worker begins, which cannot change them, and nothing stays of a run whose worker
// wrote nothing.
func TestReserve(t *testing.T) {
	h, err := host.Open(t.TempDir())
	must(t, err)
	id := host.NewRunID(time.Now())
	r, err := host.Reserve(t.Context(), h, host.RunOptions{ID: id, Facts: statement.Facts{Tenant: "acme", Tier: "none"}})
	must(t, err)
	facts := filepath.Join(h.RunDir(id), "facts")
	text, err := os.ReadFile(facts)
	must(t, err)
	if !strings.Contains(string(text), `"tenant":"acme"`) {
		t.Errorf("facts %s", text)
	}
	if wal.IsFile(filepath.Base(facts)) {
		t.Error("a worker can open the facts")
	}
	record, _ := r.Close(t.Context(), wal.Sealed)
	must(t, record)
	if _, err := os.Stat(h.RunDir(id)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}
