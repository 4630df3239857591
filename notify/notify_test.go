package notify

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/internal/endpoint"
	"github.com/custody-project/custody/redact"
)

// got is one request to a receiver.
type got struct {
	header http.Header
	body   []byte
}

// receiver is an HTTPS server that answers with a sequence of statuses, and then repeats the last one.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	requests []got
	ca       string
}

func newReceiver(t *testing.T, statuses ...int) *receiver {
	e := &receiver{}
	e.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e.mu.Lock()
		e.requests = append(e.requests, got{r.Header.Clone(), body})
		status := statuses[min(len(e.requests), len(statuses))-1]
		e.mu.Unlock()
		if status == 302 {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(e.Close)
	e.ca = filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: e.Certificate().Raw})
	if err := os.WriteFile(e.ca, block, 0o600); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *receiver) had() []got {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.requests)
}

const testKey = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

func (e *receiver) config(t *testing.T) Config {
	t.Setenv("CUSTODY_TEST_NOTIFY", testKey)
	return Config{Webhooks: []Webhook{{Name: "ops", URL: e.URL + "/SECRETPATH", Key: "env:CUSTODY_TEST_NOTIFY", CA: e.ca}}}
}

func finding(seq uint64) Message {
	return Message{Type: Finding, Severity: "alert", Rule: "canary", Detail: "detail", Run: "r-1", Seq: seq}
}

// here is the Web of the test's process.
type here struct{}

func (here) To(s endpoint.Server) (http.RoundTripper, error) { return s.Transport() }
func (here) Close() error                                    { return nil }

// TestDelivered: each message arrives, signed as Standard Webhooks requires, with the same id when it is repeated
// after a 500. Another process with the same queue has nothing left to send.
func TestDelivered(t *testing.T) {
	e := newReceiver(t, 500, 200)
	dir := t.TempDir()
	n := Open(t.Context(), dir, e.config(t), here{}, Message{Host: "h"}, func(s string) { t.Log(s) })
	n.Send(finding(1))
	n.Send(finding(2))
	n.Close()
	had := e.had()
	if len(had) != 3 {
		t.Fatalf("%d requests, want 3", len(had))
	}
	for i, want := range []uint64{1, 2, 1} {
		var m Message
		if err := json.Unmarshal(had[i].body, &m); err != nil || m.Seq != want || m.Host != "h" || had[i].header.Get("webhook-id") != m.ID {
			t.Errorf("request %d: %s, %v", i, had[i].body, err)
		}
		var at int64
		fmt.Sscan(had[i].header.Get("webhook-timestamp"), &at)
		key := []byte("0123456789abcdef0123456789abcdef")
		if s := sign(key, m.ID, time.Unix(at, 0), had[i].body); had[i].header.Get("webhook-signature") != s {
			t.Errorf("signature %s, want %s", had[i].header.Get("webhook-signature"), s)
		}
	}
	s := States(dir, e.config(t))
	if s[0].Delivered != 2 || s[0].Waiting != 0 || s[0].Error != "" {
		t.Errorf("%+v", s)
	}
}

// TestSignature: openssl computes the same.
func TestSignature(t *testing.T) {
	cmd := exec.Command("openssl", "dgst", "-sha256", "-mac", "HMAC", "-macopt", "key:0123456789abcdef0123456789abcdef", "-binary")
	cmd.Stdin = strings.NewReader(`msg_1.1700000000.{"a":1}`)
	out, err := cmd.Output()
	if err != nil {
		t.Skip("openssl:", err)
	}
	want := "v1," + base64.StdEncoding.EncodeToString(out)
	if s := sign([]byte("0123456789abcdef0123456789abcdef"), "msg_1", time.Unix(1700000000, 0), []byte(`{"a":1}`)); s != want {
		t.Errorf("%s, want %s", s, want)
	}
}

// TestFailures: a message stays for the next process unless the receiver refuses it permanently; redirects are not
// followed, and no error contains the address.
func TestFailures(t *testing.T) {
	for status, stays := range map[int]bool{500: true, 302: true, 503: true, 408: true, 429: true, 403: false, 410: false, 400: false, 413: false, 422: false} {
		e := newReceiver(t, status)
		dir := t.TempDir()
		c := e.config(t)
		if _, err := (queue{filepath.Join(dir, "ops")}).add(finding(1).finish()); err != nil {
			t.Fatal(err)
		}
		err := Deliver(t.Context(), dir, c, here{}, func(string) {})
		s := States(dir, c)
		if stays != (err != nil) || stays != (s[0].Waiting == 1) || stays == (s[0].Dropped == 1) || s[0].Error == "" || strings.Contains(s[0].Error, "SECRETPATH") {
			t.Errorf("%d: %+v, %v", status, s[0], err)
		}
		if len(e.had()) != 1 {
			t.Errorf("%d: %d requests", status, len(e.had()))
		}
	}
	e := newReceiver(t, 200)
	c := e.config(t)
	e.Close()
	if err := Deliver(t.Context(), t.TempDir(), c, here{}, func(s string) { t.Log(s) }); err != nil {
		t.Errorf("nothing to deliver: %v", err)
	}
	if r := Try(t.Context(), c, here{}, Message{}); len(r) != 1 || r[0].Err == nil || strings.Contains(r[0].Err.Error(), "SECRETPATH") {
		t.Errorf("%+v", r)
	}
}

// TestKilled: a process is killed while the receiver does not answer; the next process delivers the same message.
func TestKilled(t *testing.T) {
	if dir := os.Getenv("CUSTODY_TEST_NOTIFY_DIR"); dir != "" {
		n := Open(t.Context(), dir, Config{Webhooks: []Webhook{{Name: "ops", URL: os.Getenv("CUSTODY_TEST_NOTIFY_URL"), Format: "slack"}}}, here{}, Message{}, func(s string) { t.Log(s) })
		n.Send(finding(1))
		select {}
	}
	ids := make(chan string, 10)
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ids <- r.Header.Get("webhook-id")
		io.ReadAll(r.Body)
		if len(ids) == 1 {
			<-r.Context().Done()
		}
	}))
	defer slow.Close()
	dir := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	child.Env = append(os.Environ(), "CUSTODY_TEST_NOTIFY_DIR="+dir, "CUSTODY_TEST_NOTIFY_URL="+slow.URL)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); len(ids) == 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	child.Process.Kill()
	child.Wait()
	c := Config{Webhooks: []Webhook{{Name: "ops", URL: slow.URL, Format: "slack"}}}
	if err := Deliver(t.Context(), dir, c, here{}, func(s string) { t.Log(s) }); err != nil {
		t.Fatal(err)
	}
	if a, b := <-ids, <-ids; a != b || a != finding(1).finish().ID {
		t.Errorf("ids %s and %s", a, b)
	}
}

// TestCloseIsBounded: a receiver that does not answer delays the end of a run by closeWait, and nothing is lost.
func TestCloseIsBounded(t *testing.T) {
	hung := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.ReadAll(r.Body)
		<-r.Context().Done()
	}))
	defer hung.Close()
	dir := t.TempDir()
	c := Config{Webhooks: []Webhook{{Name: "ops", URL: hung.URL, Format: "slack"}}}
	n := Open(t.Context(), dir, c, here{}, Message{}, func(string) {})
	for i := range uint64(20) {
		n.Send(finding(i + 1))
	}
	begun := time.Now()
	n.Close()
	n.Send(finding(99)) // after Close: nothing
	if s := States(dir, c); time.Since(begun) > 2*attemptTime || s[0].Waiting != 20 {
		t.Errorf("%v, %+v", time.Since(begun), s)
	}
}

// TestFull: messages that a full queue or a full buffer drops are counted.
func TestFull(t *testing.T) {
	q := queue{filepath.Join(t.TempDir(), "ops")}
	if err := os.MkdirAll(q.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range maxWaiting {
		if err := os.WriteFile(filepath.Join(q.dir, fmt.Sprintf("20260101T000000.000000000-msg_%d.json", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := q.add(finding(1).finish()); err != errFull {
		t.Errorf("%v, want %v", err, errFull)
	}
	tg := &target{buffer: make(chan Message)}
	n := &Notifier{targets: []*target{tg}}
	tg.filter.On = []string{Finding}
	n.Send(finding(1))
	if tg.dropped.Load() != 1 {
		t.Error("the loss is not counted")
	}
	(&deliverer{queue: q, warn: func(string) {}}).keep(finding(1).finish(), tg)
	if tg.dropped.Load() != 2 {
		t.Error("the loss is not counted")
	}
}

// TestFullDisk: a message that cannot be stored on disk is delivered from memory.
func TestFullDisk(t *testing.T) {
	e := newReceiver(t, 200)
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n := Open(t.Context(), blocked, e.config(t), here{}, Message{}, func(string) {})
	n.Send(finding(1))
	n.Close()
	if len(e.had()) == 0 {
		t.Error("nothing was delivered")
	}
}

// TestRedacted: a message has the contents of the record, not those before redaction.
func TestRedacted(t *testing.T) {
	red := redact.New([]byte("0123456789abcdef0123456789abcdef"))
	if err := red.Add("TOKEN", []byte("hunter2hunter2hunter2")); err != nil {
		t.Fatal(err)
	}
	r := audit.NewRecorder(memory{}, red)
	var m Message
	r.OnPosted(func(ev audit.Event, seq uint64) { m, _ = Of(ev, "r-1", seq) })
	_, err := r.Post(t.Context(), audit.Event{Observer: audit.Host, Kind: audit.KindFinding,
		Finding: &audit.Finding{Rule: "x", Detail: "saw hunter2hunter2hunter2 here"}})
	if err != nil || m.Type != Finding || m.Seq != 7 || strings.Contains(m.Detail, "hunter2") || !strings.Contains(m.Detail, "[REDACTED:TOKEN") {
		t.Errorf("%+v, %v", m, err)
	}
}

type memory struct{}

func (memory) Append(context.Context, redact.Sealed) (uint64, error) { return 7, nil }
func (memory) Sync(context.Context, uint64) error                    { return nil }

// TestSlack: hostile contents cannot make a mention, link, markup or line.
func TestSlack(t *testing.T) {
	m := finding(1)
	m.Detail = "<!channel> <@U1> @here #general *b* _i_ ~s~ `c` [x](https://evil.test) & \u202e\n*rule: fake\x1b[0m\u2028x"
	var v struct{ Text string }
	if err := json.Unmarshal(m.finish().body("slack"), &v); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<", ">", "*", "`", "~", "[", "@here", "#general", "://", "\u202e", "\x1b", "\u2028", "_i_", "\nrule: fake"} {
		if strings.Contains(v.Text, bad) {
			t.Errorf("%q is in %q", bad, v.Text)
		}
	}
	if !strings.Contains(v.Text, "&lt;!channel&gt;") {
		t.Error(v.Text)
	}
}

func FuzzSlack(f *testing.F) {
	f.Add("<!channel> & @here")
	f.Fuzz(func(t *testing.T, s string) {
		if e := escape(s); strings.ContainsAny(e, "<>*`~[]\n\r\x00\x1b") || strings.Contains(e, "://") || strings.Contains(e, "@here") {
			t.Errorf("%q", e)
		}
	})
}

// TestForget: an erasure removes queued messages about the record.
func TestForget(t *testing.T) {
	dir := t.TempDir()
	q := queue{filepath.Join(dir, "ops")}
	for i := range uint64(2) {
		if _, err := q.add(finding(i + 1).finish()); err != nil {
			t.Fatal(err)
		}
	}
	if err := Forget(dir, "r-1", 1); err != nil {
		t.Fatal(err)
	}
	if names, _ := q.names(); len(names) != 1 || !strings.Contains(names[0], finding(2).finish().ID) {
		t.Error(names)
	}
}

// TestHook: the command gets a clean environment and the message, and it and its child processes end in time.
func TestHook(t *testing.T) {
	t.Setenv("SECRET_OF_HOST", "x")
	out := filepath.Join(t.TempDir(), "out")
	h := Hook{Name: "h", Argv: []string{"/bin/sh", "-c", "{ env; cat; pwd; } > " + out}}
	if err := h.run(t.Context(), finding(1).finish()); err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(out)
	if s := string(b); strings.Contains(s, "SECRET_OF_HOST") || !strings.Contains(s, "CUSTODY_EVENT=finding") || !strings.Contains(s, `"seq":1`) {
		t.Error(s)
	}
	late := filepath.Join(t.TempDir(), "late")
	h = Hook{Name: "h", Argv: []string{"/bin/sh", "-c", "(sleep 2; touch " + late + ") & sleep 60"}, Time: "200ms"}
	if err := h.run(t.Context(), finding(1)); err == nil || !strings.Contains(err.Error(), "killed after 200ms") {
		t.Error(err)
	}
	time.Sleep(2500 * time.Millisecond)
	if _, err := os.Stat(late); err == nil {
		t.Error("a process of the group lived on")
	}
	h = Hook{Name: "h", Argv: []string{"/bin/sh", "-c", "head -c 5000000 /dev/zero | tr '\\0' x; exit 3"}}
	if err := h.run(t.Context(), finding(1)); err == nil || len(err.Error()) > 2*outputBytes || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("%.100v", err)
	}
}

func TestFilter(t *testing.T) {
	byDefault := []string{Finding, Verify, Frozen}
	for _, c := range []struct {
		f    Filter
		m    Message
		want bool
	}{
		{Filter{}, finding(1), true}, {Filter{}, Message{Type: End}, false}, {Filter{On: []string{End}}, Message{Type: End}, true},
		{Filter{Rules: []string{"can*"}}, finding(1), true}, {Filter{Rules: []string{"can"}}, finding(1), false},
		{Filter{Rules: []string{"x"}}, Message{Type: Frozen}, true}, {Filter{Severity: "alert"}, Message{Type: Finding, Severity: "error"}, false},
		{Filter{Severity: "error"}, finding(1), true}, {Filter{On: []string{End}}, Message{Type: Test}, true},
	} {
		if got := c.f.takes(c.m, byDefault); got != c.want {
			t.Errorf("%+v of %+v: %v", c.f, c.m, got)
		}
	}
}

func TestCheck(t *testing.T) {
	good := Webhook{Name: "a", URL: "https://x/y", Key: "env:K"}
	for want, c := range map[string]Config{
		"a unique name": {Webhooks: []Webhook{good, good}}, "is signed": {Webhooks: []Webhook{{Name: "a", URL: "https://x"}}},
		"want https":    {Webhooks: []Webhook{{Name: "a", URL: "http://example.com", Format: "slack"}}},
		"without a":     {Webhooks: []Webhook{{Name: "a", URL: "https://u:p@x/", Format: "slack"}}},
		"absolute path": {Hooks: []Hook{{Name: "a", Argv: []string{"sh"}}}}, "want up to": {Hooks: []Hook{{Name: "a", Argv: []string{"/bin/sh"}, Time: "1h"}}},
		"on \"x\"":   {Hooks: []Hook{{Name: "a", Argv: []string{"/bin/sh"}, Filter: Filter{On: []string{"x"}}}}},
		"severity":   {Webhooks: []Webhook{{Name: "a", URL: "https://x", Key: "env:K", Filter: Filter{Severity: "loud"}}}},
		"format \"x": {Webhooks: []Webhook{{Name: "a", URL: "https://x", Format: "x"}}},
		"letters":    {Hooks: []Hook{{Name: "../a", Argv: []string{"/bin/sh"}}}},
	} {
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	local := Webhook{Name: "b", URL: "http://127.0.0.1:1/", Format: "slack"}
	if err := (Config{Webhooks: []Webhook{good, local}, Hooks: []Hook{{Name: "c", Argv: []string{"/bin/true"}}}}).Check(); err != nil {
		t.Error(err)
	}
}

// answering is a server that answers each request with status of its message.
func answering(t *testing.T, status func(m Message) int) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m Message
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		w.WriteHeader(status(m))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestStuckMessage: a message that always fails does not block later ones, also for the next process.
func TestStuckMessage(t *testing.T) {
	t.Setenv("CUSTODY_TEST_NOTIFY", testKey)
	url := answering(t, func(m Message) int {
		if m.Seq == 1 {
			return 500
		}
		return 200
	})
	c := Config{Webhooks: []Webhook{{Name: "ops", URL: url, Key: "env:CUSTODY_TEST_NOTIFY"}}}
	dir := t.TempDir()
	for from := range uint64(2) {
		n := Open(t.Context(), dir, c, here{}, Message{}, func(string) {})
		for seq := range uint64(3) {
			n.Send(finding(1 + 3*from + seq))
		}
		n.Close()
		if s := States(dir, c)[0]; s.Waiting != 1 || s.Delivered != 2+3*from || s.Dropped != 0 || s.Error == "" || s.Since.IsZero() {
			t.Fatalf("%d: %+v", from, s)
		}
	}
}

// TestStuckWebhook: a webhook that does not answer does not block another one.
func TestStuckWebhook(t *testing.T) {
	t.Setenv("CUSTODY_TEST_NOTIFY", testKey)
	hung := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.ReadAll(r.Body)
		<-r.Context().Done()
	}))
	defer hung.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ok := answering(t, func(Message) int { cancel(); return 200 }) // ends the test before the other's attempt does
	c := Config{Webhooks: []Webhook{{Name: "hung", URL: hung.URL, Format: "slack"}, {Name: "ops", URL: ok, Key: "env:CUSTODY_TEST_NOTIFY"}}}
	dir := t.TempDir()
	for _, w := range c.Webhooks {
		if _, err := (queue{filepath.Join(dir, w.Name)}).add(finding(1).finish()); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	if err := Deliver(ctx, dir, c, here{}, func(string) {}); err == nil {
		t.Error("a webhook that did not answer is no error")
	}
	if time.Since(begun) >= attemptTime {
		t.Errorf("the second webhook waited %v for the first", time.Since(begun))
	}
}

// TestNoMessage: a file in a queue that is not a message is set aside and blocks no other.
func TestNoMessage(t *testing.T) {
	t.Setenv("CUSTODY_TEST_NOTIFY", testKey)
	for name, put := range map[string]func(path string) error{
		"FIFO":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"no JSON":   func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
		"another":   func(path string) error { return os.WriteFile(path, finding(7).finish().body("json"), 0o600) },
	} {
		c := Config{Webhooks: []Webhook{{Name: "ops", URL: answering(t, func(Message) int { return 200 }), Key: "env:CUSTODY_TEST_NOTIFY"}}}
		dir := t.TempDir()
		q := queue{filepath.Join(dir, "ops")}
		if _, err := q.add(finding(1).finish()); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(q.dir, "20200101T000000.000000000-msg_0.json")
		if err := put(path); err != nil {
			t.Fatal(err)
		}
		Deliver(t.Context(), dir, c, here{}, func(string) {})
		if s := States(dir, c)[0]; s.Waiting != 0 || s.Delivered != 1 || s.Dropped != 1 {
			t.Errorf("%s: %+v", name, s)
		}
		if _, err := os.Lstat(path + ".bad"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
