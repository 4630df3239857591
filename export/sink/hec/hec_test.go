package hec

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/exporttest"
	"github.com/custody-project/custody/export/sink/peer"
)

// splunk answers as Splunk's documentation of the HTTP Event Collector specifies, with indexer acknowledgement. It is
// strict: it answers unknown requests with an error. It is not Splunk.
type splunk struct {
	mu      sync.Mutex // guards the fields below
	indexed map[string]int
	acks    map[uint64][]string // received, and not indexed
	done    map[uint64]bool     // indexed, and not yet asked about
	next    uint64
	noAck   bool
	noIndex bool // acknowledgements never become true
	limit   int  // bytes of a request
	before  []func(w http.ResponseWriter) bool
	bad     []string // violations in requests
	poison  string   // id of an event with an invalid format
}

func (s *splunk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.before) > 0 {
		f := s.before[0]
		s.before = s.before[1:]
		if f(w) {
			return
		}
	}
	if r.Header.Get("Authorization") != "Splunk s3cret" {
		reply(w, 403, `{"text":"Invalid token","code":4}`)
		return
	}
	if len(r.Header.Get("X-Splunk-Request-Channel")) != 36 {
		reply(w, 400, `{"text":"Data channel is missing","code":10}`)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the connection broke
	}
	switch {
	case r.Method == "POST" && r.URL.Path == "/services/collector/event":
		s.events(w, body)
	case r.Method == "POST" && r.URL.Path == "/services/collector/ack" && r.URL.Query().Get("channel") == r.Header.Get("X-Splunk-Request-Channel"):
		s.ack(w, body)
	default:
		s.bad = append(s.bad, r.Method+" "+r.URL.String())
		reply(w, 404, `{"text":"not found","code":404}`)
	}
}

func reply(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	io.WriteString(w, body)
}

func (s *splunk) events(w http.ResponseWriter, body []byte) {
	if s.limit > 0 && len(body) > s.limit {
		reply(w, 413, `{"text":"Request entity too large","code":27}`)
		return
	}
	var ids []string
	for d := json.NewDecoder(strings.NewReader(string(body))); d.More(); {
		var e struct {
			Time       json.Number       `json:"time"`
			Host       string            `json:"host"`
			Source     string            `json:"source"`
			SourceType string            `json:"sourcetype"`
			Index      string            `json:"index"`
			Event      json.RawMessage   `json:"event"`
			Fields     map[string]string `json:"fields"`
		}
		d.DisallowUnknownFields()
		if err := d.Decode(&e); err != nil || len(e.Event) == 0 || e.Fields["custody_id"] == s.poison && s.poison != "" {
			reply(w, 400, fmt.Sprintf(`{"text":"Invalid data format","code":6,"invalid-event-number":%d}`, len(ids)))
			return
		}
		if at, err := e.Time.Float64(); err != nil || at < 1e9 || at > 1e10 {
			s.bad = append(s.bad, "time "+e.Time.String())
		}
		ids = append(ids, e.Fields["custody_id"])
	}
	if s.noAck {
		s.index(ids)
		reply(w, 200, `{"text":"Success","code":0}`)
		return
	}
	s.next++
	s.acks[s.next] = ids
	n := s.next
	time.AfterFunc(15*time.Millisecond, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.noIndex {
			s.index(s.acks[n])
			s.done[n] = true
		}
		delete(s.acks, n)
	})
	reply(w, 200, fmt.Sprintf(`{"text":"Success","code":0,"ackId":%d}`, s.next))
}

func (s *splunk) index(ids []string) {
	for _, id := range ids {
		s.indexed[id]++
	}
}

// ack removes the ids that it has reported, like Splunk.
func (s *splunk) ack(w http.ResponseWriter, body []byte) {
	var q struct{ Acks []uint64 }
	if err := json.Unmarshal(body, &q); err != nil || len(q.Acks) == 0 {
		s.bad = append(s.bad, "ack "+string(body))
	}
	acks := map[string]bool{}
	for _, id := range q.Acks {
		acks[strconv.FormatUint(id, 10)] = s.done[id]
		delete(s.done, id)
	}
	b, _ := json.Marshal(map[string]any{"acks": acks})
	reply(w, 200, string(b))
}

func (s *splunk) got() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := map[string]int{}
	for id, n := range s.indexed {
		ids[id] = n
	}
	return ids
}

func start(t *testing.T, s *splunk) *httptest.Server {
	t.Helper()
	s.indexed, s.acks, s.done = map[string]int{}, map[uint64][]string{}, map[uint64]bool{}
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		server.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, bad := range s.bad {
			t.Error("the collector got unknown requests:", bad)
		}
	})
	return server
}

func token(t *testing.T) peer.Secret {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return peer.Secret{File: path}
}

func TestFaults(t *testing.T) {
	s := &splunk{}
	server := start(t, s)
	o := Options{Token: token(t), AckWithin: 200 * time.Millisecond, AckPoll: 5 * time.Millisecond}
	exporttest.Faults(t, server.Listener.Addr().String(), func(addr string) export.Sink {
		o.URL = "http://" + addr
		return New(o)
	}, s.got)
}

func open(t *testing.T, s *splunk) *Sink {
	t.Helper()
	sink := New(Options{URL: start(t, s).URL, Token: token(t), AckWithin: 100 * time.Millisecond, AckPoll: 5 * time.Millisecond})
	t.Cleanup(func() { sink.Close() })
	return sink
}

// TestReceivedIsNotIndexed: a 200 does not count until the acknowledgement is true.
func TestReceivedIsNotIndexed(t *testing.T) {
	s := &splunk{noIndex: true}
	sink := open(t, s)
	var each export.Outcomes
	if err := sink.Send(t.Context(), exporttest.Items("r-1", 3)); !errors.As(err, &each) || each[0] == nil || each[2] == nil {
		t.Fatalf("not indexed, and said to be taken: %v", err)
	}
	s.mu.Lock()
	s.noIndex = false
	s.mu.Unlock()
	if err := sink.Send(t.Context(), exporttest.Items("r-1", 3)); err != nil || len(s.got()) != 3 || sink.Warning() != "" {
		t.Fatalf("%v, %v, %q", err, s.got(), sink.Warning())
	}
}

func TestTokenWithoutAcknowledgement(t *testing.T) {
	s := &splunk{noAck: true}
	sink := open(t, s)
	if err := sink.Send(t.Context(), exporttest.Items("r-1", 3)); err != nil || len(s.got()) != 3 || sink.Warning() == "" {
		t.Fatalf("%v, %v, %q", err, s.got(), sink.Warning())
	}
}

// TestAnswers: the outcome of each answer of a collector for one event.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		status  int
		body    string
		retry   string
		refused bool
		after   time.Duration
	}{
		{400, `{"text":"Invalid data format","code":6}`, "", true, 0},
		{400, `{"text":"Event field cannot be blank","code":13}`, "", true, 0},
		{400, `{"text":"Incorrect index","code":7}`, "", false, 0},
		{400, `{"text":"ACK is disabled","code":14}`, "", false, 0},
		{400, `<html>`, "", true, 0},
		{401, `{"text":"Token is required","code":2}`, "", false, 0},
		{403, `{"text":"Token disabled","code":1}`, "", false, 0},
		{413, `too large`, "", true, 0},
		{429, ``, "7", false, 7 * time.Second},
		{503, `{"text":"Server is busy","code":9}`, "3", false, 3 * time.Second},
		{302, ``, "", false, 0},
		{200, `garbage`, "", false, 0},
		{200, `{}`, "", false, 0},
		{200, `{"text":"?","code":8}`, "", false, 0},
	} {
		s := &splunk{before: []func(http.ResponseWriter) bool{func(w http.ResponseWriter) bool {
			if c.retry != "" {
				w.Header().Set("Retry-After", c.retry)
			}
			reply(w, c.status, c.body)
			return true
		}}}
		err := open(t, s).Send(t.Context(), exporttest.Items("r-1", 1))
		var each export.Outcomes
		if !errors.As(err, &each) || len(each) != 1 {
			t.Errorf("%d %s: %v", c.status, c.body, err)
			continue
		}
		var refused *export.Refused
		var later *export.Later
		errors.As(each[0], &later)
		if errors.As(each[0], &refused) != c.refused || c.after > 0 && (later == nil || later.After != c.after) {
			t.Errorf("%d %s: %v", c.status, c.body, each[0])
		}
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the token stands in %q", err)
		}
	}
}

// TestPoisonedAndLarge: the one refused event is found, and requests are split by size.
func TestPoisonedAndLarge(t *testing.T) {
	items := exporttest.Items("r-1", 300)
	for i := range items {
		items[i].Data = fmt.Appendf(nil, `{"text":%q}`, strings.Repeat("x", 10<<10))
	}
	s := &splunk{limit: requestBytes, poison: items[211].ID}
	err := open(t, s).Send(t.Context(), items)
	var each export.Outcomes
	if !errors.As(err, &each) {
		t.Fatal(err)
	}
	got := s.got()
	for i, err := range each {
		var refused *export.Refused
		if errors.As(err, &refused) != (i == 211) || (err == nil) != (i != 211) || (got[items[i].ID] > 0) != (i != 211) {
			t.Errorf("event %d: %v, %d times", i, err, got[items[i].ID])
		}
	}
}

// TestTLS: a certificate of another authority is refused, and nothing is sent to its owner.
func TestTLS(t *testing.T) {
	certs := exporttest.NewCerts(t)
	s := &splunk{indexed: map[string]int{}, acks: map[uint64][]string{}, done: map[uint64]bool{}}
	server := httptest.NewUnstartedServer(s)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certs.Server}, ClientCAs: certs.Pool, ClientAuth: tls.RequireAndVerifyClientCert}
	server.Config.ErrorLog = nil
	server.StartTLS()
	defer server.Close()
	o := Options{URL: server.URL, Token: token(t), AckPoll: 5 * time.Millisecond}
	for name, config := range map[string]*tls.Config{
		"another authority":     exporttest.NewCerts(t).Client(t),
		"no client certificate": {RootCAs: certs.Pool},
		"another name":          func() *tls.Config { c := certs.Client(t); c.ServerName = "else.where"; return c }(),
		"":                      certs.Client(t),
	} {
		o.TLS = config
		sink := New(o)
		if err := sink.Send(t.Context(), exporttest.Items("r-1", 2)); (err == nil) != (name == "") {
			t.Errorf("%s: %v", name, err)
		}
		sink.Close()
	}
	if len(s.got()) != 2 {
		t.Errorf("%v", s.got())
	}
}
