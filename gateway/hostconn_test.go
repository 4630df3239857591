package gateway

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
)

// rawHost is a web server that responds to each request with arbitrary bytes, and then waits for the next one.
func (w *world) rawHost(name string, port uint16, say func(c net.Conn, r *http.Request)) {
	w.Helper()
	addr := newAddr()
	l, err := net.Listen("tcp", netip.AddrPortFrom(addr, port).String())
	if err != nil {
		w.Fatal(err)
	}
	if port == 443 {
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*w.ca.leaf(w, name)}, NextProtos: []string{"http/1.1"}})
	}
	w.zone.set(name, addr)
	var serving sync.WaitGroup
	talk := func(c net.Conn) {
		defer c.Close()
		for r := bufio.NewReader(c); ; {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			io.Copy(io.Discard, req.Body) // an incomplete body is not an error here
			say(c, req)
		}
	}
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.Cleanup(func() { c.Close() })
			serving.Go(func() { talk(c) })
		}
	})
	w.Cleanup(func() { l.Close(); go serving.Wait() })
}

// loud collects what libraries write to the program's log during a test.
func loud(t *testing.T) *noise {
	n := &noise{}
	old := log.Writer()
	log.SetOutput(n)
	t.Cleanup(func() { log.SetOutput(old) })
	return n
}

type noise struct {
	mu   sync.Mutex
	said bytes.Buffer
}

func (n *noise) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.said.Write(p)
}

func (n *noise) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.said.String()
}

// TestSurplus: a host sends more than its response: its credential, bytes that look like the next response, and others.
// None of it reaches the guest or the program's log, and the record reports it.
func TestSurplus(t *testing.T) {
	head := func(status string, fields ...string) string {
		return "HTTP/1.1 " + status + "\r\n" + strings.Join(append(fields, "", ""), "\r\n")
	}
	echo := "you sent x-api-key: " + apiValue + "\r\n"
	for _, c := range []struct {
		name, method string
		first, later string     // sent immediately and after a pause
		body         string     // that the guest receives
		rule         audit.Rule // of the finding; "echo": Credentials receives a report; empty: nothing
		status       int
	}{
		{name: "head", method: "HEAD", first: head("200 OK", "Content-Length: 40") + echo, rule: "echo"},
		{name: "head, chunked", method: "HEAD", first: head("200 OK", "Transfer-Encoding: chunked") + "2a\r\n" + echo + "\r\n0\r\n\r\n", rule: "echo"},
		{name: "204", method: "GET", first: head("204 No Content") + echo, rule: "echo", status: 204},
		{name: "304", method: "GET", first: head("304 Not Modified", "ETag: \"1\"") + echo, rule: "echo", status: 304},
		{name: "short", method: "GET", first: head("200 OK", "Content-Length: 2") + "ok" + echo, body: "ok", rule: "echo"},
		{name: "chunks", method: "GET", first: head("200 OK", "Transfer-Encoding: chunked") + "2\r\nok\r\n0\r\n\r\n" + echo, body: "ok", rule: "echo"},
		{name: "base64", method: "GET", first: head("200 OK", "Content-Length: 2") + "ok" + encode64("x "+apiValue), body: "ok", rule: "echo"},
		{name: "later", method: "GET", first: head("200 OK", "Content-Length: 2") + "ok", later: echo, body: "ok", rule: "echo"},
		{name: "an answer", method: "HEAD", first: head("200 OK") + head("200 OK", "Content-Length: 4", "X-Sent: "+apiValue) + "evil", rule: "echo"},
		{name: "hints", method: "GET", first: head("103 Early Hints", "Link: </"+apiValue+">") + head("200 OK", "Content-Length: 2") + "ok" + head("103 Early Hints", "Link: </"+apiValue+">"), body: "ok", rule: "echo"},
		{name: "blank line", method: "GET", first: head("200 OK", "Content-Length: 2") + "ok\r\n", body: "ok", rule: "answer-overrun"},
		{name: "nothing secret", method: "GET", first: head("200 OK", "Content-Length: 2") + "ok" + strings.Repeat("x", 9000), body: "ok", rule: "answer-overrun"},
		{name: "another answer", method: "HEAD", first: head("200 OK") + head("200 OK", "Content-Length: 4") + "evil", rule: "answer-overrun"},
		{name: "the connection is to close", method: "GET", first: head("200 OK", "Content-Length: 2", "Connection: close") + "ok" + echo, body: "ok", rule: "echo"},
		{name: "amid the value", method: "GET", first: head("200 OK", "Content-Length: 30") + "you sent x-api-key: " + apiValue + "\r\n", rule: "echo", status: 502},
		{name: "a timeout in order", method: "GET", first: head("200 OK", "Content-Length: 2") + "ok", later: head("408 Request Timeout", "Connection: close"), body: "ok"},
		{name: "to the end", method: "GET", first: head("200 OK", "Connection: close"), body: "", later: ""},
	} {
		for proto, change := range map[string][]func(*http.Transport){"HTTP/1.1": nil, "HTTP/2": {withH2}} {
			t.Run(c.name+" "+proto, func(t *testing.T) {
				said := loud(t)
				w := newKeyWorld(t, nil)
				w.rawHost("a.example", 443, func(conn net.Conn, r *http.Request) {
					if r.URL.Path == "/second" {
						io.WriteString(conn, head("200 OK", "Content-Length: 6")+"second")
						return
					}
					if r.Header.Get("X-Api-Key") != apiValue {
						t.Error("the host received no credential")
					}
					io.WriteString(conn, c.first)
					if c.later != "" {
						time.Sleep(100 * time.Millisecond)
						io.WriteString(conn, c.later)
					}
					if strings.Contains(c.first, "Connection: close") {
						conn.Close()
					}
				})
				client := w.client("a.example", change...)
				req, _ := http.NewRequest(c.method, "https://a.example/first", nil)
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				status := c.status
				if status == 0 {
					status = 200
				}
				if body := hear(resp.Body); resp.StatusCode != status || body != c.body && status != 502 || strings.Contains(body, apiValue[:8]) {
					t.Errorf("%d %q", resp.StatusCode, body)
				}
				time.Sleep(150 * time.Millisecond)
				resp, err = client.Get("https://a.example/second") // on the same connection of the guest
				if err != nil {
					t.Fatal(err)
				}
				if body := hear(resp.Body); body != "second" {
					t.Errorf("the next answer is %d %q", resp.StatusCode, body)
				}
				told := w.keys.sightings()
				var found []*audit.Finding
				for _, ev := range w.log.all() {
					if ev.Finding != nil {
						found = append(found, ev.Finding)
					}
				}
				switch c.rule {
				case "echo":
					if len(told) != 1 || told[0].secret != "api" || told[0].host != "a.example" || told[0].where != "after an answer" || told[0].seq == 0 || len(found) > 0 {
						t.Errorf("sightings %+v; findings %+v", told, found)
					}
				case "":
					if len(told)+len(found) > 0 {
						t.Errorf("sightings %+v; findings %+v", told, found)
					}
				default:
					if len(told) > 0 || len(found) != 1 || found[0].Rule != c.rule || found[0].Secret != "api" || found[0].Seq == 0 {
						t.Errorf("sightings %+v; findings %+v", told, found)
					}
				}
				if s := said.String(); s != "" {
					t.Errorf("the program's log has %q", s)
				}
				w.checkRecord()
			})
		}
	}
}

// TestSurplusOther: hosts without a credential send more than their responses.
func TestSurplusOther(t *testing.T) {
	said := loud(t)
	w := newKeyWorld(t, nil)
	more := func(c net.Conn, r *http.Request) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokand more of "+apiValue)
	}
	w.rawHost("b.example", 443, more)
	w.rawHost("plain.example", 80, more)
	for _, url := range []string{"https://b.example/", "http://plain.example/"} {
		client := w.client(strings.Split(url, "/")[2])
		for range 3 {
			resp, err := client.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			if body := hear(resp.Body); body != "ok" {
				t.Errorf("%s: %d %q", url, resp.StatusCode, body)
			}
		}
	}
	if told := w.keys.sightings(); len(told) > 0 {
		t.Errorf("sightings %v", told)
	}
	if s := said.String(); s != "" {
		t.Errorf("the program's log has %q", s)
	}
}

// TestBadTrailer: a host ends its response with an invalid trailer that contains the credential. Neither its text nor
// its marker is in the record, where it would be taken for the guest's.
func TestBadTrailer(t *testing.T) {
	for _, change := range [][]func(*http.Transport){nil, {withH2}} {
		said := loud(t)
		w := newKeyWorld(t, nil)
		w.rawHost("a.example", 443, func(c net.Conn, r *http.Request) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nyou sent "+apiValue+"\r\n\r\n")
		})
		resp, err := w.client("a.example", change...).Get("https://a.example/")
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err == nil || strings.Contains(string(body), apiValue) {
			t.Errorf("a whole answer: %q", body)
		}
		w.client("a.example").CloseIdleConnections()
		if ev := w.nextHTTP(); ev.Reason != "the exchange is incomplete" {
			t.Errorf("%+v", ev)
		}
		w.Gateway.Close()
		for _, ev := range w.log.all() {
			if ev.Flow != nil && strings.Contains(ev.Flow.Reason, "REDACTED") {
				t.Errorf("%+v", ev.Flow)
			}
		}
		if told := w.keys.sightings(); len(told) > 0 || said.String() != "" {
			t.Errorf("sightings %v; the log has %q", told, said)
		}
		w.checkRecord()
	}
}
