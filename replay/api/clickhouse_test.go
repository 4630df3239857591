package api_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/api"
	"github.com/custody-project/custody/store/clickhouse"
	"github.com/custody-project/custody/store/clickhouse/clickhousetest"
)

// TestClickHouse asks the same server over SQLite and over the ClickHouse engine, with the same records in both:
// the answers are the same, to the byte but for cursors.
func TestClickHouse(t *testing.T) {
	t.Parallel()
	dsn := clickhousetest.Start(t).Fresh()
	open := func(ctx context.Context) (*clickhouse.Store, error) {
		return clickhouse.Open(ctx, dsn, clickhouse.Options{})
	}
	lite := newWorld(t)
	click := newWorld(t, func(w *world, o *api.Options) {
		o.Verify = nil
		o.Open = func(ctx context.Context) (api.Source, error) { return open(ctx) }
	})
	st, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for i, tenant := range []string{"", "", "acme", ""} {
		segs := madeUp(fmt.Sprintf("r-%d", i), 120, time.Duration(i)*time.Hour)
		for j := range segs {
			segs[j].Tenant = tenant
		}
		lite.ingest(tenant, segs...)
		if err := st.Ingest(t.Context(), segs...); err != nil {
			t.Fatal(err)
		}
	}
	one, other := lite.token("", access.Viewer), click.token("", access.Viewer)
	for _, path := range []string{"/runs/r-1/state?at=%2B50ms", "/runs/r-1/lanes", "/runs/r-1/files", "/runs/r-1/processes", "/runs/r-1/records/7",
		"/runs/r-1/records?limit=5000&order=desc", "/search?hash=" + fileHash(lite, one), "/search?q=CHANGE%208"} {
		a, b := lite.get(path, one), click.get(path, other)
		if string(a.body) != string(b.body) || a.StatusCode != 200 {
			t.Errorf("%s:\n%.500s\nand\n%.500s", path, a.body, b.body)
		}
	}
	for _, path := range []string{"/runs/r-1/records?limit=7&kind=exec", "/runs/r-1/records?limit=9&order=desc&q=change"} {
		if a, b := lite.pages(t, path, one), click.pages(t, path, other); !slices.Equal(a, b) || len(a) == 0 {
			t.Errorf("%s: %d and %d records", path, len(a), len(b))
		}
	}
	if a, b := lite.hits(t, "/search?limit=11&path=/usr/bin/git", one), click.hits(t, "/search?limit=11&path=/usr/bin/git", other); !slices.Equal(a, b) || len(a) == 0 {
		t.Errorf("%v and %v", a, b)
	}
	var page runPage
	click.get("/runs", other).json(t, &page)
	if !slices.Equal(page.ids(), []string{"r-3", "r-1", "r-0"}) {
		t.Errorf("%v", page.ids())
	}
	click.get("/runs/r-2", other).problem(t, 404)
	var state replay.State
	click.get("/runs/r-0/state", other).json(t, &state)
	if state.Phase != "ended" || state.Events != 120 {
		t.Errorf("%+v", state)
	}
	if err := st.Erase(t.Context(), "", "r-0", 5); err != nil {
		t.Fatal(err)
	}
	var records recordPage
	click.get("/runs/r-0/records?after=4&limit=1", other).json(t, &records)
	if len(records.Records) != 1 || records.Records[0].Erased == "" {
		t.Errorf("%+v", records)
	}
}

// fileHash is that of a file which a run wrote.
func fileHash(w *world, token string) string {
	w.t.Helper()
	var files struct{ Items []replay.FileHistory }
	w.get("/runs/r-1/files", token).json(w.t, &files)
	return files.Items[0].SHA256
}
