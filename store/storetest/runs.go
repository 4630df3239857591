package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

var runTests = []namedTest{
	{"find", testFind},
	{"tenants", testTenants},
	{"filters", testFilters},
	{"running and interrupted", testInterrupted},
	{"empty", testEmpty},
}

// later is a run that starts so many hours after the others.
func later(id string, hours int) []store.Segment {
	events := Events(10)
	for i := range events {
		events[i].Time = events[i].Time.Add(time.Duration(hours) * time.Hour)
	}
	return Segments(id, Frames(id, events), 10)
}

type found struct {
	tenant, name, want string
	err                error
}

func wantFind(t *testing.T, s store.Store, cases []found) {
	t.Helper()
	for _, tc := range cases {
		r, err := s.Run(t.Context(), tc.tenant, tc.name)
		if r.ID != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("tenant %q, run %q: got %q, %v; want %q, %v", tc.tenant, tc.name, r.ID, err, tc.want, tc.err)
		}
	}
}

func testFind(t *testing.T, s store.Store) {
	for i, id := range []string{"r-abc", "r-abd", "r-ab", "r-x_", "r-y._-"} {
		Ingest(t, s, later(id, i))
	}
	wantFind(t, s, []found{
		{"", "r-abc", "r-abc", nil}, {"", "r-ab", "r-ab", nil}, {"", "r-x", "r-x_", nil}, {"", store.Last, "r-y._-", nil}, {"", "r-y.", "r-y._-", nil},
		{"", "r-a", "", store.ErrAmbiguous}, {"", "", "", store.ErrNotFound}, {"", "R-ABC", "", store.ErrNotFound},
		{"", "r-_", "", store.ErrNotFound}, {"", "%", "", store.ErrNotFound}, {"", "r-abcd", "", store.ErrNotFound}, {"", "r-x\\", "", store.ErrNotFound},
		{"", "r-a_c", "", store.ErrNotFound}, {"", "r-%", "", store.ErrNotFound}, {"", `r-'"\`, "", store.ErrNotFound}, {"", "r-' OR '1'='1", "", store.ErrNotFound},
	})
}

func testTenants(t *testing.T, s store.Store) {
	Ingest(t, s, owned("a", "h1", later("r-aa1", 1)))
	Ingest(t, s, owned("b", "h2", later("r-aa2", 2)))
	Ingest(t, s, later("r-aa3", 3))
	Ingest(t, s, owned("a", "h1", later("r-b1", 0)))
	wantFind(t, s, []found{
		{"a", store.Last, "r-aa1", nil}, {"b", store.Last, "r-aa2", nil}, {"", store.Last, "r-aa3", nil}, {"c", store.Last, "", store.ErrNotFound},
		{"a", "r-aa", "r-aa1", nil}, {"a", "r-", "", store.ErrAmbiguous}, {"a", "r-aa2", "", store.ErrNotFound}, {"b", "r-aa3", "", store.ErrNotFound},
		{"", "r-aa2", "r-aa2", nil}, {"", "r-aa", "", store.ErrAmbiguous},
	})
	r, err := s.Run(t.Context(), "a", "r-aa1")
	if err != nil || r.Tenant != "a" || r.Host != "h1" {
		t.Errorf("summary is %+v, %v", r, err)
	}
	for _, tenant := range []string{"a", "b", "c"} {
		n := len(Collect(t, s.Records(t.Context(), store.Query{Tenant: tenant, Run: "r-aa2"})))
		chain, err := s.Manifests(t.Context(), tenant, "r-aa2")
		if mine := tenant == "b"; err != nil || (n == 10) != mine || (len(chain) == 2) != mine || !mine && n+len(chain) > 0 {
			t.Errorf("tenant %q sees %d records and %d manifests of tenant b's run, %v", tenant, n, len(chain), err)
		}
	}
}

func testFilters(t *testing.T, s store.Store) {
	for i := range 6 {
		segs := later(fmt.Sprint("r-", i), i%3) // pairs that start at the same time
		if i == 4 {
			segs = segs[1:] // no records
		}
		Ingest(t, s, owned([]string{"", "a"}[i%2], "h", segs))
	}
	running := Frames("r-run", Events(10))[:5]
	Ingest(t, s, Segments("r-run", running, 10)[:1])
	for _, tc := range []struct {
		f    store.Filter
		want []string
	}{
		{store.Filter{}, []string{"r-5", "r-2", "r-1", "r-run", "r-3", "r-0"}},
		{store.Filter{Limit: 2}, []string{"r-5", "r-2"}},
		{store.Filter{Tenant: "a"}, []string{"r-5", "r-1", "r-3"}},
		{store.Filter{Tenant: "a", Limit: 1}, []string{"r-5"}},
		{store.Filter{Project: "shop", Status: store.Running}, []string{"r-run"}},
		{store.Filter{Status: store.Sealed, Limit: 1}, []string{"r-5"}},
		{store.Filter{Status: store.Interrupted}, nil},
		{store.Filter{Project: "other"}, nil},
		{store.Filter{Tenant: "b"}, nil},
	} {
		runs, err := s.Runs(t.Context(), tc.f)
		var got []string
		for _, r := range runs {
			got = append(got, r.ID)
		}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%+v: got %v, %v, want %v", tc.f, got, err, tc.want)
		}
	}
}

func testInterrupted(t *testing.T, s store.Store) {
	events := Events(20)
	frames := Frames("r-1", events[:19])
	Ingest(t, s, Segments("r-1", frames[5:], 20)[:1]) // the start event comes late
	r, err := s.Run(t.Context(), "", "r-1")
	if err != nil || r.Status != store.Running || r.End != nil || r.ExitCode != nil || !r.Start.Equal(events[5].Time) || r.Project != "" {
		t.Fatalf("got %+v, %v", r, err)
	}
	Ingest(t, s, []store.Segment{{Run: "r-1", Index: 1, First: 1, Last: 5, Frames: frames[:5], Manifest: []byte("second")}})
	end := audit.Event{Time: events[19].Time, Observer: audit.Host, Kind: audit.KindRun,
		Lifecycle: &audit.Lifecycle{Phase: audit.PhaseEnd, Status: audit.StatusInterrupted}}
	gap := audit.Event{Time: end.Time, Observer: audit.Host, Kind: audit.KindGap, Gap: &audit.Gap{Stage: "wal", Count: 12, Cause: "killed"}}
	finding := audit.Event{Time: end.Time, Observer: audit.Host, Kind: audit.KindFinding, Finding: &audit.Finding{Rule: "x"}}
	claim := end // a guest's claim does not determine how the run ended
	claim.Observer, claim.Lifecycle = audit.Guest, &audit.Lifecycle{Phase: audit.PhaseEnd, Status: audit.StatusDone}
	last := []store.Frame{Frame("r-1", 20, gap), Frame("r-1", 21, end), Frame("r-1", 22, finding), Frame("r-1", 23, claim)}
	Ingest(t, s, []store.Segment{{Run: "r-1", Index: 2, First: 20, Last: 23, Frames: last, Manifest: []byte("third")}})
	r, err = s.Run(t.Context(), "", "r-1")
	if err != nil || r.Status != store.Interrupted || r.End == nil || r.ExitCode != nil || r.Gaps != 1 || r.Lost != 12 || r.Findings != 1 ||
		r.Project != "shop" || r.Result != audit.StatusInterrupted || r.DurationNS != 19e6 {
		t.Fatalf("got %+v, %v", r, err)
	}
}

func testEmpty(t *testing.T, s store.Store) {
	wantLike(t, s, &Oracle{})
	wantFind(t, s, []found{{"", store.Last, "", store.ErrNotFound}, {"", "r-1", "", store.ErrNotFound}, {"a", "", "", store.ErrNotFound}})
	if chain, err := s.Manifests(t.Context(), "", "r-1"); err != nil || len(chain) != 0 {
		t.Errorf("manifests of no run: %v, %v", chain, err)
	}
	if rows := Collect(t, s.Records(t.Context(), store.Query{Run: "r-1"})); len(rows) != 0 {
		t.Errorf("records of no run: %v", rows)
	}
}
