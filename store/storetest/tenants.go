package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

var tenantTests = []namedTest{
	{"each other's runs", testOthersRuns},
	{"access logs", testAccessLogs},
	{"notes", testNotes},
}

// testOthersRuns: for a tenant, another tenant's run does not exist, in any query.
func testOthersRuns(t *testing.T, s store.Store) {
	runs := map[string][]string{"a": {"r-a1", "r-a2", "a-a1"}, "b": {"r-b1", "a-b1"}, store.NoTenant: {"r-n1", "a-n1"}, "c": nil, "A": nil, "a ": nil,
		"' OR 1=1 --": nil, "\x00": nil, "(none": nil}
	var segs []store.Segment
	for _, tenant := range []string{"a", "b", store.NoTenant} {
		for _, id := range runs[tenant] {
			segs = append(segs, owned(plainTenant(tenant), "h", Segments(id, Frames(id, searchable()), 9))...)
		}
	}
	Ingest(t, s, segs)
	o := same(t, s, segs...)
	for tenant, own := range runs {
		for _, whose := range runs {
			for _, id := range whose {
				wantAlike(t, s, o, tenant, id, slices.Contains(own, id))
			}
		}
		for _, name := range []string{store.Last, "r-", "a-", "r-a", "r-b1", "r", "a", "", "%", "r-%"} {
			want, wantErr := o.Run(t.Context(), tenant, name)
			got, err := s.Run(t.Context(), tenant, name)
			if got.ID != want.ID || !sameError(err, wantErr) {
				t.Errorf("tenant %q, run %q: %q, %v, want %q, %v", tenant, name, got.ID, err, want.ID, wantErr)
			}
		}
		listed, err := s.Runs(t.Context(), store.Filter{Tenant: tenant})
		if got := names(listed); err != nil || len(got) != len(own) || slices.ContainsFunc(got, func(id string) bool { return !slices.Contains(own, id) }) {
			t.Errorf("tenant %q has the runs %v, %v, want %v", tenant, got, err, own)
		}
		for _, q := range []store.Search{{Host: "api.example.com"}, {Path: "/bin/sh", Limit: 2}, {Secret: "token"}, {Text: "bin"},
			{From: start, Kinds: []audit.Kind{audit.KindFinding}}, {Hash: fmt.Sprintf("%064x", 0xabc), Before: &store.Head{Time: start.AddDate(1, 0, 0)}}} {
			q.Tenant = tenant
			wantFound(t, s, o, q)
		}
	}
}

func plainTenant(asked string) string {
	if asked == store.NoTenant {
		return ""
	}
	return asked
}

// wantAlike reads everything about a run for a tenant.
func wantAlike(t *testing.T, s store.Store, o *Oracle, tenant, id string, own bool) {
	t.Helper()
	r, err := s.Run(t.Context(), tenant, id)
	if own && (err != nil || r.ID != id || r.Tenant != plainTenant(tenant)) || !own && !errors.Is(err, store.ErrNotFound) {
		t.Errorf("tenant %q, run %s: %+v, %v", tenant, id, r, err)
	}
	rows := Collect(t, s.Records(t.Context(), store.Query{Tenant: tenant, Run: id}))
	wantRows(t, rows, Collect(t, o.Records(t.Context(), store.Query{Tenant: tenant, Run: id})))
	chain, err := s.Manifests(t.Context(), tenant, id)
	if err != nil || (len(chain) > 0) != own || (len(rows) > 0) != own {
		t.Errorf("tenant %q, run %s: %d records, %d manifests, %v", tenant, id, len(rows), len(chain), err)
	}
	if !own {
		if err := s.Erase(t.Context(), tenant, id, 1); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("tenant %q erases in run %s: %v, want ErrNotFound", tenant, id, err)
		}
	}
}

func sameError(a, b error) bool {
	return (a == nil) == (b == nil) && errors.Is(a, store.ErrNotFound) == errors.Is(b, store.ErrNotFound) &&
		errors.Is(a, store.ErrAmbiguous) == errors.Is(b, store.ErrAmbiguous)
}

// testNotes: notes are found by their run, in any log.
func testNotes(t *testing.T, s store.Store) {
	for i, log := range []string{"a-0", "a-1"} {
		events := Events(5)
		for j := range events {
			events[j].Time = start.Add(time.Duration(10*i+j) * time.Second)
		}
		for j, about := range []string{"r-1", "r-2", "r-1"} {
			events[j+1] = audit.Event{Time: events[j+1].Time, Observer: audit.Host, Kind: audit.KindNote,
				Note: &audit.Note{Who: "ann", Via: "token", About: about, Text: "r-2 is another one", Tags: []string{"r-2"}}}
		}
		Ingest(t, s, owned([]string{"", "t"}[i], "h", Segments(log, Frames(log, events), 10)))
	}
	for _, tc := range []struct {
		q    store.Search
		want string
	}{
		{store.Search{Path: "r-1", Kinds: []audit.Kind{audit.KindNote}}, "[a-1:4 a-1:2 a-0:4 a-0:2]"},
		{store.Search{Path: "r-2", Kinds: []audit.Kind{audit.KindNote}}, "[a-1:3 a-0:3]"},
		{store.Search{Path: "r-2", Kinds: []audit.Kind{audit.KindNote}, Tenant: "t"}, "[a-1:3]"},
		{store.Search{Path: "r-", Kinds: []audit.Kind{audit.KindNote}}, "[]"},
		{store.Search{From: start, Kinds: []audit.Kind{audit.KindNote}, Limit: 2}, "[a-1:4 a-1:3]"},
	} {
		got := []string{}
		for row, err := range s.Search(t.Context(), tc.q) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, audit.NoteID(row.Run, row.Seq))
		}
		if fmt.Sprint(got) != tc.want {
			t.Errorf("%+v: %v, want %v", tc.q, got, tc.want)
		}
	}
}

// testAccessLogs: an access to a run does not become the last run.
func testAccessLogs(t *testing.T, s store.Store) {
	look := func(id string, days int) []store.Segment {
		events := Events(4)
		events[1] = audit.Event{Observer: audit.Host, Kind: audit.KindAccess, Access: &audit.Access{Who: "eve", Action: "view", Verdict: audit.Deny}}
		for i := range events {
			events[i].Time = start.AddDate(0, 0, days).Add(time.Duration(i) * time.Millisecond)
		}
		return Segments(id, Frames(id, events), 10)
	}
	Ingest(t, s, look("a-0", 0))
	wantFind(t, s, []found{{"", store.Last, "", store.ErrNotFound}, {store.NoTenant, store.Last, "", store.ErrNotFound},
		{"", "a-0", "a-0", nil}, {"", "a-", "a-0", nil}})
	Ingest(t, s, later("r-1", 1))
	Ingest(t, s, owned("t", "h", later("r-2", 2)))
	Ingest(t, s, look("a-1", 3))
	Ingest(t, s, owned("t", "h", look("a-2", 4)))
	wantFind(t, s, []found{
		{"", store.Last, "r-2", nil}, {store.NoTenant, store.Last, "r-1", nil}, {"t", store.Last, "r-2", nil},
		{"", "a-", "", store.ErrAmbiguous}, {"t", "a-", "a-2", nil}, {"t", "a-2", "a-2", nil}, {"t", "a-1", "", store.ErrNotFound},
		{store.NoTenant, "a-1", "a-1", nil}, {store.NoTenant, "a-2", "", store.ErrNotFound}, {store.NoTenant, "r-", "r-1", nil},
	})
	for _, tc := range []struct {
		f    store.Filter
		want []string
	}{
		{store.Filter{Class: store.Accesses}, []string{"a-2", "a-1", "a-0"}}, {store.Filter{Class: store.Sandboxes}, []string{"r-2", "r-1"}},
		{store.Filter{}, []string{"a-2", "a-1", "r-2", "r-1", "a-0"}}, {store.Filter{Class: store.Accesses, Tenant: "t", Limit: 5}, []string{"a-2"}},
		{store.Filter{Class: store.Accesses, Tenant: store.NoTenant, Limit: 1}, []string{"a-1"}}, {store.Filter{Class: "?"}, nil},
	} {
		runs, err := s.Runs(t.Context(), tc.f)
		if got := names(runs); err != nil || fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%+v: %v, %v, want %v", tc.f, got, err, tc.want)
		}
	}
}
