package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/client"
)

// portServer is a script that serves on two ports: HTTP on 8080, and on 8081 what sends "got N", with the number of bytes that were received up to
// the end of what the caller sends; after it was called once, it ends.
const portServer = `python3 -u -c '
import http.server, socket, threading
def count():
    s = socket.create_server(("::1", 8081), family=socket.AF_INET6)
    while True:
        c, _ = s.accept()
        n = 0
        while b := c.recv(65536):
            n += len(b)
        c.sendall(b"got %d\n" % n + b"x" * (1 << 20))
        c.close()
threading.Thread(target=count, daemon=True).start()
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        b = b"hello " + self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(b)))
        self.end_headers()
        self.wfile.write(b)
s = http.server.ThreadingHTTPServer(("127.0.0.1", 8080), H)
print("ready")
s.serve_forever()
'`

// TestPorts: a caller connects to TCP ports of a sandbox; each connection is in the run's record and in the access log, and ends with the sandbox and the token.
func TestPorts(t *testing.T) {
	c, s := newClient(t)
	box, err := c.Create(t.Context(), client.SandboxRequest{})
	check(t, err)
	if _, err := box.Dial(t.Context(), 8080); !client.IsStatus(err, http.StatusBadGateway) || !strings.Contains(err.Error(), "nothing listens on port 8080") {
		t.Errorf("a port where nothing listens: %v", err)
	}
	p, err := box.Start(t.Context(), client.ProcessRequest{Shell: portServer})
	check(t, err)
	if _, err := io.ReadFull(p.Output(t.Context(), client.Stdout), make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	ports, err := box.Ports(t.Context())
	if err != nil || fmt.Sprint(ports) != "[{8080 } {8081 }]" {
		t.Errorf("the ports are %v, %v", ports, err)
	}
	web := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return box.Dial(ctx, 8080) }}}
	for i := range 3 {
		res, err := web.Get(fmt.Sprint("http://sandbox/", i))
		check(t, err)
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(text) != fmt.Sprint("hello /", i) {
			t.Errorf("request %d: %q, %v", i, text, err)
		}
	}
	web.CloseIdleConnections()
	halfClosed(t, box)
	for port, status := range map[int]int{0: http.StatusBadRequest, 70000: http.StatusBadRequest} {
		if _, err := box.Dial(t.Context(), port); !client.IsStatus(err, status) {
			t.Errorf("port %d: %v", port, err)
		}
	}
	plain := caller{t, s.page(), s.admin.newToken("plain", "operator")}
	plain.ask(http.StatusUpgradeRequired, "GET", "/sandboxes/"+box.ID+"/ports/8080", nil, nil)
	withdrawn(t, s, box.ID)

	open, err := box.Dial(t.Context(), 8080)
	check(t, err)
	check(t, box.Destroy(t.Context()))
	ended(t, open)
	var text strings.Builder
	for _, r := range s.admin.records(box.ID) {
		if c := r.Inbound; c != nil {
			fmt.Fprintf(&text, "%s %d %s %s;", c.Op, c.Port, c.Who, c.Via)
			if c.Op == "close" && c.Port == 8081 && (c.BytesIn != 3<<20 || c.BytesOut != 1<<20+int64(len("got 3145728\n"))) {
				t.Errorf("the record has %d bytes in, %d out: %s", c.BytesIn, c.BytesOut, c.Reason)
			}
		}
	}
	if got := text.String(); !strings.HasPrefix(got, "refuse 8080 client tunnel;open 8080 client tunnel;") || strings.Count(got, "open") != 4 || strings.Count(got, "close") != 4 {
		t.Errorf("the record has the connections %s", got)
	}
	s.admin.verified(box.ID)
	s.stop()
	var seen int
	for _, a := range s.admin.looks() {
		if a.Route == "GET /api/v1/sandboxes/{run}/ports/{port}" && string(a.About) == box.ID {
			seen++
		}
	}
	if seen < 6 {
		t.Errorf("the access log has %d connections", seen)
	}
}

// halfClosed sends more than all buffers hold, ends its direction, and reads the answer.
func halfClosed(t *testing.T, box *client.Box) {
	t.Helper()
	conn, err := box.Dial(t.Context(), 8081)
	check(t, err)
	defer conn.Close()
	_, err = conn.Write(make([]byte, 3<<20))
	check(t, err)
	check(t, conn.(interface{ CloseWrite() error }).CloseWrite())
	answer, err := io.ReadAll(conn)
	if want := "got 3145728\n" + strings.Repeat("x", 1<<20); err != nil || string(answer) != want {
		t.Errorf("%d bytes, %.40q: %v", len(answer), answer, err)
	}
}

// withdrawn: a revoked token ends its connections.
func withdrawn(t *testing.T, s *served, id string) {
	t.Helper()
	token := s.admin.newToken("withdrawn", "operator")
	c, err := client.New(s.page(), token)
	check(t, err)
	conn, err := c.Sandbox(id).Dial(t.Context(), 8080)
	check(t, err)
	s.admin.must(0, "token", "rm", "withdrawn")
	ended(t, conn)
}

// ended waits until a connection has been closed by the other end.
func ended(t *testing.T, conn net.Conn) {
	t.Helper()
	defer conn.Close()
	check(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	if _, err := io.ReadAll(conn); errors.Is(err, context.DeadlineExceeded) || err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("the connection is open: %v", err)
	}
}
