package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/api"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

type searchPage struct {
	Hits []struct {
		Run    string
		Seq    uint64
		Record json.RawMessage
	}
	Next    string
	Partial bool
}

// hits are the places of all records that a search finds, over all pages.
func (w *world) hits(t *testing.T, path, token string) (places []string) {
	t.Helper()
	for next, n := "", 0; n < 200; n++ {
		var page searchPage
		w.get(path+"&cursor="+next, token).json(t, &page)
		for _, h := range page.Hits {
			places = append(places, fmt.Sprintf("%s:%d", h.Run, h.Seq))
		}
		if next = page.Next; next == "" {
			return places
		}
	}
	t.Fatalf("%s has no end", path)
	return nil
}

// TestSearch finds what is there by each question, newest first, over pages.
func TestSearch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exec := func(argv ...audit.Text) audit.Event {
		return audit.Event{Observer: audit.Guest, Kind: audit.KindExec, Step: "agent", Exec: &audit.Exec{Proc: "p", Exe: "/bin/odd", Argv: argv, Cwd: "/"}}
	}
	odd := []audit.Event{
		exec("curl", "-H", `X-"quoted": <a & b>`), exec("sh", "-c", "echo \u00e9t\u00e9; rm -rf /"), exec("\xff\xfe", "binary"), exec("<<>>"),
		{Observer: audit.Host, Kind: audit.KindFlow, Flow: &audit.Flow{State: audit.FlowDeny, Proto: "tcp", Name: "Evil.Example.", DstPort: 443, Verdict: audit.Deny}},
		{Observer: audit.Host, Kind: audit.KindFinding, Finding: &audit.Finding{Rule: "secret-in-output", Detail: "<img src=x onerror=alert(1)>", Secret: "git"}},
	}
	w.ingest("", madeUp("r-1", 60, 0)...)
	w.ingest("", madeUp("r-2", 20, time.Hour, odd...)...)
	token := w.token("", access.Viewer)
	at := func(i int) string { return fmt.Sprintf("r-2:%d", 19+i) } // the odd ones stand before the last two
	for query, want := range map[string][]string{
		"argv=" + url.QueryEscape(`x-"quoted": <A & b>`): {at(0)},
		"argv=" + url.QueryEscape(`curl -h`):             {at(0)},
		"argv=" + url.QueryEscape("\u00e9t\u00e9; RM"):   {at(1)},
		"argv=" + url.QueryEscape("<<>>"):                {at(3)},
		"argv=binary":                                    {at(2)},
		"argv=nobody":                                    {},
		"q=" + url.QueryEscape(`<a & b>`):                {at(0)},
		"q=" + url.QueryEscape(`onerror=al`):             {at(5)},
		"q=RM%20-RF":                                     {at(1)},
		"host=evil.example":                              {at(4)},
		"host=EVIL.example.":                             {at(4)},
		"path=/bin/odd&kind=exec":                        {at(3), at(2), at(1), at(0)},
		"secret=git":                                     {at(5)},
		"rule=secret-in-output&q=img":                    {at(5)},
		"rule=nothing":                                   {},
	} {
		for _, limit := range []int{1, 200} {
			got := w.hits(t, fmt.Sprintf("/search?limit=%d&%s", limit, query), token)
			if !slices.Equal(got, want) && len(got)+len(want) > 0 {
				t.Errorf("%s by %d: %v, want %v", query, limit, got, want)
			}
		}
	}
	var file struct{ File struct{ SHA256 string } }
	var page searchPage
	w.get("/search?path=/workspace/src/file5.go", token).json(t, &page)
	if len(page.Hits) != 2 || json.Unmarshal(page.Hits[0].Record, &file) != nil {
		t.Fatalf("%+v", page)
	}
	if got := w.hits(t, "/search?hash="+strings.ToUpper(file.File.SHA256), token); len(got) != 2 {
		t.Errorf("by hash: %v", got)
	}
	all := w.hits(t, "/search?limit=7&from=2026-01-01T00:00:00Z", token)
	if len(all) != 86 || !strings.HasPrefix(all[0], "r-2:") || all[85] != "r-1:1" {
		t.Errorf("%d records: %v", len(all), all)
	}
	var found struct{ Findings []api.FoundFinding }
	w.get("/findings?rule=secret-in-output", token).json(t, &found)
	if len(found.Findings) != 1 || found.Findings[0].Secret != "git" {
		t.Errorf("%+v", found)
	}
}

// endless is a store whose searches take longer than anyone waits.
type endless struct{ api.Source }

func (e endless) Search(ctx context.Context, q store.Search) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		for row, err := range e.Source.Search(ctx, q) {
			if !yield(row, err) || err != nil {
				return
			}
			if row.Seq == 15 {
				<-ctx.Done()
				yield(store.Row{}, &store.CutError{At: row.Head, Err: ctx.Err()})
				return
			}
		}
	}
}

// TestPartial: a search that takes too long answers with what it found, reports that it is partial, and can be continued.
func TestPartial(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *world, o *api.Options) {
		open := o.Open
		o.Open = func(ctx context.Context) (api.Source, error) {
			src, err := open(ctx)
			return endless{src}, err
		}
	})
	w.ingest("", storetest.Run("r-1", 20, 20)...)
	token := w.token("", access.Viewer)
	var page searchPage
	w.get("/search?from=2026-01-01T00:00:00Z", token).json(t, &page)
	if !page.Partial || page.Next == "" || len(page.Hits) != 6 {
		t.Fatalf("%+v", page)
	}
	w.get("/search?from=2026-01-01T00:00:00Z&cursor="+page.Next, token).json(t, &page)
	if page.Partial || len(page.Hits) != 14 {
		t.Errorf("the rest: %d hits, partial %v", len(page.Hits), page.Partial)
	}
}

// TestReports: a report is of the asker's runs, which were checked before, as JSON and as a page that may do nothing.
func TestReports(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.whole("r-1", 40)
	w.ingest("acme", madeUp("r-acme", 40, 0)...)
	token := w.token("", access.Auditor)
	var made struct {
		Schema  string
		Sources []struct {
			Run          string
			Verification struct{ State string }
		}
	}
	w.get("/reports?framework=soc2&run=r-1", token).json(t, &made)
	if made.Schema == "" || len(made.Sources) != 1 || made.Sources[0].Run != "r-1" || made.Sources[0].Verification.State != api.Holds {
		t.Errorf("%+v", made)
	}
	w.get("/reports?framework=soc2&from=2026-11-01T00:00:00Z&to=2026-11-30T00:00:00Z", token).json(t, &made)
	if len(made.Sources) != 1 {
		t.Errorf("%+v", made)
	}
	page := w.get("/reports?framework=soc2&run=r-1&format=html", token)
	if got := page.Header.Get("Content-Security-Policy"); page.StatusCode != 200 || !strings.Contains(got, "default-src 'none'") || !strings.Contains(got, "sandbox") {
		t.Errorf("%s %s", page.Status, got)
	}
	for path, status := range map[string]int{
		"/reports?run=r-1": 400, "/reports?framework=soc3&run=r-1": 400, "/reports?framework=soc2": 400, "/reports?framework=soc2&run=r-1&from=2026-11-01T00:00:00Z": 400,
		"/reports?framework=soc2&run=r-1,r-acme": 404, "/reports?framework=soc2&run=,": 404, "/reports?framework=soc2&format=exe&run=r-1": 400,
		"/reports?framework=soc2&from=2031-01-01T00:00:00Z": 404,
	} {
		w.get(path, token).problem(t, status)
	}
}
