package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
)

func clearWorld(t *testing.T, handler http.Handler, change ...func(*Config)) (*world, *host) {
	t.Helper()
	w := newWorld(t, []netpolicy.Rule{rule("a.example", ports(80, 8080))}, change...)
	return w, w.newHost("a.example", 80, handler)
}

func TestClear(t *testing.T) {
	w, h := clearWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		rw.Header().Set("X-Saw", strings.Join(r.Header["X-Sent"], "|")+"/"+r.Header.Get("User-Agent"))
		fmt.Fprintf(rw, "%s %s %d", r.Method, r.RequestURI, len(b))
	}))
	client := w.client("a.example")
	for i := range 3 {
		req, _ := http.NewRequest("POST", "http://a.example/p%20q/?a=%zz&b", strings.NewReader("some body"))
		req.Header.Set("X-Sent", "value")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if got := hear(resp.Body); got != "POST /p%20q/?a=%zz&b 9" || resp.Header.Get("X-Saw") != "value/Go-http-client/1.1" {
			t.Fatalf("%q, %v", got, resp.Header)
		}
		if ev := w.http(i + 1); ev.Method != "POST" || ev.Path != "/p%20q/?a=%zz&b" || ev.Host != "a.example" || ev.Status != 200 || ev.BytesOut != 9 ||
			ev.BytesIn != 22 || ev.Verdict != audit.Allow || ev.Flow != "f-1" || ev.Rule == "" || ev.DurationNS <= 0 || ev.Generation != 1 {
			t.Errorf("%+v", ev)
		}
	}
	if h.hits.Load() != 1 {
		t.Errorf("%d connections for 3 requests", h.hits.Load())
	}
}

// TestSmuggling sends ambiguous requests. The host must receive none of them.
func TestSmuggling(t *testing.T) {
	w, h := clearWorld(t, nil, func(c *Config) { c.Limits.Head = 500 * time.Millisecond })
	const hostLine = "Host: a.example\r\n"
	for name, c := range map[string]struct {
		raw    string
		status int
	}{
		"cl and te":              {"POST / HTTP/1.1\r\n" + hostLine + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		"te and cl":              {"POST / HTTP/1.1\r\n" + hostLine + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", 400},
		"two cl":                 {"POST / HTTP/1.1\r\n" + hostLine + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde", 400},
		"two equal cl":           {"POST / HTTP/1.1\r\n" + hostLine + "Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd", 400},
		"cl list":                {"POST / HTTP/1.1\r\n" + hostLine + "Content-Length: 4, 4\r\n\r\nabcd", 400},
		"cl plus":                {"POST / HTTP/1.1\r\n" + hostLine + "Content-Length: +4\r\n\r\nabcd", 400},
		"cl minus":               {"POST / HTTP/1.1\r\n" + hostLine + "Content-Length: -4\r\n\r\nabcd", 400},
		"cl hex":                 {"POST / HTTP/1.1\r\n" + hostLine + "Content-Length: 0x4\r\n\r\nabcd", 400},
		"cl empty":               {"POST / HTTP/1.1\r\n" + hostLine + "Content-Length:\r\n\r\nabcd", 400},
		"cl huge":                {"POST / HTTP/1.1\r\n" + hostLine + "Content-Length: 99999999999999999999\r\n\r\nabcd", 400},
		"te identity":            {"POST / HTTP/1.1\r\n" + hostLine + "Transfer-Encoding: identity\r\n\r\n", 400},
		"te xchunked":            {"POST / HTTP/1.1\r\n" + hostLine + "Transfer-Encoding: xchunked\r\n\r\n", 400},
		"te gzip, chunked":       {"POST / HTTP/1.1\r\n" + hostLine + "Transfer-Encoding: gzip, chunked\r\n\r\n", 400},
		"te twice":               {"POST / HTTP/1.1\r\n" + hostLine + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", 400},
		"te quoted":              {"POST / HTTP/1.1\r\n" + hostLine + "Transfer-Encoding: \"chunked\"\r\n\r\n", 400},
		"te vertical tab":        {"POST / HTTP/1.1\r\n" + hostLine + "Transfer-Encoding: \vchunked\r\n\r\n", 400},
		"te underscore":          {"POST / HTTP/1.1\r\n" + hostLine + "Transfer_Encoding: chunked\r\n\r\n", 400},
		"cl underscore":          {"POST / HTTP/1.1\r\n" + hostLine + "Content_Length: 4\r\n\r\n", 400},
		"te in 1.0":              {"POST / HTTP/1.0\r\n" + hostLine + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		"space before colon":     {"POST / HTTP/1.1\r\n" + hostLine + "Content-Length : 4\r\n\r\nabcd", 400},
		"tab before colon":       {"POST / HTTP/1.1\r\n" + hostLine + "Transfer-Encoding\t: chunked\r\n\r\n", 400},
		"obs-fold":               {"POST / HTTP/1.1\r\n" + hostLine + "X: a\r\n b\r\n\r\n", 400},
		"folded te":              {"POST / HTTP/1.1\r\n" + hostLine + "Transfer-Encoding:\r\n chunked\r\n\r\n", 400},
		"first field folded":     {"GET / HTTP/1.1\r\n Host: b.example\r\n" + hostLine + "\r\n", 400},
		"bare lf":                {"GET / HTTP/1.1\n" + hostLine + "\r\n", 400},
		"bare lf in fields":      {"GET / HTTP/1.1\r\n" + hostLine + "X: a\nHost: b.example\r\n\r\n", 400},
		"bare cr":                {"GET / HTTP/1.1\r\n" + hostLine + "X: a\rHost: b.example\r\n\r\n", 400},
		"bare cr in the line":    {"GET / HTTP/1.1\r\r\n" + hostLine + "\r\n", 505},
		"leading crlf":           {"\r\nGET / HTTP/1.1\r\n" + hostLine + "\r\n", 400},
		"leading lf":             {"\nGET / HTTP/1.1\r\n" + hostLine + "\r\n", 400},
		"leading space":          {" GET / HTTP/1.1\r\n" + hostLine + "\r\n", 505},
		"nul in a field":         {"GET / HTTP/1.1\r\n" + hostLine + "X: a\x00b\r\n\r\n", 400},
		"nul in a name":          {"GET / HTTP/1.1\r\n" + hostLine + "X\x00: a\r\n\r\n", 400},
		"empty name":             {"GET / HTTP/1.1\r\n" + hostLine + ": a\r\n\r\n", 400},
		"no colon":               {"GET / HTTP/1.1\r\n" + hostLine + "X\r\n\r\n", 400},
		"two spaces":             {"GET  / HTTP/1.1\r\n" + hostLine + "\r\n", 505},
		"tab in the line":        {"GET\t/ HTTP/1.1\r\n" + hostLine + "\r\n", 400},
		"space in the target":    {"GET /a b HTTP/1.1\r\n" + hostLine + "\r\n", 505},
		"http 0.9":               {"GET /\r\n", 400},
		"http 2.0":               {"GET / HTTP/2.0\r\n" + hostLine + "\r\n", 505},
		"http 1.10":              {"GET / HTTP/1.10\r\n" + hostLine + "\r\n", 505},
		"http small":             {"GET / http/1.1\r\n" + hostLine + "\r\n", 505},
		"preface":                {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
		"small method":           {"get / HTTP/1.1\r\n" + hostLine + "\r\n", 400},
		"no host":                {"GET / HTTP/1.1\r\n\r\n", 400},
		"no host, 1.0":           {"GET / HTTP/1.0\r\n\r\n", 400},
		"two hosts":              {"GET / HTTP/1.1\r\n" + hostLine + "Host: b.example\r\n\r\n", 400},
		"two equal hosts":        {"GET / HTTP/1.1\r\n" + hostLine + hostLine + "\r\n", 400},
		"other host":             {"GET / HTTP/1.1\r\nHost: b.example\r\n\r\n", 403},
		"host list":              {"GET / HTTP/1.1\r\nHost: a.example, b.example\r\n\r\n", 403},
		"host final dot":         {"GET / HTTP/1.1\r\nHost: a.example.\r\n\r\n", 403},
		"host other port":        {"GET / HTTP/1.1\r\nHost: a.example:8080\r\n\r\n", 403},
		"host port sign":         {"GET / HTTP/1.1\r\nHost: a.example:+80\r\n\r\n", 403},
		"host port empty":        {"GET / HTTP/1.1\r\nHost: a.example:\r\n\r\n", 403},
		"host user":              {"GET / HTTP/1.1\r\nHost: a.example@b.example\r\n\r\n", 403},
		"host address":           {"GET / HTTP/1.1\r\nHost: 198.18.1.1\r\n\r\n", 403},
		"host underscore":        {"GET / HTTP/1.1\r\n" + hostLine + "ho_st: x\r\nX_Forwarded_Host: b.example\r\n\r\n", 403},
		"forwarded host":         {"GET / HTTP/1.1\r\n" + hostLine + "X-Forwarded-Host: b.example\r\n\r\n", 403},
		"forwarded":              {"GET / HTTP/1.1\r\n" + hostLine + "Forwarded: for=1.1.1.1;host=b.example\r\n\r\n", 403},
		"absolute, other":        {"GET http://b.example/ HTTP/1.1\r\n" + hostLine + "\r\n", 403},
		"absolute, other port":   {"GET http://a.example:8080/ HTTP/1.1\r\n" + hostLine + "\r\n", 403},
		"absolute, user":         {"GET http://a.example@b.example/ HTTP/1.1\r\n" + hostLine + "\r\n", 403},
		"absolute, password":     {"GET http://a.example:80@b.example/ HTTP/1.1\r\n" + hostLine + "\r\n", 403},
		"absolute, other scheme": {"GET https://a.example/ HTTP/1.1\r\n" + hostLine + "\r\n", 400},
		"absolute, other host":   {"GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n", 403},
		"no slash":               {"GET a.example HTTP/1.1\r\n" + hostLine + "\r\n", 400},
		"star":                   {"OPTIONS * HTTP/1.1\r\n" + hostLine + "\r\n", 400},
		"fragment":               {"GET /a#b HTTP/1.1\r\n" + hostLine + "\r\n", 400},
		"bad escape":             {"GET /%zz HTTP/1.1\r\n" + hostLine + "\r\n", 400},
		"raw letter":             {"GET /\xc3\xa4 HTTP/1.1\r\n" + hostLine + "\r\n", 400},
		"connect":                {"CONNECT a.example:80 HTTP/1.1\r\n" + hostLine + "\r\n", 403},
		"connect, path":          {"CONNECT / HTTP/1.1\r\n" + hostLine + "\r\n", 403},
		"trace":                  {"TRACE / HTTP/1.1\r\n" + hostLine + "\r\n", 403},
		"websocket":              {"GET / HTTP/1.1\r\n" + hostLine + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 403},
		"upgrade to tls":         {"GET / HTTP/1.1\r\n" + hostLine + "Connection: Upgrade\r\nUpgrade: TLS/1.2\r\n\r\n", 403},
		"expect other":           {"GET / HTTP/1.1\r\n" + hostLine + "Expect: money\r\n\r\n", 417},
		"huge head":              {"GET / HTTP/1.1\r\n" + hostLine + "X: " + strings.Repeat("a", 70000) + "\r\n\r\n", 431},
		"huge line":              {"GET /" + strings.Repeat("a", 70000) + " HTTP/1.1\r\n" + hostLine + "\r\n", 431},
		"many fields":            {"GET / HTTP/1.1\r\n" + hostLine + strings.Repeat("X: a\r\n", 300) + "\r\n", 431},
		"slow":                   {"GET / HTTP/1.1\r\n" + hostLine, 408},
		"ssh":                    {"SSH-2.0-OpenSSH\r\n", 400},
	} {
		status, reason := w.refused("a.example", 80, c.raw)
		if status != c.status {
			t.Errorf("%s: %d (%s), want %d", name, status, reason, c.status)
		}
	}
	select {
	case r := <-h.seen:
		t.Errorf("the host received %q", r)
	default:
	}
	if h.hits.Load() != 0 {
		t.Errorf("the host accepted %d connections", h.hits.Load())
	}
}

// TestBadBodies sends malformed bodies after a valid head: no bytes after them may be parsed as a request.
func TestBadBodies(t *testing.T) {
	w, h := clearWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
		io.WriteString(rw, "whole")
	}))
	const head = "POST /first HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n"
	const second = "GET /second HTTP/1.1\r\nHost: a.example\r\n\r\n"
	for name, body := range map[string]string{
		"size sign":       "+3\r\nabc\r\n0\r\n\r\n",
		"size minus":      "-3\r\nabc\r\n0\r\n\r\n",
		"size 0x":         "0x3\r\nabc\r\n0\r\n\r\n",
		"size space":      "3 \r\nabc\r\n0\r\n\r\n",
		"size leading":    " 3\r\nabc\r\n0\r\n\r\n",
		"size empty":      "\r\nabc\r\n0\r\n\r\n",
		"size huge":       "ffffffffffffffff3\r\nabc\r\n0\r\n\r\n",
		"size overflow":   "100000003\r\nabc\r\n0\r\n\r\n",
		"lf":              "3\nabc\r\n0\r\n\r\n",
		"lf in extension": "3;a\nabc\r\n0\r\n\r\n",
		"cr in extension": "3;a\rb\r\nabc\r\n0\r\n\r\n",
		"no crlf after":   "3\r\nabc0\r\n\r\n",
		"lf after":        "3\r\nabc\n0\r\n\r\n",
		"long chunk":      "3\r\nabcd\r\n0\r\n\r\n",
		"trailer lf":      "3\r\nabc\r\n0\r\nX: a\n\r\n",
		"trailer bad":     "3\r\nabc\r\n0\r\nX : a\r\n\r\n",
		"trailer huge":    "3\r\nabc\r\n0\r\nX: " + strings.Repeat("a", 9000) + "\r\n\r\n",
		"extension huge":  "3;" + strings.Repeat("a", 900) + "\r\nabc\r\n0\r\n\r\n",
	} {
		answer := w.say("a.example", 80, head+body+second)
		if !strings.HasPrefix(answer, "HTTP/1.1 400 ") || strings.Contains(answer, "whole") {
			t.Errorf("%s: answered %q", name, answer)
		}
		events := w.log.httpEvents()
		if ev := events[len(events)-1]; ev.Verdict != audit.Deny || ev.Status != 400 || ev.Reason == "" || strings.Contains(ev.Reason, "a.example") || ev.Path != "/first" {
			t.Errorf("%s: %+v", name, ev)
		}
	}
	for len(h.seen) > 0 {
		if r := <-h.seen; !strings.HasPrefix(r, "POST /first ") {
			t.Errorf("the host received %q", r)
		}
	}
	// Valid ones, with extensions and trailers, and two pipelined requests.
	answer := w.say("a.example", 80, head+"3;x=\"y\"\r\nabc\r\n00A\r\n0123456789\r\n0\r\nX: a\r\n\r\n"+second+
		"GET /third HTTP/1.0\r\nHost: a.example\r\n\r\n")
	if strings.Count(answer, "HTTP/1.1 200 OK") != 3 || strings.Count(answer, "whole") != 3 {
		t.Errorf("%q", answer)
	}
	if n := w.http(len(w.log.httpEvents()) - 2); n.BytesOut != 13 {
		t.Errorf("%+v", n)
	}
}

func (m *memory) httpEvents() (list []*audit.HTTP) {
	for _, ev := range m.all() {
		if ev.HTTP != nil {
			list = append(list, ev.HTTP)
		}
	}
	return list
}

// TestBadBodyAfterAnswer: a host responds before the malformed part of the body.
func TestBadBodyAfterAnswer(t *testing.T) {
	w, _ := clearWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		http.NewResponseController(rw).EnableFullDuplex()
		io.WriteString(rw, "early")
		rw.(http.Flusher).Flush()
		if _, err := io.ReadAll(r.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
	}))
	c := w.dial("a.example", 80)
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
	if _, err := io.ReadFull(c, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "no size\r\n")
	hear(c)
	if ev := w.http(1); ev.Verdict != audit.Deny || !strings.Contains(ev.Reason, "chunk") || ev.Status != 200 {
		t.Errorf("%+v", ev)
	}
}

// TestCutBody: the guest ends the connection within a body, which must not be reported as the host's failure.
func TestCutBody(t *testing.T) {
	w, _ := clearWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
	}), func(c *Config) { c.Limits.Stall = 300 * time.Millisecond })
	for n, end := range []func(*net.TCPConn){func(c *net.TCPConn) { c.CloseWrite() }, func(*net.TCPConn) {}} {
		c := w.dial("a.example", 80)
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\nabc")
		end(c)
		answer := hear(c)
		ev := w.http(n + 1)
		if !strings.HasPrefix(answer, fmt.Sprintf("HTTP/1.1 %d ", ev.Status)) || ev.Verdict != audit.Deny || ev.Status != []int{400, 408}[n] || !strings.Contains(ev.Reason, "the request's body") {
			t.Errorf("%q %+v", answer, ev)
		}
	}
}

// TestClearShapes sends unusual but valid requests.
func TestClearShapes(t *testing.T) {
	w, h := clearWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		for _, gone := range []string{"Connection", "Upgrade", "Http2-Settings", "X-Hop", "Te", "Proxy-Authorization", "Keep-Alive"} {
			if r.Header.Get(gone) != "" {
				rw.Header().Add("Leaked", gone)
			}
		}
		switch r.URL.Path {
		case "/204":
			rw.WriteHeader(204)
		case "/304":
			rw.Header().Set("Etag", `"x"`)
			rw.WriteHeader(304)
		case "/302":
			http.Redirect(rw, r, "http://b.example/", http.StatusFound)
		case "/length":
			rw.Header().Set("Content-Length", "4")
			io.WriteString(rw, "four")
		default:
			rw.(http.Flusher).Flush()
			io.WriteString(rw, "chunks")
		}
	}))
	const end = " HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"
	for name, c := range map[string]struct{ raw, first, last string }{
		"absolute":      {"GET http://a.example/x" + end, "HTTP/1.1 200", "0\r\n\r\n"},
		"absolute bare": {"GET http://a.example" + end, "HTTP/1.1 200", "0\r\n\r\n"},
		"host capitals": {"GET / HTTP/1.1\r\nHost: A.Example:80\r\nConnection: close\r\n\r\n", "HTTP/1.1 200", "0\r\n\r\n"},
		"h2c":           {"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n", "HTTP/1.1 200", "0\r\n\r\n"},
		"hop":           {"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close, X-Hop\r\nX-Hop: a\r\nTE: trailers\r\nKeep-Alive: 5\r\nProxy-Authorization: x\r\n\r\n", "HTTP/1.1 200", "0\r\n\r\n"},
		"head":          {"HEAD /length" + end, "HTTP/1.1 200", "\r\n\r\n"},
		"204":           {"GET /204" + end, "HTTP/1.1 204", "\r\n\r\n"},
		"304":           {"GET /304" + end, "HTTP/1.1 304", "\r\n\r\n"},
		"redirect":      {"GET /302" + end, "HTTP/1.1 302", "</a>.\n\n"},
		"length":        {"GET /length" + end, "HTTP/1.1 200", "\r\n\r\nfour"},
		"1.0":           {"GET / HTTP/1.0\r\nHost: a.example\r\n\r\n", "HTTP/1.1 200", "\r\n\r\nchunks"},
		"1.0 keep":      {"GET /length HTTP/1.0\r\nHost: a.example\r\nConnection: keep-alive\r\n\r\nGET /length HTTP/1.0\r\nHost: a.example\r\n\r\n", "HTTP/1.1 200", "\r\n\r\nfour"},
		"double slash":  {"GET //b.example/x" + end, "HTTP/1.1 200", "0\r\n\r\n"},
	} {
		got := w.say("a.example", 80, c.raw)
		if !strings.HasPrefix(got, c.first) || !strings.HasSuffix(got, c.last) || strings.Contains(got, "Leaked") {
			t.Errorf("%s: %q", name, got)
		}
		if name == "redirect" && !strings.Contains(got, "Location: http://b.example/") {
			t.Errorf("%s: %q", name, got)
		}
	}
	for len(h.seen) > 0 {
		if r := <-h.seen; !strings.HasSuffix(r, " a.example") {
			t.Errorf("the host received %q", r)
		}
	}
}

// TestExpect: clients wait for 100 Continue.
func TestExpect(t *testing.T) {
	w, _ := clearWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(rw, "got %s", b)
	}))
	c := w.dial("a.example", 80)
	io.WriteString(c, "POST /yes HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q %v", line, err)
	}
	r.ReadString('\n')
	io.WriteString(c, "body")
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := hear(resp.Body); got != "got body" {
		t.Errorf("%q", got)
	}
	// Denied before the body: no 100 Continue.
	got := w.say("a.example", 80, "POST /no HTTP/1.1\r\nHost: b.example\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 403") {
		t.Errorf("%q", got)
	}
}

// TestStream: events arrive as they are sent, and the end of the guest's connection reaches the host.
func TestStream(t *testing.T) {
	next, gone := make(chan struct{}), make(chan struct{})
	w, _ := clearWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for i := 0; ; i++ {
			fmt.Fprintf(rw, "data: %d\n\n", i)
			rw.(http.Flusher).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
				close(gone)
				return
			}
		}
	}))
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://a.example/", nil)
	resp, err := w.client("a.example").Do(req)
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(resp.Body)
	for i := range 3 {
		if line, err := r.ReadString('\n'); err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("%q %v", line, err)
		}
		r.ReadString('\n')
		next <- struct{}{}
	}
	cancel()
	for sent := true; sent; { // without TLS the loop finds out whether there is more to send
		select {
		case <-gone:
			sent = false
		case next <- struct{}{}:
		case <-time.After(time.Minute):
			t.Fatal("the connection to the host was not ended after the guest's")
		}
	}
	if ev := w.http(1); ev.Reason == "" || ev.BytesIn == 0 {
		t.Errorf("%+v", ev)
	}
}

// TestHalfClosed: guests close their side after the request, and wait for a slow or long response.
func TestHalfClosed(t *testing.T) {
	w, _ := clearWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if r.URL.Path != "/now" {
			time.Sleep(100 * time.Millisecond)
		}
		for i := range 10 {
			fmt.Fprintf(rw, "%d %s %s\n", i, r.Method, b)
			if r.URL.Path == "/slow" {
				rw.(http.Flusher).Flush()
				time.Sleep(20 * time.Millisecond)
			}
		}
	}))
	const end = " HTTP/1.1\r\nHost: a.example\r\n"
	for name, c := range map[string]struct {
		raw     string
		answers int
	}{
		"get":       {"GET /" + end + "\r\n", 1},
		"immediate": {"GET /now" + end + "\r\n", 1},
		"slow":      {"GET /slow" + end + "\r\n", 1},
		"close":     {"GET /slow" + end + "Connection: close\r\n\r\n", 1},
		"1.0":       {"GET /slow HTTP/1.0\r\nHost: a.example\r\n\r\n", 1},
		"body":      {"POST /slow" + end + "Content-Length: 4\r\n\r\nbody", 1},
		"chunks":    {"POST /slow" + end + "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", 1},
		"pipelined": {"GET /slow" + end + "\r\nGET /slow" + end + "\r\n", 2},
	} {
		t.Run(name, func(t *testing.T) {
			for range 3 {
				c2 := w.dial("a.example", 80)
				io.WriteString(c2, c.raw)
				if err := c2.CloseWrite(); err != nil {
					t.Fatal(err)
				}
				answer, err := io.ReadAll(c2)
				if err != nil || strings.Count(string(answer), "9 GET ")+strings.Count(string(answer), "9 POST body") != c.answers {
					t.Fatalf("%v after %q", err, answer)
				}
			}
		})
	}
	for _, ev := range w.log.httpEvents() {
		if ev.Status != 200 || ev.Reason != "" {
			t.Errorf("%+v", ev)
		}
	}
}

// TestGone: guests close the connection in various ways before the host responds. The host's connection ends too.
func TestGone(t *testing.T) {
	began, gone := make(chan struct{}, 1), make(chan struct{}, 1)
	think := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-r.Context().Done()
		gone <- struct{}{}
	})
	w, _ := clearWorld(t, think)
	o, _ := openedWorld(t, think)
	reset := func(c *net.TCPConn) { c.SetLinger(0); c.Close() }
	clear := func(t *testing.T) net.Conn { return w.dial("a.example", 80) }
	opened := func(t *testing.T) net.Conn {
		c := tls.Client(o.dial("a.example", 443), o.trusted())
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	for name, c := range map[string]struct {
		dial func(*testing.T) net.Conn
		end  func(net.Conn)
	}{
		"clear, reset": {clear, func(c net.Conn) { reset(c.(*net.TCPConn)) }},
		"clear, reset after a half close": {clear, func(c net.Conn) {
			c.(*net.TCPConn).CloseWrite()
			time.Sleep(50 * time.Millisecond)
			reset(c.(*net.TCPConn))
		}},
		"opened, in order":                 {opened, func(c net.Conn) { c.Close() }},
		"opened, without a word":           {opened, func(c net.Conn) { c.(*tls.Conn).NetConn().Close() }},
		"opened, reset":                    {opened, func(c net.Conn) { reset(c.(*tls.Conn).NetConn().(*net.TCPConn)) }},
		"opened, the end of what it sends": {opened, func(c net.Conn) { c.(*tls.Conn).CloseWrite() }},
	} {
		t.Run(name, func(t *testing.T) {
			conn := c.dial(t)
			io.WriteString(conn, "GET /v1/x HTTP/1.1\r\nHost: a.example\r\n\r\n")
			<-began
			c.end(conn)
			select {
			case <-gone:
			case <-time.After(time.Minute):
				t.Error("the host's connection was not ended")
			}
		})
	}
}

// TestAbortedAnswer: the host closes the connection during its response. The guest must be able to detect this.
func TestAbortedAnswer(t *testing.T) {
	w, _ := clearWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		io.WriteString(rw, "half")
		rw.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	for _, version := range []string{"1.0", "1.1"} {
		c := w.dial("a.example", 80)
		io.WriteString(c, "GET / HTTP/"+version+"\r\nHost: a.example\r\n\r\n")
		b, err := io.ReadAll(c)
		if err == nil {
			t.Errorf("HTTP/%s: an orderly end after %q", version, b)
		}
	}
}

// TestEvilAnswers: the host sends invalid responses.
func TestEvilAnswers(t *testing.T) {
	w := newWorld(t, []netpolicy.Rule{rule("a.example", ports(80))})
	addr := newAddr()
	w.zone.set("a.example", addr)
	answers := make(chan string, 1)
	l, err := net.Listen("tcp", addr.String()+":80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				io.WriteString(c, <-answers)
			}
			c.Close()
		}
	}()
	for name, answer := range map[string]string{
		"not http":     "SSH-2.0-x\r\n",
		"nothing":      "",
		"switching":    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
		"two lengths":  "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"endless head": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", maxAnswerHead+10000) + "\r\n\r\n",
	} {
		answers <- answer
		status, reason := w.refused("a.example", 80, "POST / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
		if status != 502 {
			t.Errorf("%s: %d %s", name, status, reason)
		}
	}
}

// TestNoAddress requests names without usable addresses.
func TestNoAddress(t *testing.T) {
	w := newWorld(t, []netpolicy.Rule{rule("dead.test", ports(80))}, func(c *Config) { c.Limits.Dial = 200 * time.Millisecond })
	w.zone.set("dead.test", newAddr())
	status, reason := w.refused("dead.test", 80, "GET / HTTP/1.1\r\nHost: dead.test\r\nConnection: close\r\n\r\n")
	if status != 502 || !strings.Contains(reason, "refused") {
		t.Errorf("%d %s", status, reason)
	}
	w.zone.set("dead.test")
	status, reason = w.refused("dead.test", 80, "GET / HTTP/1.1\r\nHost: dead.test\r\n\r\n")
	if status != 502 || !strings.Contains(reason, "has no address") {
		t.Errorf("%d %s", status, reason)
	}
}

// TestSlowHost: a host accepts a connection and does not respond.
func TestSlowHost(t *testing.T) {
	w, _ := clearWorld(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), func(c *Config) { c.Limits.Answer = 100 * time.Millisecond })
	if status, reason := w.refused("a.example", 80, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"); status != 504 || !strings.Contains(reason, "in time") {
		t.Errorf("%d %s", status, reason)
	}
}
