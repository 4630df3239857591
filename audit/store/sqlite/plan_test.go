package sqlite

import (
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/store"
)

// plan is how SQLite means to answer.
func plan(t *testing.T, s *Store, sel *selection) string {
	t.Helper()
	rows, err := s.db.Query("EXPLAIN QUERY PLAN "+sel.text.String(), sel.args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var id, parent, none int
		var detail string
		if err := rows.Scan(&id, &parent, &none, &detail); err != nil {
			t.Fatal(err)
		}
		all = append(all, detail)
	}
	return strings.Join(all, "; ")
}

// TestPlans wants each question answered from an index that has its order, however
// many records there are: neither a walk over all of them nor a sort.
func TestPlans(t *testing.T) {
	s := newStore(t)
	hash := strings.Repeat("0f", 32)
	at := time.Unix(1e9, 0)
	for _, tc := range []struct {
		q    store.Search
		want string
	}{
		{store.Search{Path: "/a"}, "records_by_path"},
		{store.Search{Path: "/a", From: at, To: at, Limit: 10}, "records_by_path"},
		{store.Search{Path: "/a", Tenant: "t", Kinds: []audit.Kind{audit.KindFile}}, "records_by_path"},
		{store.Search{Host: "a", From: at}, "records_by_host"},
		{store.Search{Hash: hash}, "records_by_hash"},
		{store.Search{Hash: "no hash", Limit: 1}, "records_by_hash"},
		{store.Search{Secret: "a", Tenant: "t"}, "records_by_secret"},
		{store.Search{Rule: "a"}, "records_by_rule"},
		{store.Search{From: at, Kinds: []audit.Kind{audit.KindFinding}, Limit: 100}, "records_by_time"},
	} {
		sel, err := searchSQL(tc.q)
		if err != nil {
			t.Fatal(err)
		}
		got := plan(t, s, sel)
		if !strings.Contains(got, "SEARCH records USING INDEX "+tc.want) || strings.Contains(got, "SCAN") || strings.Contains(got, "TEMP B-TREE") {
			t.Errorf("%+v: %s, want %s", tc.q, got, tc.want)
		}
	}
	for _, q := range []store.Query{{Run: "r"}, {Run: "r", AfterSeq: 5, Limit: 100}, {Run: "r", Kinds: []audit.Kind{audit.KindExec}, From: at}, {Run: "r", From: at, To: at}} {
		got := plan(t, s, recordsSQL(q, ""))
		if !strings.Contains(got, "SEARCH records USING PRIMARY KEY (run=? AND seq>?)") || strings.Contains(got, "TEMP B-TREE") {
			t.Errorf("%+v: %s", q, got)
		}
	}
}
