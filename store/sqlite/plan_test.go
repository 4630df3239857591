package sqlite

import (
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// plan is SQLite's query plan.
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

// sorts reports whether a plan sorts all rows.
func sorts(plan string) bool {
	return strings.Contains(plan, "SCAN") || strings.Contains(plan, "TEMP B-TREE")
}

// TestPlans checks that each query uses an index in its order, regardless of the number of
// records: neither a full scan nor a sort.
func TestPlans(t *testing.T) {
	s := newStore(t)
	hash := strings.Repeat("0f", 32)
	at := time.Unix(1e9, 0)
	page := &store.Head{Time: at, Run: "r", Seq: 7}
	for _, tc := range []struct {
		q    store.Search
		want string
	}{
		{store.Search{Path: "/a"}, "records_by_path (path=? AND"},
		{store.Search{Path: "/a", From: at, To: at, Limit: 10}, "records_by_path (path=? AND (time,run,seq)>(?,?,?) AND"},
		{store.Search{Path: "/a", Tenant: "t", Kinds: []audit.Kind{audit.KindFile}}, "records_by_path (path=? AND"},
		{store.Search{Host: "a", From: at}, "records_by_host (host=? AND (time,run,seq)>(?,?,?) AND"},
		{store.Search{Hash: hash, Path: "/a", Before: page}, "records_by_hash (hash=? AND"},
		{store.Search{Hash: "no hash", Limit: 1}, "records_by_hash (hash=? AND"},
		{store.Search{Secret: "a", Tenant: "t"}, "records_by_secret (secret=? AND"},
		{store.Search{Rule: "a"}, "records_by_rule (rule=? AND"},
		{store.Search{Text: "a"}, "records_by_time ("},
		{store.Search{From: at, Kinds: []audit.Kind{audit.KindFile}, Limit: 100}, "records_by_time ((time,run,seq)>(?,?,?) AND"},
		{store.Search{From: at, To: at, Kinds: []audit.Kind{audit.KindFinding}, Limit: 100}, "records_by_kind (kind=? AND (time,run,seq)>(?,?,?) AND"},
		{store.Search{Text: "a", Kinds: []audit.Kind{"of tomorrow"}}, "records_by_kind (kind=? AND"},
	} {
		w := walk{store: s, q: tc.q, way: wayOf(tc.q), at: newest}
		for _, end := range []*store.Head{nil, page} {
			want := "SEARCH f USING COVERING INDEX " + tc.want
			if end != nil && tc.q.From.IsZero() {
				want += " (time,run,seq)>(?,?,?) AND"
			}
			want = strings.Replace(want, "( (", "((", 1) + " (time,run,seq)<(?,?,?))"
			want = strings.Replace(want, "( (", "((", 1)
			got := plan(t, s, w.selection(w.rest(), end))
			if !strings.Contains(got, want) || !strings.Contains(got, "SEARCH records USING PRIMARY KEY (run=? AND seq=?)") || sorts(got) {
				t.Errorf("%+v: %s, want %s", tc.q, got, want)
			}
		}
		if got := plan(t, s, w.skipping(10)); !strings.Contains(got, "SEARCH f USING COVERING INDEX "+tc.want) || sorts(got) {
			t.Errorf("%+v: steps are found by %s", tc.q, got)
		}
	}
	for _, q := range []store.Query{{Run: "r"}, {Run: "r", AfterSeq: 5, Limit: 100}, {Run: "r", Kinds: []audit.Kind{audit.KindExec}, From: at}, {Run: "r", From: at, To: at}} {
		got := plan(t, s, recordsSQL(q, ""))
		if !strings.Contains(got, "SEARCH records USING PRIMARY KEY (run=? AND seq>?)") || strings.Contains(got, "TEMP B-TREE") {
			t.Errorf("%+v: %s", q, got)
		}
	}
	before := &store.Run{ID: "r", Start: at}
	for _, f := range []store.Filter{{}, {Before: before}, {Tenant: "a"}, {Tenant: store.NoTenant, Before: before}, {Class: store.Sandboxes, Before: before},
		{Tenant: "a", Class: store.Accesses, Findings: true, Before: before}} {
		got := plan(t, s, runsSQL(f).order(runsOrder, 10))
		if strings.Contains(got, "TEMP B-TREE") || f.Before != nil && !strings.Contains(got, "<") || f.Tenant != "" && !strings.Contains(got, "runs_by_tenant (tenant=?") {
			t.Errorf("%+v: %s", f, got)
		}
	}
}
