package storetest

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

var readTests = []namedTest{
	{"queries", testQueries},
	{"searches", testSearches},
	{"search over all is refused", testSearchAll},
	{"ranges end early and begin again", testEarlyEnd},
	{"what is returned is the caller's", testOwnCopies},
	{"a context that is over", testContext},
}

// testQueries compares every combination with a scan of all rows.
func testQueries(t *testing.T, s store.Store) {
	segs := slices.Concat(owned("a", "h", Run("r-1", 200, 64)), Run("r-2", 50, 64))
	Ingest(t, s, segs)
	o := same(t, s, segs...)
	at := func(i int) time.Time { return start.Add(time.Duration(i) * time.Millisecond) }
	for _, kinds := range [][]audit.Kind{nil, {audit.KindExec}, {audit.KindExec, audit.KindOutput}, {"none"}} {
		for _, span := range [][2]time.Time{{}, {at(20), {}}, {{}, at(100)}, {at(20), at(100)}} {
			for _, after := range []uint64{0, 77, 5000} {
				for _, limit := range []int{0, 1, 10} {
					q := store.Query{Run: "r-1", Kinds: kinds, From: span[0], To: span[1], AfterSeq: after, Limit: limit}
					wantRows(t, Collect(t, s.Records(t.Context(), q)), Collect(t, o.Records(t.Context(), q)))
				}
			}
		}
	}
	for _, q := range []store.Query{{Run: "r-1", Tenant: "a"}, {Run: "r-1", Tenant: "b"}, {Run: "r-2", Tenant: "a"}, {Run: "r-"}, {Run: ""},
		{Run: "r-1", AfterSeq: 1<<64 - 1}, {Run: "r-1", From: time.Unix(-1<<40, 0)}, {Run: "r-1", To: time.Unix(1<<40, 0)}} {
		wantRows(t, Collect(t, s.Records(t.Context(), q)), Collect(t, o.Records(t.Context(), q)))
	}
}

// wantFound compares a search, its order included.
func wantFound(t *testing.T, s store.Store, o *Oracle, q store.Search) {
	t.Helper()
	got := Collect(t, s.Search(t.Context(), q))
	want := Collect(t, o.Search(t.Context(), q))
	if len(got) != len(want) {
		t.Fatalf("%+v: %d rows, want %d", q, len(got), len(want))
	}
	for i, r := range got {
		if !reflect.DeepEqual(r, want[i]) {
			t.Fatalf("%+v: row %d is\n%s, want\n%s", q, i, show(r), show(want[i]))
		}
	}
}

// searchable returns events with searchable values, three of each.
func searchable() []audit.Event {
	hash := fmt.Sprintf("%064x", 0xabc)
	var events []audit.Event
	for i := range 3 {
		for _, e := range []audit.Event{
			{Kind: audit.KindExec, Exec: &audit.Exec{Exe: "/bin/sh", Proc: "p"}},
			{Kind: audit.KindFile, File: &audit.File{Op: audit.FileWrite, Path: "/etc/passwd", SHA256: hash}},
			{Kind: audit.KindFile, File: &audit.File{Op: audit.FileRead, Path: "/bin/sh", SHA256: "ABC"}},
			{Kind: audit.KindFile, File: &audit.File{Op: audit.FileRead, Path: "/raw\xff\x00"}},
			{Kind: audit.KindFlow, Flow: &audit.Flow{State: audit.FlowOpen, DstIP: "192.0.2.7", Name: "API.Example.com."}},
			{Kind: audit.KindFlow, Flow: &audit.Flow{State: audit.FlowDeny, DstIP: "192.0.2.7"}},
			{Kind: audit.KindFlow, Flow: &audit.Flow{State: audit.FlowDeny, DstIP: "2001:DB8::1"}},
			{Kind: audit.KindDNS, DNS: &audit.DNS{Name: "api.example.com", Type: "A"}},
			{Kind: audit.KindHTTP, HTTP: &audit.HTTP{Host: "api.example.com", Path: "/bin/sh", Credential: "token"}},
			{Kind: audit.KindLLM, LLM: &audit.LLM{Host: "api.example.com"}},
			{Kind: audit.KindSecret, Secret: &audit.Secret{Name: "token", Host: "api.example.com"}},
			{Kind: audit.KindFinding, Finding: &audit.Finding{Rule: "secret-in-output", Secret: "token"}},
			{Kind: audit.KindFinding, Finding: &audit.Finding{Rule: "other"}},
			{Kind: audit.KindOutput, Output: &audit.Output{Text: "/bin/sh"}},
		} {
			e.Time = start.Add(time.Duration(len(events)) * 1001 * time.Microsecond)
			e.Observer = audit.Host
			e.Step = fmt.Sprint("s", i)
			events = append(events, e)
		}
	}
	return events
}

// searches query each field alone, two together, within a time, with a limit.
func searches() []store.Search {
	hash := fmt.Sprintf("%064x", 0xabc)
	one := []store.Search{{Path: "/bin/sh"}, {Path: "/etc/passwd"}, {Path: "/bin"}, {Path: "/raw\xff\x00"}, {Path: "/raw\xff"}, {Hash: hash}, {Hash: "ABC"},
		{Hash: "abc"}, {Host: "api.example.com"}, {Host: "Api.Example.COM."}, {Host: "192.0.2.7"}, {Host: "2001:db8::1"}, {Host: "example.com"},
		{Secret: "token"}, {Rule: "secret-in-output"}, {Rule: "other", Secret: "token"}, {Path: "/bin/sh", Hash: "ABC"},
		{Path: "/etc/passwd", Hash: hash}, {Host: "api.example.com", Secret: "token"}, {Text: "/BIN/sh"}, {Text: `"name":"TOKEN"`}, {Text: "p%d"},
		{Text: "api.", Host: "api.example.com"}, {Path: "/bin/sh", Text: "s2"}, {From: start}, {From: start.Add(time.Minute)}}
	all := slices.Clone(one)
	for _, q := range one {
		kinds, kind, late, early, few, tenant, none, behind := q, q, q, q, q, q, q, q
		kinds.Kinds = []audit.Kind{audit.KindFile, audit.KindFinding, audit.KindDNS}
		late.From = start.Add(20 * 1001 * time.Microsecond)
		early.To = start.Add(20 * 1001 * time.Microsecond)
		few.Limit = 2
		tenant.Tenant = "a"
		none.Tenant = store.NoTenant
		kind.Kinds = []audit.Kind{audit.KindFinding}
		behind.Before = &store.Head{Time: start.Add(26 * 1001 * time.Microsecond), Run: "r-1", Seq: 27}
		all = append(all, kinds, kind, late, early, few, tenant, none, behind)
	}
	return all
}

func testSearches(t *testing.T, s store.Store) {
	segs := slices.Concat(owned("a", "h", Segments("r-1", Frames("r-1", searchable()), 9)), owned("b", "h", Segments("r-2", Frames("r-2", searchable()), 50)),
		Segments("r-3", Frames("r-3", searchable()), 50))
	Ingest(t, s, segs)
	o := same(t, s, segs...)
	for _, q := range searches() {
		wantFound(t, s, o, q)
	}
}

// testSearchAll: a search without a condition is an error, and not an empty result.
func testSearchAll(t *testing.T, s store.Store) {
	Ingest(t, s, Run("r-1", 10, 10))
	for _, q := range []store.Search{{}, {Tenant: "a"}, {To: start}, {Kinds: []audit.Kind{audit.KindExec}, Limit: 3}} {
		n, failed := 0, false
		for _, err := range s.Search(t.Context(), q) {
			n++
			failed = failed || err != nil
		}
		if n != 1 || !failed {
			t.Errorf("%+v: %d answers, want one that is an error", q, n)
		}
	}
}

func testEarlyEnd(t *testing.T, s store.Store) {
	segs := Run("r-1", 300, 100)
	Ingest(t, s, segs)
	seq := s.Records(t.Context(), store.Query{Run: "r-1"})
	for range 30 { // a leaked connection would be noticed
		for row, err := range seq {
			if err != nil || row.Seq != 1 {
				t.Fatalf("first row is %d, %v", row.Seq, err)
			}
			break
		}
	}
	if n := len(Collect(t, seq)); n != 300 {
		t.Errorf("%d rows, want 300", n)
	}
}

func testOwnCopies(t *testing.T, s store.Store) {
	segs := Run("r-1", 50, 50)
	Ingest(t, s, segs)
	rows := Collect(t, s.Records(t.Context(), store.Query{Run: "r-1"}))
	for _, r := range rows {
		for i := range r.Body {
			r.Body[i] = 'x'
		}
	}
	WantRecords(t, s, "r-1", Run("r-1", 50, 50))
}

func testContext(t *testing.T, s store.Store) {
	Ingest(t, s, Run("r-1", 10, 10))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Ingest(ctx, Run("r-2", 10, 10)...); err == nil {
		t.Error("ingest worked")
	}
	if _, err := s.Runs(ctx, store.Filter{}); err == nil {
		t.Error("runs worked")
	}
	failed := false
	for _, err := range s.Records(ctx, store.Query{Run: "r-1"}) {
		failed = err != nil
	}
	if !failed {
		t.Error("records worked")
	}
}
