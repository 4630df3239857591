package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/api"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

type recordPage struct {
	Records []struct {
		Seq                uint64
		Record             json.RawMessage
		Erased, Unreadable string
	}
	Next  string
	Total *uint64
}

// rows are what the store has of a run.
func (w *world) rows(run string) []store.Row {
	w.t.Helper()
	st, err := w.home.Store(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	defer st.Close()
	return storetest.Collect(w.t, st.Records(w.t.Context(), store.Query{Run: run}))
}

// TestRecords: the pages of any filter, put together, are what Match selects of all rows, byte for byte, both ways.
func TestRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.whole("r-1", 500)
	token := w.token("", access.Viewer)
	rows := w.rows("r-1")
	at := func(ms int) time.Time { return storetest.Start().Add(time.Duration(ms) * time.Millisecond) }
	for query, f := range map[string]replay.Filter{
		"":                          {},
		"kind=exec":                 {Kinds: []audit.Kind{audit.KindExec}},
		"kind=exec,file,run":        {Kinds: []audit.Kind{audit.KindExec, audit.KindFile, audit.KindRun}},
		"observer=host":             {Observer: audit.Host},
		"step=agent&kind=output":    {Steps: []string{"agent"}, Kinds: []audit.Kind{audit.KindOutput}},
		"step=nobody":               {Steps: []string{"nobody"}},
		"verdict=deny":              {Verdict: audit.Deny},
		"q=CHANGE+4":                {Text: "CHANGE 4"},
		"proc=boot-s1-103-3":        {Proc: "boot-s1-103-3"},
		"from=%2B100ms":             {From: at(100)},
		"to=%2B100ms":               {To: at(101)},
		"from=%2B100ms&to=%2B200ms": {From: at(100), To: at(201)},
		"from=" + at(50).Format("15:04:05.000") + "&kind=file&q=go": {From: at(50), Kinds: []audit.Kind{audit.KindFile}, Text: "go"},
	} {
		var want []string
		for _, row := range rows {
			if replay.Match(f, row) {
				want = append(want, string(row.Body))
			}
		}
		for _, limit := range []int{1, 7, 200, 5000} {
			if limit == 1 && len(want) > 40 {
				continue
			}
			for _, order := range []string{"asc", "desc"} {
				got := w.pages(t, fmt.Sprintf("/runs/r-1/records?limit=%d&order=%s&%s", limit, order, query), token)
				if order == "desc" {
					slices.Reverse(got)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s, %s by %d: %d records, want %d", query, order, limit, len(got), len(want))
				}
			}
		}
	}
	var page recordPage
	w.get("/runs/r-1/records?after=490", token).json(t, &page)
	if len(page.Records) != 10 || page.Records[0].Seq != 491 || page.Total == nil || *page.Total != 500 {
		t.Errorf("behind 490: %d records, total %v", len(page.Records), page.Total)
	}
}

// pages returns the bodies on all pages.
func (w *world) pages(t *testing.T, path, token string) (all []string) {
	t.Helper()
	for next, n := "", 0; n < 1000; n++ {
		var page recordPage
		w.get(path+"&cursor="+next, token).json(t, &page)
		for _, r := range page.Records {
			all = append(all, string(r.Record))
		}
		if next = page.Next; next == "" {
			return all
		}
	}
	t.Fatalf("%s has no end", path)
	return nil
}

// TestExactBytes: bodies stand in every answer as they were recorded, whatever is in them, and what is no JSON harms nothing.
func TestExactBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bodies := []string{
		`{"v":1,"run":"r-x","seq":1,"time":"2026-11-03T12:00:00Z","observer":"host","kind":"run","lifecycle":{"phase":"start","project":"p"}}`,
		`{"v":1,"run":"r-x","seq":2,"time":"2026-11-03T12:00:00.5Z","observer":"guest","kind":"output",  "output":{"stream":"stdout","offset":0,"text":"<script>alert(1)</script> \u003cb\u003e & \u2028 \u001b[2J"}}`,
		`{"v":1.0e0,"run":"r-x","seq":3,"time":"2026-11-03T12:00:01Z","observer":"guest","kind":"later","later":{"n":123456789012345678901234567890,"n":-0.0}}`,
		`{"v":1,"run":"r-x","seq":4,"time":"2026-11-03T12:00:02Z","observer":"guest","kind":"exec","exec":{"proc":"p","pid":1,"ppid":0,"exe":{"base64":"/w=="},"argv":["` + "\u202e\u00e9" + `",{"base64":"/w=="}],"cwd":"/","uid":0}}`,
		"{\"v\":1,\"run\":\"r-x\",\"seq\":5,\"time\":\"2026-11-03T12:00:03Z\",\"observer\":\"guest\",\n\"kind\":\"exit\"}",
	}
	var frames []store.Frame
	for i, b := range bodies {
		frames = append(frames, store.Frame{Seq: uint64(i + 1), Body: []byte(b)})
	}
	w.ingest("", storetest.Segments("r-x", frames, 10)...)
	token := w.token("", access.Auditor)
	all := w.get("/runs/r-x/records", token)
	hits := w.get("/search?from=2026-11-03T11:00:00Z", token)
	for i, b := range bodies[:4] {
		one := w.get(fmt.Sprintf("/runs/r-x/records/%d", i+1), token)
		for _, r := range []reply{all, one, hits} {
			if !bytes.Contains(r.body, []byte(`"record":`+b)) {
				t.Errorf("record %d is not in %s as it was recorded:\n%s", i+1, r.Request.URL, r.body)
			}
		}
	}
	var page recordPage
	all.json(t, &page)
	if len(page.Records) != 5 || page.Records[4].Unreadable == "" || page.Records[4].Record != nil {
		t.Errorf("a record with a newline: %+v", page.Records[4])
	}
	lines := w.get("/runs/r-x/export", token)
	if got, want := string(lines.body), strings.Join(bodies, "\n")+"\n"; got != want {
		t.Errorf("exported:\n%s\nwant\n%s", got, want)
	}
}

// TestErased: of a record that was erased, only its place and its leaf are shown.
func TestErased(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ingest("", madeUp("r-1", 20, 0)...)
	leaf := w.rows("r-1")[4].Frame().Leaf()
	st, err := w.home.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Erase(t.Context(), "", "r-1", 5); err != nil {
		t.Fatal(err)
	}
	st.Close()
	token := w.token("", access.Auditor)
	want := fmt.Sprintf("%x", leaf)
	var page recordPage
	w.get("/runs/r-1/records", token).json(t, &page)
	if r := page.Records[4]; r.Seq != 5 || r.Erased != want || r.Record != nil {
		t.Errorf("%+v, want the leaf %s", r, want)
	}
	var one struct{ Erased string }
	w.get("/runs/r-1/records/5", token).json(t, &one)
	if one.Erased != want {
		t.Errorf("%+v", one)
	}
}

// TestAnswers: what the model says is what the API serves; the state is that of the slow oracle.
func TestAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.whole("r-1", 200)
	token := w.token("", access.Viewer)
	rows := w.rows("r-1")
	var page runPage
	w.get("/runs", token).json(t, &page)
	run := page.Runs[0].Run
	run.Start, run.FirstTime = run.Start.UTC(), run.Start.UTC()
	all := func(yield func(store.Row, error) bool) {
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
	}
	for _, at := range []string{"+0s", "+1ms", "+57ms", "+150ms", "+10s", "12:00:00.1", "2026-11-03T12:00:00.123456789Z"} {
		instant, err := replay.ParseInstant(at, run, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		want, err := replay.StateAt(run, all, instant, 7)
		if err != nil {
			t.Fatal(err)
		}
		same(t, w.get("/runs/r-1/state?lines=7&at="+url.QueryEscape(at), token), want)
	}
	story, err := replay.Read(run, all)
	if err != nil {
		t.Fatal(err)
	}
	type items struct {
		Items any `json:"items"`
	}
	same(t, w.get("/runs/r-1/processes", token), items{story.Processes().All()})
	same(t, w.get("/runs/r-1/connections", token), items{story.Connections().All()})
	same(t, w.get("/runs/r-1/files", token), items{story.Files().All()})
	same(t, w.get("/runs/r-1/calls", token), items{story.Calls().All()})
	same(t, w.get("/runs/r-1/credentials", token), items{story.Credentials().All()})
	same(t, w.get("/runs/r-1/findings", token), items{story.Findings().All()})
	same(t, w.get("/runs/r-1/lanes", token), story.Lanes(time.Time{}, time.Time{}, 1000))
	same(t, w.get("/runs/r-1/lanes?from=%2B10ms&to=%2B20ms&columns=5", token), story.Lanes(run.Start.Add(10*time.Millisecond), run.Start.Add(21*time.Millisecond), 5))
	same(t, w.get("/runs/r-1/changes", token), story.Changes(run.Began().Add(-1), *run.End))
	var detail api.RunDetail
	w.get("/runs/r-1", token).json(t, &detail)
	if detail.Facts.Project != "shop" || len(detail.Steps) != 1 || detail.Kinds[audit.KindExec] != 49 || detail.Kinds[audit.KindRun] != 2 {
		t.Errorf("%+v", detail)
	}
	var diff api.Comparison
	w.get("/compare?a=r-1&b=r-1", token).json(t, &diff)
	if len(diff.OnlyA.Programs)+len(diff.OnlyB.Files) != 0 || diff.Both.Files == 0 {
		t.Errorf("a run differs from itself: %+v", diff)
	}
	var pieces []replay.Piece
	for after := uint64(0); ; {
		var page struct {
			Pieces []replay.Piece
			Next   uint64
		}
		w.get(fmt.Sprintf("/runs/r-1/output?limit=9&after=%d", after), token).json(t, &page)
		pieces = append(pieces, page.Pieces...)
		if after = page.Next; after == 0 {
			break
		}
	}
	if want := story.Output().Pieces(0, 0); !reflect.DeepEqual(pieces, want) {
		t.Errorf("%d pieces of output, want %d", len(pieces), len(want))
	}
}

// same compares an answer with what it should say.
func same(t *testing.T, got reply, want any) {
	t.Helper()
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	got.json(t, &a)
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%s:\n%.2000s\nwant\n%.2000s", got.Request.URL, got.body, text)
	}
}
