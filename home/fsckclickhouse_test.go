package home_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit/store/clickhouse/clickhousetest"
	"github.com/custody-project/custody/audit/store/storetest"
	"github.com/custody-project/custody/home"
)

// TestFsckClickHouse: each searchable column that is altered in ClickHouse is named.
func TestFsckClickHouse(t *testing.T) {
	server := clickhousetest.Start(t)
	dsn := server.Fresh()
	h, err := home.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h.UseStore(dsn)
	id := home.NewRunID(storetest.Start())
	record(t, h, id, storetest.Events(12))
	if err := h.Ship(t.Context(), false, func(string) {}); err != nil {
		t.Fatal(err)
	}
	query := func(statement string) {
		t.Helper()
		at, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		at.RawQuery = url.Values{"database": {strings.Trim(at.Path, "/")}}.Encode()
		at.Path = "/"
		resp, err := http.Post(at.String(), "text/plain", strings.NewReader(statement))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", statement, text)
		}
	}
	problems := func() string {
		t.Helper()
		checked, err := h.Fsck(t.Context(), home.FsckOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(checked.Problems)
	}
	if got := problems(); got != "[]" {
		t.Fatalf("nothing was altered, and fsck says %s", got)
	}
	for _, column := range []string{"observer", "step", "proc", "path", "host", "hash", "secret", "rule"} {
		query("ALTER TABLE records UPDATE " + column + " = 'altered' WHERE seq = 3 SETTINGS mutations_sync = 2")
		if got := problems(); !strings.Contains(got, "record 3: ") || !strings.Contains(got, column) {
			t.Errorf("after %s was altered fsck says %s", column, got)
		}
	}
}
