package host_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// logged makes logs of runs of a tenant, of both classes, and an oracle with the same records.
func logged(t *testing.T, tenant string) (*host.Host, *storetest.Oracle) {
	t.Helper()
	dir := t.TempDir()
	if tenant != "" {
		if err := os.WriteFile(filepath.Join(dir, host.ConfigFile), []byte("version: 1\ntenant: "+tenant+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h, err := host.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	o := &storetest.Oracle{}
	for i := range 6 {
		id := host.NewRunID(storetest.Start().Add(time.Duration(i) * time.Second))
		if i%3 == 2 {
			id = store.AccessPrefix + id[2:]
		}
		events := storetest.Events(12 + i)
		for j := range events {
			events[j].Time = events[j].Time.Add(time.Duration(i) * time.Second)
		}
		if i%2 == 0 {
			events[5] = audit.Event{Time: events[5].Time, Observer: audit.Host, Kind: audit.KindFinding, Finding: &audit.Finding{Rule: "x", Detail: "100% <b>"}}
		}
		record(t, h, id, events)
		seg := store.Segment{Tenant: tenant, Run: id, Manifest: []byte("one")}
		for f, err := range h.RunLogs().Frames(id) {
			if err != nil {
				t.Fatal(err)
			}
			seg.Frames = append(seg.Frames, f)
		}
		seg.First, seg.Last = seg.Frames[0].Seq, seg.Frames[len(seg.Frames)-1].Seq
		storetest.Ingest(t, o, []store.Segment{seg})
	}
	return h, o
}

func record(t *testing.T, h *host.Host, id string, events []audit.Event) {
	t.Helper()
	red := redact.New([]byte("0123456789abcdef0123456789abcdef"))
	run, err := h.Begin(t.Context(), host.RunOptions{ID: id, Mode: wal.Strict, Facts: statement.Facts{Tier: "none"}, Redactor: red})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if _, err := run.Record(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if record, stored := run.Close(t.Context(), wal.Sealed); record != nil || stored != nil {
		t.Fatal(record, stored)
	}
}

// TestLogs: the logs return the same as a store with the same records.
func TestLogs(t *testing.T) {
	for _, own := range []string{"", "acme"} {
		h, o := logged(t, own)
		logs := h.Logs()
		all, _ := o.Runs(t.Context(), store.Filter{})
		for _, tenant := range []string{"", store.NoTenant, "acme", "other"} {
			for _, class := range []store.Class{"", store.Sandboxes, store.Accesses, "?"} {
				for _, findings := range []bool{false, true} {
					f := store.Filter{Tenant: tenant, Class: class, Findings: findings, From: all[4].Start, To: all[0].Start}
					wantPages(t, logs, o, f)
				}
			}
			for _, r := range all {
				wantSame(t, logs, o, tenant, r.ID)
			}
			for _, name := range []string{store.Last, "", "r-", "a-", "a-0", "r", all[3].ID[:28], "../runs/" + all[0].ID} {
				wantSame(t, logs, o, tenant, name)
			}
			for _, q := range []store.Search{{From: storetest.Start()}, {Text: "GIT"}, {Text: "%"}, {Path: "/usr/bin/git"}, {Rule: "x", Kinds: []audit.Kind{audit.KindFinding}},
				{Text: `"run":"` + all[2].ID}, {Text: "git", From: all[3].Start, To: all[1].Start}, {Host: "none.example"}} {
				q.Tenant = tenant
				wantSearched(t, logs, o, q)
			}
		}
	}
}

func wantPages(t *testing.T, r host.Reader, o *storetest.Oracle, f store.Filter) {
	t.Helper()
	want, _ := o.Runs(t.Context(), f)
	var got []store.Run
	for f.Limit = 2; ; {
		page, err := r.Runs(t.Context(), f)
		if err != nil || len(page) > f.Limit {
			t.Fatalf("%+v: %d runs, %v", f, len(page), err)
		}
		if got = append(got, page...); len(page) < f.Limit {
			break
		}
		f.Before = &store.Run{ID: page[1].ID, Start: page[1].Start}
	}
	if !slices.EqualFunc(got, want, func(a, b store.Run) bool { return a.Differs(b) == "" && a.Tenant == b.Tenant }) {
		t.Fatalf("%+v: got\n%+v, want\n%+v", f, got, want)
	}
}

func wantSame(t *testing.T, r host.Reader, o *storetest.Oracle, tenant, name string) {
	t.Helper()
	want, wantErr := o.Run(t.Context(), tenant, name)
	got, err := r.Run(t.Context(), tenant, name)
	if got.ID != want.ID || errors.Is(err, store.ErrNotFound) != errors.Is(wantErr, store.ErrNotFound) || errors.Is(err, store.ErrAmbiguous) != errors.Is(wantErr, store.ErrAmbiguous) {
		t.Fatalf("tenant %q, run %q: %q, %v, want %q, %v", tenant, name, got.ID, err, want.ID, wantErr)
	}
	q := store.Query{Tenant: tenant, Run: name, AfterSeq: 3, Limit: 5}
	rows := storetest.Collect(t, r.Records(t.Context(), q))
	if wanted := storetest.Collect(t, o.Records(t.Context(), q)); !slices.EqualFunc(rows, wanted, sameRow) {
		t.Fatalf("tenant %q, run %q: %d rows, want %d", tenant, name, len(rows), len(wanted))
	}
}

func sameRow(a, b store.Row) bool {
	return a.SameColumns(b.Head) && a.Tenant == b.Tenant && string(a.Body) == string(b.Body) && a.Salt == b.Salt
}

func wantSearched(t *testing.T, r host.Reader, o *storetest.Oracle, q store.Search) {
	t.Helper()
	want := storetest.Collect(t, o.Search(t.Context(), q))
	var got []store.Row
	for q.Limit = 7; ; {
		page := storetest.Collect(t, r.Search(t.Context(), q))
		if got = append(got, page...); len(page) < q.Limit {
			break
		}
		q.Before = &page[6].Head
	}
	if !slices.EqualFunc(got, want, sameRow) {
		t.Fatalf("%+v: %d rows, want %d, or in another order", q, len(got), len(want))
	}
}

// TestLogsSearchCut: an interrupted search returns its position, and a search without criteria is refused.
func TestLogsSearchCut(t *testing.T) {
	h, _ := logged(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var last error
	for row, err := range h.Logs().Search(ctx, store.Search{Text: "git"}) {
		if last = err; err == nil {
			t.Errorf("a row: %v", row.Head)
		}
	}
	var cut *store.CutError
	if !errors.As(last, &cut) || !errors.Is(last, context.Canceled) {
		t.Fatalf("got %v, want a CutError", last)
	}
	rows := storetest.Collect(t, h.Logs().Search(t.Context(), store.Search{Text: "git", Before: &cut.At}))
	if all := storetest.Collect(t, h.Logs().Search(t.Context(), store.Search{Text: "git"})); len(rows) == 0 || len(rows) != len(all) {
		t.Errorf("%d rows after the cut, want all %d", len(rows), len(all))
	}
	for _, err := range h.Logs().Search(t.Context(), store.Search{Limit: 5}) {
		if !errors.Is(err, store.ErrSearchAll) {
			t.Errorf("a search without criteria: %v", err)
		}
	}
}

// TestLogsNames: no name of a run leads to a path outside the directory of runs.
func TestLogsNames(t *testing.T) {
	h, _ := logged(t, "")
	for _, name := range []string{"../runs/r-x", "r-x/../../runs", "r-\x00", "..", "r-/", "/etc"} {
		if rows := storetest.Collect(t, h.Logs().Records(t.Context(), store.Query{Run: name})); len(rows) > 0 {
			t.Errorf("run %q has %d records", name, len(rows))
		}
		if h.RunLogs().Live(name) {
			t.Errorf("run %q is live", name)
		}
	}
}
