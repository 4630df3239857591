package access_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/replay/access"
)

// TestRaw: requests as no client library sends them, at a real server. Only the first is answered.
func TestRaw(t *testing.T) {
	s := newSite(t, access.Config{})
	server := httptest.NewUnstartedServer(s.mux)
	server.Config.ErrorLog = quiet()
	server.Start()
	defer server.Close()
	ann := s.token(t, "ann", "acme", access.Viewer)
	bob := s.token(t, "bob", "beta", access.Admin)
	at := "GET /api/v1/viewer/r-1"
	for name, c := range map[string]struct {
		request string
		status  int
	}{
		"as it should be":        {at + " HTTP/1.1\nHost: localhost\nAuthorization: Bearer ANN\n", 200},
		"absolute address":       {"GET http://localhost/api/v1/viewer/r-1 HTTP/1.1\nHost: evil.example\nAuthorization: Bearer ANN\n", 200}, // RFC 9112: Host is not looked at
		"absolute, elsewhere":    {"GET http://evil.example/api/v1/viewer/r-1 HTTP/1.1\nHost: localhost\nAuthorization: Bearer ANN\n", 421},
		"two hosts":              {at + " HTTP/1.1\nHost: localhost\nHost: evil.example\nAuthorization: Bearer ANN\n", 400},
		"no host":                {at + " HTTP/1.1\nAuthorization: Bearer ANN\n", 400},
		"no host, old protocol":  {at + " HTTP/1.0\nAuthorization: Bearer ANN\n", 421},
		"host with a user":       {at + " HTTP/1.1\nHost: localhost@evil.example\nAuthorization: Bearer ANN\n", 400},
		"space before the colon": {at + " HTTP/1.1\nHost: localhost\nAuthorization : Bearer ANN\n", 400},
		"folded header":          {at + " HTTP/1.1\nHost: localhost\nAuthorization: Bearer\n ANN\n", 200}, // read as one line
		"folded second":          {at + " HTTP/1.1\nHost: localhost\nAuthorization: Bearer ANN\n Bearer BOB\n", 401},
		"two, in two cases":      {at + " HTTP/1.1\nHost: localhost\nauthorization: Bearer ANN\nAUTHORIZATION: Bearer BOB\n", 400},
		"empty, then one":        {at + " HTTP/1.1\nHost: localhost\nAuthorization:\nAuthorization: Bearer ANN\n", 400},
		"a NUL":                  {at + " HTTP/1.1\nHost: localhost\nAuthorization: Bearer ANN\x00\n", 400},
		"tenant in two cases":    {at + " HTTP/1.1\nHost: localhost\nAuthorization: Bearer ANN\ncustody-tenant: acme\nCUSTODY-TENANT: beta\n", 400},
		"tenant in a fragment":   {at + "#?tenant=beta HTTP/1.1\nHost: localhost\nAuthorization: Bearer ANN\n", 403},                                   // for a server it is none
		"length and chunks":      {at + " HTTP/1.1\nHost: localhost\nAuthorization: Bearer ANN\nContent-Length: 4\nTransfer-Encoding: chunked\n", 200}, // net/http takes the chunks and closes
		"two lengths":            {at + " HTTP/1.1\nHost: localhost\nAuthorization: Bearer ANN\nContent-Length: 4\nContent-Length: 5\n", 400},
		"an encoded path":        {"GET /api/v1/viewer%2f..%2fadmin/r-1 HTTP/1.1\nHost: localhost\nAuthorization: Bearer ANN\n", 404},
		"dots in the path":       {"GET /api/v1/viewer/../admin/r-1 HTTP/1.1\nHost: localhost\nAuthorization: Bearer ANN\n", 307},
		"another method's case":  {"get /api/v1/viewer/r-1 HTTP/1.1\nHost: localhost\nAuthorization: Bearer ANN\n", 405},
	} {
		text := strings.NewReplacer("\n", "\r\n", "ANN", ann, "BOB", bob).Replace(c.request + "Connection: close\n\n")
		status, body := raw(t, server.Listener.Addr().String(), text)
		if status != c.status || status == 200 && !strings.Contains(body, "ann@acme as viewer") {
			t.Errorf("%s: %d %s, want %d", name, status, body, c.status)
		}
	}
	for _, e := range s.log.all() {
		if e.Who == "bob" {
			t.Errorf("somebody else was recognised: %+v", e)
		}
	}
}

// raw sends bytes and returns the answer.
func raw(t *testing.T, address, text string) (int, string) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}
