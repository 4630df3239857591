package elastic

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/exporttest"
	"github.com/custody-project/custody/export/sink/peer"
)

// cluster answers as Elasticsearch's documentation of the bulk API specifies, for one data stream: creates only, @timestamp
// required, 409 for an existing _id. It is strict, and it is not Elasticsearch.
type cluster struct {
	mu     sync.Mutex // guards the fields below
	docs   map[string]json.RawMessage
	writes map[string]int // creates of each id
	answer func(id string, asked int) (status int, kind string)
	whole  func(w http.ResponseWriter) bool // answers instead of the API
	bad    []string
}

const stream = "logs-custody-default"

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.whole != nil && c.whole(w) {
		return
	}
	if r.Header.Get("Authorization") != "ApiKey a2V5" {
		w.WriteHeader(401)
		return
	}
	if r.Method != "POST" || r.URL.Path != "/"+stream+"/_bulk" || r.Header.Get("Content-Type") != "application/x-ndjson" || r.Header.Get("Content-Encoding") != "gzip" {
		c.bad = append(c.bad, r.Method+" "+r.URL.String())
	}
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		w.WriteHeader(400)
		return
	}
	body, err := io.ReadAll(z)
	if err != nil {
		return // the connection broke
	}
	if body[len(body)-1] != '\n' {
		w.WriteHeader(400)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(c.bulk(string(body)))
}

func (c *cluster) bulk(body string) []byte {
	type item map[string]any
	res := struct {
		Errors bool              `json:"errors"`
		Items  []map[string]item `json:"items"`
	}{}
	s := bufio.NewScanner(strings.NewReader(body))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var action struct {
			Create struct {
				ID string `json:"_id"`
			} `json:"create"`
		}
		if err := json.Unmarshal(s.Bytes(), &action); err != nil || action.Create.ID == "" || !s.Scan() {
			c.bad = append(c.bad, "action "+s.Text())
			break
		}
		status, kind := c.create(action.Create.ID, []byte(s.Text()))
		one := item{"_id": action.Create.ID, "status": status}
		if kind != "" {
			res.Errors = true
			one["error"] = item{"type": kind, "reason": "because"}
		}
		res.Items = append(res.Items, map[string]item{"create": one})
	}
	b, _ := json.Marshal(res)
	return b
}

func (c *cluster) create(id string, doc []byte) (int, string) {
	c.writes[id]++
	var stamped struct {
		At time.Time `json:"@timestamp"`
	}
	if err := json.Unmarshal(doc, &stamped); err != nil || stamped.At.IsZero() {
		return 400, "document_parsing_exception"
	}
	if c.answer != nil {
		if status, kind := c.answer(id, c.writes[id]); status != 0 {
			return status, kind
		}
	}
	if _, ok := c.docs[id]; ok {
		return 409, "version_conflict_engine_exception"
	}
	c.docs[id] = doc
	return 201, ""
}

func (c *cluster) got() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := map[string]int{}
	for id := range c.docs {
		ids[id]++
	}
	return ids
}

func start(t *testing.T, c *cluster) (*httptest.Server, Options) {
	t.Helper()
	c.docs, c.writes = map[string]json.RawMessage{}, map[string]int{}
	server := httptest.NewServer(c)
	t.Cleanup(func() {
		server.Close()
		for _, bad := range c.bad {
			t.Error("the cluster got unknown requests:", bad)
		}
	})
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte("a2V5"), 0o600); err != nil {
		t.Fatal(err)
	}
	return server, Options{URL: server.URL, Stream: stream, APIKey: peer.Secret{File: path}}
}

func open(t *testing.T, o Options) *Sink {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestFaults(t *testing.T) {
	c := &cluster{}
	server, o := start(t, c)
	exporttest.Faults(t, server.Listener.Addr().String(), func(addr string) export.Sink {
		o.URL = "http://" + addr
		return open(t, o)
	}, c.got)
	repeats := 0
	for _, n := range c.writes {
		repeats += n - 1
	}
	if repeats == 0 {
		t.Error("no event was sent twice: the faults did not hit")
	}
}

// TestItems: each event of a request has its own outcome.
func TestItems(t *testing.T) {
	kinds := map[string][2]any{
		"r-1:2": {409, "version_conflict_engine_exception"}, "r-1:3": {400, "document_parsing_exception"},
		"r-1:4": {429, "es_rejected_execution_exception"}, "r-1:5": {503, "unavailable_shards_exception"},
		"r-1:6": {404, "index_not_found_exception"}, "r-1:7": {403, "security_exception"}, "r-1:8": {409, "else"},
	}
	c := &cluster{answer: func(id string, asked int) (int, string) {
		if k, ok := kinds[id]; ok {
			return k[0].(int), k[1].(string)
		}
		return 0, ""
	}}
	_, o := start(t, c)
	items := exporttest.Items("r-1", 9)
	var each export.Outcomes
	if err := open(t, o).Send(t.Context(), items); !errors.As(err, &each) {
		t.Fatal(err)
	}
	for i, want := range []string{"ok", "ok", "refused", "later", "later", "later", "later", "later", "ok"} {
		got := "later"
		var refused *export.Refused
		if each[i] == nil {
			got = "ok"
		} else if errors.As(each[i], &refused) {
			got = "refused"
		}
		if got != want {
			t.Errorf("%s: %s, %v", items[i].ID, got, each[i])
		}
	}
}

// TestAnswers: an answer that is not for these events is not accepted.
func TestAnswers(t *testing.T) {
	for _, answer := range []string{``, `{`, `null`, `{"errors":false}`, `{"errors":false,"items":[]}`,
		`{"errors":false,"items":[{"create":{"status":201}},{"create":{"status":201}}]}`,
		`{"errors":false,"items":[{"index":{"status":201}}]}`, `{"errors":false,"items":[{"create":{"_id":"r-1:9","status":201}}]}`,
		`{"errors":false,"items":[{"create":{}}]}`, strings.Repeat(" ", answerBytes+1)} {
		c := &cluster{whole: func(w http.ResponseWriter) bool { io.WriteString(w, answer); return true }}
		_, o := start(t, c)
		if err := open(t, o).Send(t.Context(), exporttest.Items("r-1", 1)); err == nil {
			t.Errorf("%.60q was taken for success", answer)
		}
	}
	for status, want := range map[int]bool{400: true, 413: true, 429: false, 401: false, 500: false, 502: false, 307: false} {
		c := &cluster{whole: func(w http.ResponseWriter) bool { w.WriteHeader(status); return true }}
		_, o := start(t, c)
		var refused *export.Refused
		if err := open(t, o).Send(t.Context(), exporttest.Items("r-1", 1)); err == nil || errors.As(err, &refused) != want {
			t.Errorf("%d: %v", status, err)
		}
	}
}

// TestDocument: any output of a format becomes a document with a time.
func TestDocument(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for data, want := range map[string]string{
		`{"a":1}`:                               `{"@timestamp":"2026-01-02T03:04:05.000000006Z","a":1}`,
		` { } `:                                 `{"@timestamp":"2026-01-02T03:04:05.000000006Z" }`,
		`{"@timestamp":"2025-01-01T00:00:00Z"}`: `{"@timestamp":"2025-01-01T00:00:00Z"}`,
		`{"b":{"@timestamp":1}}`:                `{"@timestamp":"2026-01-02T03:04:05.000000006Z","b":{"@timestamp":1}}`,
		`CEF:0|a|"b"`:                           `{"@timestamp":"2026-01-02T03:04:05.000000006Z","message":"CEF:0|a|\"b\""}`,
		`{"a":1}{`:                              `{"@timestamp":"2026-01-02T03:04:05.000000006Z","message":"{\"a\":1}{"}`,
	} {
		if got := string(document(export.Item{Time: at, Data: []byte(data)})); got != want {
			t.Errorf("%s became %s, want %s", data, got, want)
		}
	}
}

func FuzzDocument(f *testing.F) {
	f.Add([]byte(`{"a":1}`))
	f.Add([]byte(`{"@timestamp":1}`))
	f.Add([]byte("{ \n}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got := document(export.Item{Time: time.Unix(1, 0), Data: data})
		var m map[string]any
		if err := json.Unmarshal(got, &m); err != nil || m["@timestamp"] == nil && !strings.Contains(string(data), `"@timestamp"`) {
			t.Fatalf("%q became %q: %v", data, got, err)
		}
	})
}

// FuzzAnswer: no answer makes a refused or unknown event an accepted one.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"errors":true,"items":[{"create":{"_id":"r-1:1","status":201}},{"create":{"_id":"r-1:2","status":400,"error":{"type":"x"}}}]}`))
	items := exporttest.Items("r-1", 2)
	f.Fuzz(func(t *testing.T, body []byte) {
		err := outcomes(peer.Answer{Status: 200, Body: body, Header: http.Header{}}, items)
		var each export.Outcomes
		if errors.As(err, &each) && len(each) != 2 {
			t.Fatal(fmt.Sprint(len(each)))
		}
		if err == nil && strings.Count(string(body), "20")+strings.Count(string(body), "409")+strings.Count(string(body), `\u`) == 0 {
			t.Fatalf("%q is success", body)
		}
	})
}
