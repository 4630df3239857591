package api_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/store/storetest"
)

// TestTLS follows a quiet run over HTTP/2 for longer than a slow reader would be waited for: the stream stays,
// and brings what comes then. A download over the same connection is whole.
func TestTLS(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	segs := storetest.Segments("r-1", storetest.Frames("r-1", storetest.Events(40)), 20)
	w.ingest("", segs[0])
	token := w.token("", access.Auditor)
	cert := httptest.NewUnstartedServer(nil) // for its certificate
	cert.StartTLS()
	config := &tls.Config{Certificates: cert.TLS.Certificates}
	pool := cert.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	cert.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.server.Serve(ctx, l, config) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	https := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer https.CloseIdleConnections()
	get := func(path string) *http.Response {
		req, err := http.NewRequest("GET", "https://"+l.Addr().String()+"/api/v1"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := https.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if res.ProtoMajor != 2 || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %s", path, res.Proto, res.Status)
		}
		return res
	}
	live := get("/runs/r-1/live")
	defer live.Body.Close()
	time.Sleep(12 * time.Second)
	w.ingest("", segs[1:]...)
	n, over := 0, false
	for lines := bufio.NewScanner(live.Body); lines.Scan(); {
		n += strings.Count(lines.Text(), `{"seq":`)
		over = over || lines.Text() == "event: end"
	}
	if n != 20 || !over {
		t.Errorf("%d records after a while of silence, want 20; ended %v", n, over)
	}
	file := get("/runs/r-1/export")
	defer file.Body.Close()
	n = 0
	for lines := bufio.NewScanner(file.Body); lines.Scan(); {
		n++
	}
	if n != 40 {
		t.Errorf("%d lines, want 40", n)
	}
}
