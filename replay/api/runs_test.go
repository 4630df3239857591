package api_test

import (
	"fmt"
	"net/http"
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

type runPage struct {
	Runs []api.RunItem
	Next string
}

// madeUp is a run whose records are n and begin later than those of the one before.
func madeUp(id string, n int, after time.Duration, extra ...audit.Event) []store.Segment {
	events := slices.Clone(storetest.Events(n))
	events = slices.Insert(events, n-2, extra...)
	for i := range events {
		events[i].Time = storetest.Start().Add(after + time.Duration(i)*time.Millisecond)
	}
	return storetest.Segments(id, storetest.Frames(id, events), 100)
}

// ids are the names on a page.
func (p runPage) ids() []string {
	ids := []string{}
	for _, r := range p.Runs {
		ids = append(ids, r.ID)
	}
	return ids
}

// TestRuns pages through runs, newest first, and filters them.
func TestRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.token("", access.Viewer)
	var all []string
	for i := range 7 {
		id := fmt.Sprintf("r-%d", i)
		var extra []audit.Event
		if i == 3 {
			extra = []audit.Event{{Observer: audit.Host, Kind: audit.KindFinding, Finding: &audit.Finding{Rule: "secret-in-output", Detail: "x"}}}
		}
		w.ingest("", madeUp(id, 8, time.Duration(i)*time.Hour, extra...)...)
		all = append([]string{id}, all...)
	}
	var got []string
	for next := ""; ; {
		var page runPage
		w.get("/runs?limit=3&cursor="+next, token).json(t, &page)
		got = append(got, page.ids()...)
		if next = page.Next; next == "" {
			break
		}
		if len(page.Runs) != 3 {
			t.Errorf("a page of 3 has %d", len(page.Runs))
		}
	}
	if !slices.Equal(got, all) {
		t.Errorf("pages have %v, want %v", got, all)
	}
	at := func(h int) string { return storetest.Start().Add(time.Duration(h) * time.Hour).Format(time.RFC3339) }
	for query, want := range map[string][]string{
		"":                                {"r-6", "r-5", "r-4", "r-3", "r-2", "r-1", "r-0"},
		"findings=true":                   {"r-3"},
		"findings=1&status=sealed":        {"r-3"},
		"status=running":                  {},
		"project=shop&limit=1":            {"r-6"},
		"project=SHOP":                    {},
		"from=" + at(2) + "&to=" + at(4):  {"r-3", "r-2"},
		"to=" + at(1):                     {"r-0"},
		"from=" + at(6) + "&tenant=":      {"r-6"},
		"project=" + url.QueryEscape("%"): {},
	} {
		var page runPage
		w.get("/runs?"+query, token).json(t, &page)
		if !slices.Equal(page.ids(), want) {
			t.Errorf("%s: %v, want %v", query, page.ids(), want)
		}
	}
	if !got0(w, t, token).Live && got0(w, t, token).Class == store.Sandboxes {
		return
	}
	t.Error("a sealed run is live, or of another class")
}

func got0(w *world, t *testing.T, token string) api.RunItem {
	var page runPage
	w.get("/runs?limit=1", token).json(t, &page)
	return page.Runs[0]
}

// TestBadRequests: whatever does not make sense is refused with what to do instead.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ingest("", madeUp("r-1", 20, 0)...)
	token := w.token("", access.Admin)
	for _, path := range []string{
		"/runs?limit=0", "/runs?limit=-1", "/runs?limit=5001", "/runs?limit=1e3", "/runs?limit=99999999999999999999", "/runs?limit=1&limit=2",
		"/runs?nothing=1", "/runs?status=done", "/runs?findings=yes", "/runs?from=yesterday", "/runs?from=0001-01-01T00:00:00Z", "/runs?to=9999-01-01T00:00:00Z",
		"/runs?from=2026-11-03T00:00:00Z&to=2026-11-02T00:00:00Z", "/runs?from=2026-11-03T00:00:00Z&to=2026-11-03T00:00:00Z",
		"/runs?cursor=x", "/runs?cursor=" + strings.Repeat("A", 100), "/runs?cursor=%00", "/runs?project=" + strings.Repeat("a", 5000), "/runs?a=%zz", "/runs?a;b",
		"/runs/r-1/records?kind=nothing", "/runs/r-1/records?kind=exec,,file", "/runs/r-1/records?observer=me", "/runs/r-1/records?verdict=maybe",
		"/runs/r-1/records?order=up", "/runs/r-1/records?from=%2B1s&to=%2B0s", "/runs/r-1/records?from=-1s", "/runs/r-1/records?to=2020-01-01T00:00:00Z", "/runs/r-1/records?after=-1",
		"/runs/r-1/records?after=9223372036854775808",
		"/runs/r-1/state?at=now", "/runs/r-1/state?at=%2B99999999h", "/runs/r-1/state?lines=1001", "/runs/r-1/lanes?columns=0", "/runs/r-1/lanes?columns=100000",
		"/runs/r-1/lanes?from=%2B2s&to=%2B1s", "/runs/r-1/lanes?from=%2B90h", "/runs/r-1/changes?from=%2B2s&to=%2B1s",
		"/runs/r-1/output?after=x", "/runs/r-1/output?limit=0", "/runs/r-1/live?after=x",
		"/runs/r-1/bundle?from_seq=5&to_seq=4", "/runs/r-1/bundle?from_seq=x", "/runs/r-1/export?format=exe", "/runs/r-1/export?format=../../etc",
		"/compare", "/compare?a=r-1", "/search", "/search?hash=12", "/search?hash=" + strings.Repeat("g", 64), "/search?kind=access&q=x", "/search?argv=x&q=y",
		"/search?argv=x&kind=file", "/search?kind=exec", "/findings?from=x", "/access?to=x", "/access?limit=0",
	} {
		if strings.HasSuffix(path, "99999999h") {
			w.get(path, token).problem(t, http.StatusBadRequest)
			continue
		}
		if p := w.get(path, token).problem(t, http.StatusBadRequest); p.Hint == "" && !strings.Contains(path, "aaaa") {
			t.Errorf("%s: nothing says what to do: %+v", path, p)
		}
	}
}

// TestOneNotFound: whatever is not the asker's to see gets the same answer, to the byte.
func TestOneNotFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ingest("", madeUp("r-own", 8, 0)...)
	w.ingest("acme", madeUp("r-acme", 8, 0)...)
	token := w.token("", access.Admin)
	w.get("/runs", token) // an access log begins, and is a run of this host
	logs := func() []store.Run {
		st, err := w.home.Store(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		runs, err := st.Runs(t.Context(), store.Filter{Class: store.Accesses})
		if err != nil {
			t.Fatal(err)
		}
		return runs
	}
	for range 100 {
		if len(logs()) > 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	names := []string{"r-nobody", "r-acme", "r-", "r-ow", "last", "none", logs()[0].ID, "%2e%2e", "r-own%00", "r-own%20", "%ff%fe", strings.Repeat("r", 129),
		"r-own%2F..", "%3Cscript%3E", "R-OWN", "r-own%0d%0aX:1"}
	for _, suffix := range []string{"", "/lineage", "/records", "/records/1", "/records/1/proof", "/state", "/changes", "/lanes", "/processes", "/connections", "/files", "/calls",
		"/credentials", "/findings", "/output", "/live", "/verify", "/bundle", "/export"} {
		want := w.get("/runs/r-nobody"+suffix, token).problem(t, http.StatusNotFound)
		want.Instance = ""
		for _, name := range names {
			got := w.get("/runs/"+name+suffix, token).problem(t, http.StatusNotFound)
			got.Instance = ""
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s%s: %+v, want %+v", name, suffix, got, want)
			}
		}
	}
	for _, name := range []string{"r-acme", "r-ow", "last", logs()[0].ID} {
		w.get("/compare?a=r-own&b="+name, token).problem(t, http.StatusNotFound)
		w.do("POST", "/exports", token, `{"runs":["r-own","`+name+`"]}`).problem(t, http.StatusNotFound)
		w.do("POST", "/runs/"+name+"/verify", token, "").problem(t, http.StatusNotFound)
	}
	for _, seq := range []string{"9", "0", "-1", "x", "18446744073709551615", "1e1", "%2B1", "9223372036854775807"} {
		w.get("/runs/r-own/records/"+seq, token).problem(t, http.StatusNotFound)
	}
}

// TestTenants: no one sees a run, a record or a count of another tenant's.
func TestTenants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	finding := audit.Event{Observer: audit.Host, Kind: audit.KindFinding, Finding: &audit.Finding{Rule: "secret-in-output", Detail: "x", Secret: "key"}}
	claimed := finding // nothing that a guest says is one
	claimed.Observer = audit.Guest
	for i, tenant := range []string{"", "acme", "beta"} {
		w.ingest(tenant, madeUp("r-of-"+tenant, 20, time.Duration(i)*time.Hour, finding, claimed)...)
	}
	for _, tenant := range []string{"", "acme", "beta"} {
		token := w.token(tenant, access.Admin)
		own := []string{"r-of-" + tenant}
		var page runPage
		w.get("/runs", token).json(t, &page)
		if !slices.Equal(page.ids(), own) {
			t.Errorf("%q sees %v", tenant, page.ids())
		}
		for _, query := range []string{"q=git", "rule=secret-in-output", "secret=key", "argv=git%20commit", "path=/usr/bin/git", "from=2026-01-01T00:00:00Z"} {
			var found struct{ Hits []struct{ Run string } }
			w.get("/search?"+query, token).json(t, &found)
			if len(found.Hits) == 0 {
				t.Errorf("%q finds nothing with %s", tenant, query)
			}
			for _, hit := range found.Hits {
				if hit.Run != own[0] {
					t.Errorf("%q finds %s with %s", tenant, hit.Run, query)
				}
			}
		}
		var found struct{ Findings []api.FoundFinding }
		w.get("/findings", token).json(t, &found)
		if len(found.Findings) != 1 || found.Findings[0].Run != own[0] {
			t.Errorf("%q has the findings %+v", tenant, found.Findings)
		}
		for _, other := range []string{"", "acme", "beta"} {
			if other == tenant {
				continue
			}
			w.get("/runs/r-of-"+other, token).problem(t, http.StatusNotFound)
			w.get("/runs?tenant="+other, token).problem(t, http.StatusForbidden)
		}
	}
}

// TestCursors: a cursor is good for the request that it came from, and for no other.
func TestCursors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ingest("", madeUp("r-1", 40, 0)...)
	w.ingest("", madeUp("r-2", 40, time.Hour)...)
	w.ingest("acme", madeUp("r-3", 40, 0)...)
	w.ingest("acme", madeUp("r-4", 40, time.Hour)...)
	token, other := w.token("", access.Viewer), w.token("acme", access.Viewer)
	next := func(path, token string) string {
		t.Helper()
		var page struct{ Next string }
		w.get(path, token).json(t, &page)
		if page.Next == "" {
			t.Fatalf("%s has no next page", path)
		}
		return page.Next
	}
	records := next("/runs/r-1/records?limit=5&kind=exec", token)
	runs := next("/runs?limit=1", token)
	search := next("/search?q=git&limit=2", token)
	w.get("/runs/r-1/records?limit=7&kind=exec&cursor="+records, token).json(t, &struct{}{}) // another limit is no other question
	for path, token := range map[string]string{
		"/runs/r-1/records?limit=5&cursor=" + records:                        token,
		"/runs/r-1/records?limit=5&kind=file&cursor=" + records:              token,
		"/runs/r-1/records?limit=5&kind=exec&order=desc&cursor=" + records:   token,
		"/runs/r-2/records?limit=5&kind=exec&cursor=" + records:              token,
		"/runs/r-3/records?limit=5&kind=exec&cursor=" + records:              other,
		"/runs?limit=1&cursor=" + records:                                    token,
		"/runs?limit=1&status=sealed&cursor=" + runs:                         token,
		"/search?q=gitt&limit=2&cursor=" + search:                            token,
		"/findings?cursor=" + search:                                         token,
		"/runs?cursor=" + runs:                                               other,
		"/runs?limit=1&cursor=" + runs[:len(runs)-1]:                         token,
		"/runs?limit=1&cursor=" + runs + "A":                                 token,
		"/runs?limit=1&cursor=" + strings.ToLower(runs):                      token,
		"/runs?limit=1&cursor=" + url.QueryEscape(runs+"="):                  token,
		"/runs/r-1/records?limit=5&kind=exec&cursor=" + flip(t, records, 3):  token,
		"/runs/r-1/records?limit=5&kind=exec&cursor=" + flip(t, records, 25): token,
	} {
		w.get(path, token).problem(t, http.StatusBadRequest)
	}
}

// flip changes a character.
func flip(t *testing.T, s string, at int) string {
	t.Helper()
	b := []byte(s)
	if b[at] == 'A' {
		b[at] = 'B'
	} else {
		b[at] = 'A'
	}
	return string(b)
}

// madeUpEvents are those of a whole run.
func madeUpEvents(n int) []audit.Event { return storetest.Events(n) }
