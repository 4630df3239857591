package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/websocket"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/replay/access"
)

// webServer is a script that serves HTTP on port 8080: what it got, a stream whose second part waits for a request to /go, headers for browsers,
// a WebSocket that sends back what it receives, an answer 101 that was not asked for, and one that never comes.
const webServer = `python3 -u -c '
import base64, hashlib, http.server, json, threading
go = threading.Event()
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def answer(self, b, headers=()):
        self.send_response(200)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(b)))
        self.end_headers()
        self.wfile.write(b)
    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))
    def do_GET(self):
        if self.path == "/stream":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"4\r\none\n\r\n")
            go.wait()
            self.wfile.write(b"4\r\ntwo\n\r\n0\r\n\r\n")
        elif self.path == "/go":
            go.set()
            self.answer(b"")
        elif self.path == "/browser":
            self.answer(b"<p>", [("Strict-Transport-Security", "max-age=9"), ("Alt-Svc", "h2=\"x:1\""), ("Clear-Site-Data", "\"*\""), ("NEL", "{}"), ("Report-To", "{}"),
                ("Content-Type", "text/html"), ("Set-Cookie", "a=b; Path=/; domain=sandboxes.test; HttpOnly"), ("Set-Cookie", "c=d")])
        elif self.path == "/socket":
            accept = base64.b64encode(hashlib.sha1((self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", accept)
            self.end_headers()
            while head := self.rfile.read(2):
                mask, text = self.rfile.read(4), self.rfile.read(head[1] & 127)
                self.wfile.write(bytes([head[0], len(text)]) + bytes(c ^ mask[i % 4] for i, c in enumerate(text)))
            self.close_connection = True
        elif self.path == "/switch":
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\nHTTP/1.1 200 OK\r\n\r\n")
            self.close_connection = True
        elif self.path == "/garbage":
            self.wfile.write(b"garbage\r\n\r\n")
            self.close_connection = True
        elif self.path == "/page":
            self.answer(b"<!doctype html><link rel=icon href=data:,><title>page</title><p>a page", [("Content-Type", "text/html"), ("Set-Cookie", "__Host-custody_port=x; Secure; Path=/"), ("Set-Cookie", "custody_port=x")])
        elif self.path == "/worker.js":
            self.answer(b"onfetch = e => {}", [("Content-Type", "text/javascript")])
        elif self.path == "/endless":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while True:
                self.wfile.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        elif self.path == "/headers":
            self.answer(b"", [("X-Long", "x" * 70000)])
        elif self.path == "/never":
            threading.Event().wait()
        else:
            self.answer(json.dumps({"path": self.path, "headers": list(self.headers.items())}).encode())
print("ready")
http.server.ThreadingHTTPServer(("127.0.0.1", 8080), H).serve_forever()
'`

// web is HTTP to ports of sandboxes, below sandboxes.test.
type web struct {
	*served
	admin *door
	http  *http.Client
	cert  *x509.Certificate // nil without TLS
	root  string            // file with its authority; empty without TLS
}

// newWeb returns a client, and the sandboxes' hosts.
func newWeb(t *testing.T, settings string) (*client.Client, *web) {
	t.Helper()
	return webFor(t, publicDir(t), "port_domain: sandboxes.test", settings)
}

// newSecureWeb is newWeb with TLS, below sandboxes.localhost.
func newSecureWeb(t *testing.T) (*client.Client, *web) {
	t.Helper()
	dir := publicDir(t)
	writeAuthority(t, dir, "127.0.0.1", "*.sandboxes.localhost")
	return webFor(t, dir, fmt.Sprintf("port_domain: sandboxes.localhost, cert: %s/tls.crt, key: %[1]s/tls.key", dir), "")
}

// webFor starts a service with a section serve and further settings.
func webFor(t *testing.T, dir, section, settings string) (*client.Client, *web) {
	t.Helper()
	admin := newGVisorDoor(t)
	admin.asks = true
	path := filepath.Join(admin.home, "host.yaml")
	text, err := os.ReadFile(path)
	check(t, err)
	admin.write(path, string(text)+"serve: {"+section+", rate: {per_second: 1000, burst: 1000}}\n"+settings)
	s := serveFor(t, admin, dir)
	c, err := client.New(s.page(), admin.newToken("client", string(access.Operator)))
	check(t, err)
	w := &web{served: s, admin: admin}
	over := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) { return w.dial(ctx, network) }, ForceAttemptHTTP2: true}
	if root, err := os.ReadFile(filepath.Join(dir, "ca.crt")); err == nil {
		over.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool()}
		over.TLSClientConfig.RootCAs.AppendCertsFromPEM(root)
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
		check(t, err)
		w.cert, w.root = pair.Leaf, filepath.Join(dir, "ca.crt")
		c.HTTP.Transport = &http.Transport{TLSClientConfig: over.TLSClientConfig.Clone(), ForceAttemptHTTP2: true}
	}
	w.http = &http.Client{Transport: over, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(w.http.CloseIdleConnections)
	return c, w
}

func (w *web) dial(ctx context.Context, network string) (net.Conn, error) {
	page, err := url.Parse(w.page())
	if err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, network, page.Host)
}

// dialTLS makes a connection for HTTP/1.1.
func (w *web) dialTLS(ctx context.Context, host string) (net.Conn, error) {
	conn, err := w.dial(ctx, "tcp")
	if err != nil {
		return nil, err
	}
	over := w.http.Transport.(*http.Transport).TLSClientConfig
	return tls.Client(conn, &tls.Config{RootCAs: over.RootCAs, ServerName: host, NextProtos: []string{"http/1.1"}}), nil
}

// start starts the server in a new sandbox.
func (w *web) start(t *testing.T, c *client.Client) *client.Box {
	t.Helper()
	box, err := c.Create(t.Context(), client.SandboxRequest{})
	check(t, err)
	p, err := box.Start(t.Context(), client.ProcessRequest{Shell: webServer})
	check(t, err)
	if _, err := io.ReadFull(p.Output(t.Context(), client.Stdout), make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	return box
}

// portHost is the name of port 8080 of a sandbox.
func portHost(id string) string { return "8080-" + id + ".sandboxes.test" }

// do makes a request with headers in pairs. The caller closes the answer.
func (w *web) do(t *testing.T, method, host, path, body string, headers ...string) *http.Response {
	t.Helper()
	scheme := "http"
	if w.cert != nil {
		scheme = "https"
	}
	req, err := http.NewRequestWithContext(t.Context(), method, scheme+"://"+host+path, strings.NewReader(body))
	check(t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	res, err := w.http.Do(req)
	check(t, err)
	t.Cleanup(func() { res.Body.Close() })
	return res
}

func (w *web) read(t *testing.T, res *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(res.Body)
	check(t, err)
	return string(text)
}

// TestPortsByName: HTTP and WebSocket to a port of a sandbox by its host name. The sandbox gets nothing that is Custody's, what it answers has no
// effect beyond its own host, and each connection is recorded.
func TestPortsByName(t *testing.T) {
	t.Parallel()
	c, w := newWeb(t, "")
	box := w.start(t, c)
	token := w.admin.newToken("browser", "operator")
	bearer := []string{"Authorization", "Bearer " + token}
	at := portHost(box.ID)

	t.Run("request", func(t *testing.T) {
		res := w.do(t, "GET", strings.ToUpper(at), "/a%2Fb?tenant=x&q=%zz;", "", append(bearer, "Cookie", "a=b; custody_session=stolen; __Host-custody_session=stolen; c=d", "X-Forwarded-For", "192.0.2.1", "Custody-Other", "x")...)
		var got struct {
			Path    string
			Headers [][2]string
		}
		check(t, json.Unmarshal([]byte(w.read(t, res)), &got))
		text := fmt.Sprint(got.Headers)
		for _, wrong := range []string{"cst_", "Authorization", "Custody", "custody", "192.0.2.1", "127.0.0.1", "stolen"} {
			if strings.Contains(text, wrong) {
				t.Errorf("the sandbox gets %s: %s", wrong, text)
			}
		}
		if got.Path != "/a%2Fb?tenant=x&q=%zz;" || !strings.Contains(text, "[Cookie a=b; c=d]") || !strings.Contains(strings.ToLower(text), "[host "+at+"]") {
			t.Errorf("the sandbox gets %q %s", got.Path, text)
		}
		if res.Header.Get("Content-Security-Policy") != "" || res.Header.Get("Cache-Control") != "" {
			t.Errorf("the answer has headers of the page: %v", res.Header)
		}
	})
	t.Run("own authorization", func(t *testing.T) {
		text := w.read(t, w.do(t, "GET", at, "/", "", "Custody-Token", token, "Authorization", "Basic YTpi"))
		if !strings.Contains(text, `["Authorization", "Basic YTpi"]`) || strings.Contains(text, "cst_") {
			t.Error(text)
		}
	})
	t.Run("body", func(t *testing.T) {
		want := strings.Repeat("0123456789", 200_000)
		if got := w.read(t, w.do(t, "POST", at, "/", want, bearer...)); got != want {
			t.Errorf("%d bytes came back", len(got))
		}
	})
	t.Run("stream", func(t *testing.T) {
		lines := bufio.NewReader(w.do(t, "GET", at, "/stream", "", bearer...).Body)
		first, err := lines.ReadString('\n')
		check(t, err)
		w.do(t, "GET", at, "/go", "", bearer...)
		rest, err := io.ReadAll(lines)
		if err != nil || first+string(rest) != "one\ntwo\n" {
			t.Errorf("%q, %q, %v", first, rest, err)
		}
	})
	t.Run("answer", func(t *testing.T) {
		h := w.do(t, "GET", at, "/browser", "", bearer...).Header
		for _, name := range []string{"Strict-Transport-Security", "Alt-Svc", "Clear-Site-Data", "Nel", "Report-To"} {
			if v := h.Get(name); v != "" {
				t.Errorf("%s: %s", name, v)
			}
		}
		if got := strings.Join(h["Set-Cookie"], ", "); got != "a=b; Path=/; HttpOnly, c=d" || h.Get("Content-Type") != "text/html" {
			t.Errorf("%v", h)
		}
	})
	t.Run("socket", func(t *testing.T) { w.socket(t, at) })
	t.Run("bad answers", func(t *testing.T) {
		for _, path := range []string{"/switch", "/garbage"} {
			res := w.do(t, "GET", at, path, "", bearer...)
			if text := w.read(t, res); res.StatusCode != http.StatusBadGateway || !strings.Contains(text, "sent no answer in HTTP") || res.Header.Get("Content-Security-Policy") != dataOnly {
				t.Errorf("%s: %d %s %v", path, res.StatusCode, text, res.Header)
			}
		}
	})
	t.Run("listed", func(t *testing.T) {
		ports, err := box.Ports(t.Context())
		check(t, err)
		page, err := url.Parse(w.page())
		check(t, err)
		if want := "http://" + at + ":" + page.Port() + "/"; len(ports) != 1 || ports[0].URL != want {
			t.Errorf("the ports are %v, want %s", ports, want)
		}
	})
	t.Run("preflight", func(t *testing.T) {
		asks := []string{"Origin", "https://other.example", "Access-Control-Request-Method", "PUT"}
		res := w.do(t, "OPTIONS", at, "/", "", asks...)
		if text := w.read(t, res); res.StatusCode != http.StatusForbidden || !strings.Contains(text, "cross-origin") {
			t.Errorf("%s: %s", res.Status, text)
		}
		for name := range res.Header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("the answer has %s", name)
			}
		}
		if res := w.do(t, "OPTIONS", at, "/", "", append(asks, bearer...)...); res.StatusCode != http.StatusNotImplemented { // of the sandbox
			t.Errorf("with a credential: %s", res.Status)
		}
	})
	t.Run("refused", func(t *testing.T) { w.refused(t, box.ID, token) })
	check(t, box.Destroy(t.Context()))
	if res := w.do(t, "GET", at, "/", "", bearer...); res.StatusCode != http.StatusGone {
		t.Errorf("a sandbox that has ended: %s", res.Status)
	}
	w.admin.verified(box.ID)
	seen := map[audit.InboundOp]int{}
	for _, r := range w.admin.records(box.ID) {
		if c := r.Inbound; c != nil && c.Who == "browser" && c.Via == "http" && c.Port == 8080 {
			seen[c.Op]++
		}
	}
	if seen[audit.InboundOpen] < 8 || seen[audit.InboundOpen] != seen[audit.InboundClose] {
		t.Errorf("the record has the connections %v", seen)
	}
	w.stop()
	var queries []string
	for _, a := range w.admin.looks() {
		if a.Route == "HTTP {port}-{run}" && string(a.About) == box.ID && a.Verdict == audit.Allow {
			queries = append(queries, string(a.Query))
		}
	}
	if text := strings.Join(queries, "\n"); !strings.Contains(text, "port=8080&method=POST&path=/") || strings.Contains(text, "tenant=") {
		t.Errorf("the access log has %s", text)
	}
}

// dataOnly is the policy of all that is neither the page nor a sandbox's.
const dataOnly = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; sandbox"

// socket sends messages over a WebSocket. The removal of its token ends it.
func (w *web) socket(t *testing.T, at string) {
	token := w.admin.newToken("socket", "operator")
	config, err := websocket.NewConfig("ws://"+at+"/socket", "http://"+at)
	check(t, err)
	config.Header.Set("Authorization", "Bearer "+token)
	conn, err := w.dial(t.Context(), "tcp")
	check(t, err)
	ws, err := websocket.NewClient(config, conn)
	check(t, err)
	for _, want := range []string{"hello", "again"} {
		check(t, websocket.Message.Send(ws, want))
		var got string
		if err := websocket.Message.Receive(ws, &got); err != nil || got != want {
			t.Errorf("%q came back: %v", got, err)
		}
	}
	w.admin.must(0, "token", "rm", "socket")
	ended(t, conn)
}

// refused makes requests that do not reach the sandbox.
func (w *web) refused(t *testing.T, id, token string) {
	auditor := w.admin.newToken("auditor", "auditor")
	for name, c := range map[string]struct {
		host    string
		headers []string
		status  int
	}{
		"no credential":     {portHost(id), nil, http.StatusUnauthorized},
		"a wrong token":     {portHost(id), []string{"Custody-Token", "cst_wrong"}, http.StatusUnauthorized},
		"a cookie":          {portHost(id), []string{"Cookie", "custody_session=x"}, http.StatusUnauthorized},
		"two tokens":        {portHost(id), []string{"Custody-Token", token, "Authorization", "Bearer " + token}, http.StatusBadRequest},
		"the role auditor":  {portHost(id), []string{"Authorization", "Bearer " + auditor}, http.StatusForbidden},
		"another tenant":    {portHost(id), []string{"Authorization", "Bearer " + token, "Custody-Tenant", "other"}, http.StatusForbidden},
		"unknown sandbox":   {portHost("r-unknown"), []string{"Authorization", "Bearer " + token}, http.StatusNotFound},
		"nothing listens":   {"9-" + id + ".sandboxes.test", []string{"Authorization", "Bearer " + token}, http.StatusBadGateway},
		"a host with no id": {"8080.sandboxes.test", []string{"Authorization", "Bearer " + token}, http.StatusMisdirectedRequest},
		"a host below":      {"x." + portHost(id), []string{"Authorization", "Bearer " + token}, http.StatusMisdirectedRequest},
		"port 0":            {"0-" + id + ".sandboxes.test", []string{"Authorization", "Bearer " + token}, http.StatusMisdirectedRequest},
		"port 08080":        {"0" + portHost(id), []string{"Authorization", "Bearer " + token}, http.StatusMisdirectedRequest},
		"the domain":        {"sandboxes.test", []string{"Authorization", "Bearer " + token}, http.StatusMisdirectedRequest},
	} {
		for _, path := range []string{"/", "/api/v1/runs"} {
			res := w.do(t, "GET", c.host, path, "", c.headers...)
			if text := w.read(t, res); res.StatusCode != c.status || !strings.Contains(text, "urn:custody:problem:") {
				t.Errorf("%s: %d %s", name, res.StatusCode, text)
			}
		}
	}
}
