package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
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

// notes asks for the notes on a run until it has none that is not stored.
func (w *world) notes(run, token string) []api.RunNote {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		var list struct{ Notes []api.RunNote }
		w.get("/runs/"+run+"/notes", token).json(w.t, &list)
		stored := true
		for _, n := range list.Notes {
			stored = stored && n.State == api.NoteStored
		}
		if stored || time.Now().After(deadline) {
			return list.Notes
		}
	}
}

func (w *world) note(run, token string, q any) api.RunNote {
	w.t.Helper()
	body, err := json.Marshal(q)
	if err != nil {
		w.t.Fatal(err)
	}
	var n api.RunNote
	w.do("POST", "/runs/"+run+"/notes", token, string(body)).json(w.t, &n)
	return n
}

// TestNotes: a note has the author that the gate knows, is there as soon as it is answered, is proven by its log,
// and is withdrawn by its author or an admin.
func TestNotes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.whole("r-one", 40)
	w.whole("r-two", 40)
	ann, ben, root := w.token("", access.Auditor), w.token("", access.Auditor), w.token("", access.Admin)
	n := w.note("r-one", ann, api.NoteRequest{Seq: 5, Text: "look here", Tags: []string{"case-7"}})
	if n.State != api.NoteRecorded || n.Bound != replay.BoundSame || n.Via != access.ViaToken || n.Role != "auditor" || n.Who == "" || n.Leaf == "" || n.Remote != "" {
		t.Errorf("%+v", n)
	}
	var list struct{ Notes []api.RunNote }
	if w.get("/runs/r-one/notes", w.token("", access.Viewer)).json(t, &list); len(list.Notes) != 1 || list.Notes[0].ID != n.ID {
		t.Errorf("at once there is %+v", list.Notes)
	}
	whole := w.note("r-one", ben, api.NoteRequest{Text: "\x1b[2J<script>", Tags: []string{"x"}})
	if got := w.notes("r-two", ann); len(got) != 0 {
		t.Errorf("on another run: %+v", got)
	}
	got := w.notes("r-one", ann)
	if len(got) != 2 || got[0].Text != "look here" || got[0].Bound != replay.BoundSame || got[1].Bound != replay.BoundRun || got[1].Text != "\x1b[2J<script>" || got[0].State != api.NoteStored {
		t.Fatalf("%+v", got)
	}
	var p struct{ Record json.RawMessage }
	if r := w.get("/runs/r-one/notes/"+n.ID+"/proof", ann); !strings.Contains(string(r.body), strings.Split(n.ID, ":")[0]) {
		t.Errorf("the proof is not of the note: %.600s", r.body)
	} else {
		r.json(t, &p)
	}
	w.get("/runs/r-two/notes/"+n.ID+"/proof", ann).problem(t, http.StatusNotFound)
	w.get("/runs/r-one/notes/"+n.ID+"/proof", w.token("", access.Viewer)).problem(t, http.StatusForbidden)
	// No other record of the log is shown.
	log, seq, _ := audit.ParseNoteID(n.ID)
	w.get("/runs/r-one/notes/"+audit.NoteID(log, seq-1)+"/proof", ann).problem(t, http.StatusNotFound)
	w.get("/runs/"+log, root).problem(t, http.StatusNotFound)

	withdraw := func(id, token string) reply {
		body, _ := json.Marshal(api.NoteRequest{Withdraws: id, Text: "not so"})
		return w.do("POST", "/runs/r-one/notes", token, string(body))
	}
	withdraw(n.ID, ben).problem(t, http.StatusForbidden)
	withdraw("a-1:7", ann).problem(t, http.StatusNotFound)
	if r := withdraw(n.ID, ann); r.StatusCode != http.StatusCreated {
		t.Fatalf("%s", r.body)
	}
	withdraw(n.ID, ann).problem(t, http.StatusConflict)
	if r := withdraw(whole.ID, root); r.StatusCode != http.StatusCreated {
		t.Fatalf("%s", r.body)
	}
	if got = w.notes("r-one", ann); len(got) != 2 || got[0].Withdrawn == nil || got[0].Withdrawn.Text != "not so" || got[1].Withdrawn == nil || got[1].Withdrawn.Who == got[1].Who {
		t.Errorf("%+v", got)
	}
	if got[0].Withdrawn != nil {
		w.get("/runs/r-one/notes/"+got[0].Withdrawn.ID+"/proof", ann).json(t, &p)
	}
	var looks struct {
		Access []api.AccessEvent `json:"access"`
	}
	w.get("/access?limit=500", ann).json(t, &looks)
	wrote := 0
	for _, l := range looks.Access {
		if l.Action == "note" && l.Verdict == audit.Allow && l.About == "r-one" {
			wrote++
		}
	}
	if wrote < 4 {
		t.Errorf("the access log has %d notes that were let in", wrote)
	}
}

// TestNoteRefused: an invalid note is refused for every role, and a request cannot choose the author.
func TestNoteRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.whole("r-one", 40)
	w.ingest("acme", withTenantRun("r-acme")...)
	ann, acme := w.token("", access.Auditor), w.token("acme", access.Auditor)
	for body, status := range map[string]int{
		`{"text":"x","who":"eve"}`: 400, `{"text":"x","via":"oidc"}`: 400, `{"text":"x","leaf":"00"}`: 400, `{"text":"x","about":"r-two"}`: 400, `{"text":"x","tenant":"acme"}`: 400,
		`{"text":"x","seq":9999}`: 404, `{"text":"x","seq":-1}`: 400, `{}`: 400, `{"text":" \n"}`: 400, `[]`: 400, `{"text":"x"}{}`: 400,
		`{"text":"` + strings.Repeat("x", 4097) + `"}`: 400, `{"tags":["A"]}`: 400, `{"tags":["a|b"]}`: 400, `{"tags":["a b"]}`: 400, `{"tags":["a","a"]}`: 400,
		`{"tags":["a","b","c","d","e","f","g","h","i"]}`: 400, `{"text":{"base64":"/w=="}}`: 400, `{"withdraws":"x","text":"y"}`: 404, `{"withdraws":"a-1:7","seq":3}`: 400,
	} {
		if r := w.do("POST", "/runs/r-one/notes", ann, body); r.StatusCode != status {
			t.Errorf("%.60s: %s, want %d\n%s", body, r.Status, status, r.body)
		}
	}
	huge := `{"text":"` + strings.Repeat("x", 2<<20) + `"}`
	w.do("POST", "/runs/r-one/notes", ann, huge).problem(t, http.StatusRequestEntityTooLarge)
	w.do("POST", "/runs/r-acme/notes", ann, `{"text":"x"}`).problem(t, http.StatusNotFound)
	w.do("POST", "/runs/r-acme/notes?tenant=acme", ann, `{"text":"x"}`).problem(t, http.StatusForbidden)
	w.do("POST", "/runs/r-one/notes", w.token("", access.Viewer), `{"text":"x"}`).problem(t, http.StatusForbidden)
	w.do("POST", "/runs/last/notes", ann, `{"text":"x"}`).problem(t, http.StatusNotFound)
	if got := w.notes("r-one", ann); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	// A note of one tenant is not seen from another, though one log has both.
	w.note("r-acme", acme, api.NoteRequest{Text: "of acme"})
	w.note("r-one", ann, api.NoteRequest{Text: "of none"})
	if got := w.notes("r-acme", acme); len(got) != 1 || got[0].Text != "of acme" || got[0].Tenant != "acme" {
		t.Errorf("%+v", got)
	}
	w.get("/runs/r-acme/notes", ann).problem(t, http.StatusNotFound)
	w.get("/runs/r-one/notes", acme).problem(t, http.StatusNotFound)
	for _, q := range []string{"/search?q=of+acme", "/search?path=r-acme", "/search?q=x&kind=note"} {
		if r := w.get(q, ann); strings.Contains(string(r.body), "of acme") {
			t.Errorf("%s shows another tenant's note: %s", q, r.body)
		}
	}
}

// TestForgedNotes: rows that others wrote into the store are no notes, however they look.
func TestForgedNotes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.whole("r-one", 40)
	for i, log := range []string{"r-evil", "a-globex"} {
		w.ingest([]string{"", "globex"}[i], forged(log, audit.Note{Who: "ann", Via: "token", About: "r-one", Text: "all is well"})...)
	}
	if got := w.notes("r-one", w.token("", access.Auditor)); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// forged is a log of another tenant's host, or a run, with a note in it.
func forged(log string, n audit.Note) []store.Segment {
	return segmentsOf(log, []audit.Event{{Observer: audit.Host, Kind: audit.KindNote, Note: &n}})
}

func withTenantRun(id string) []store.Segment {
	return segmentsOf(id, []audit.Event{{Observer: audit.Host, Kind: audit.KindVM, VM: &audit.VM{Op: "boot"}}})
}

func segmentsOf(id string, events []audit.Event) []store.Segment {
	for i := range events {
		events[i].Time = storetest.Start().Add(time.Duration(i) * time.Second)
	}
	return storetest.Segments(id, storetest.Frames(id, events), 100)
}

// TestNoteFromElsewhere: a browser that is logged in does not note what another site has it send, nor after its session ended.
func TestNoteFromElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.whole("r-one", 40)
	own := strings.TrimSuffix(w.base, api.Base)
	send := func(method, path, body string, cookies []*http.Cookie, headers ...string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), method, w.base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		for _, c := range cookies {
			req.AddCookie(c)
		}
		for i := 0; i+1 < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		res, err := browser().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res
	}
	token := w.token("", access.Auditor)
	cookies := send("POST", "/session", `{"token":"`+token+`"}`, nil).Cookies()
	if len(cookies) != 1 {
		t.Fatalf("%v", cookies)
	}
	for _, tc := range []struct {
		name    string
		headers []string
		status  int
	}{
		{"another site", []string{"Origin", "https://evil.example"}, 403},
		{"another port", []string{"Origin", "http://127.0.0.1:1"}, 403},
		{"another site's form", []string{"Origin", "https://evil.example", "Content-Type", "text/plain"}, 403},
		{"cross-site fetch", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"nothing said", nil, 403},
		{"another type", []string{"Origin", own, "Sec-Fetch-Site", "same-origin", "Content-Type", "text/plain"}, 415},
		{"the page", []string{"Origin", own, "Sec-Fetch-Site", "same-origin"}, 201},
	} {
		if res := send("POST", "/runs/r-one/notes", `{"text":"x"}`, cookies, tc.headers...); res.StatusCode != tc.status {
			t.Errorf("%s: %s, want %d", tc.name, res.Status, tc.status)
		}
	}
	same := []string{"Origin", own, "Sec-Fetch-Site", "same-origin"}
	send("DELETE", "/session", "", cookies, same...)
	if res := send("POST", "/runs/r-one/notes", `{"text":"x"}`, cookies, same...); res.StatusCode != 401 {
		t.Errorf("after the logout: %s", res.Status)
	}
	if got := w.notes("r-one", token); len(got) != 1 {
		t.Errorf("%+v", got)
	}
}

// TestTaggedRecords: records are found by the tags of their notes, in both orders and page by page; withdrawn notes do not count.
func TestTaggedRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.whole("r-one", 40)
	ann := w.token("", access.Auditor)
	for seq := uint64(3); seq <= 30; seq += 3 {
		w.note("r-one", ann, api.NoteRequest{Seq: seq, Tags: []string{[]string{"odd", "even"}[(seq+1)%2]}})
	}
	w.note("r-one", ann, api.NoteRequest{Seq: 6, Tags: []string{"odd"}})
	gone := w.note("r-one", ann, api.NoteRequest{Seq: 7, Tags: []string{"odd"}})
	w.note("r-one", ann, api.NoteRequest{Withdraws: gone.ID})
	w.note("r-one", ann, api.NoteRequest{Tags: []string{"odd"}})
	for query, want := range map[string]string{
		"tag=odd": "[3 6 9 15 21 27]", "tag=even": "[6 12 18 24 30]", "tag=*": "[3 6 9 12 15 18 21 24 27 30]", "tag=none": "[]", "tag=odd&order=desc": "[27 21 15 9 6 3]",
		"tag=odd&after=9": "[15 21 27]", "tag=odd&after=9&order=desc": "[6 3]", "tag=odd&kind=nothing": "400", "tag=A": "400", "tag=a+b": "400",
	} {
		for _, limit := range []string{"", "&limit=1", "&limit=2"} {
			got := w.taggedPages("/runs/r-one/records?"+query+limit, ann)
			if got != want {
				t.Errorf("%s: %s, want %s", query+limit, got, want)
			}
		}
	}
}

// taggedPages reads all pages of records, and returns their seqs, or the status of a refusal.
func (w *world) taggedPages(path, token string) string {
	w.t.Helper()
	seqs := []uint64{}
	for cursor := ""; ; {
		r := w.get(path+cursor, token)
		if r.StatusCode != http.StatusOK {
			return fmt.Sprint(r.StatusCode)
		}
		var page struct {
			Records []struct{ Seq uint64 }
			Next    string
			Total   *uint64
		}
		r.json(w.t, &page)
		if page.Total != nil {
			w.t.Errorf("%s says how many there are", path)
		}
		for _, row := range page.Records {
			seqs = append(seqs, row.Seq)
		}
		if page.Next == "" {
			return fmt.Sprint(seqs)
		}
		cursor = "&cursor=" + page.Next
	}
}
