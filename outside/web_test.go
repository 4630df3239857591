package outside

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit/proof/transit"
	"github.com/custody-project/custody/internal/endpoint"
)

// newWeb returns a Web of the test's program.
func newWeb(t *testing.T) *Web {
	t.Helper()
	w := NewWeb()
	w.worker = testWorker
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// answers are a server's, by path.
var answers = map[string]http.HandlerFunc{
	"/echo": func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Of", r.Method+" "+r.Header.Get("X-From"))
		w.WriteHeader(http.StatusConflict)
		w.Write(text)
	},
	"/redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/echo", http.StatusFound) },
	"/long":     func(w http.ResponseWriter, r *http.Request) { w.Write(make([]byte, 3*maxBody)) },
	"/header": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", 32<<10))
	},
	"/reset": func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) },
}

func newServer(t *testing.T, start func(http.Handler) *httptest.Server) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	for path, answer := range answers {
		mux.HandleFunc(path, answer)
	}
	s := start(mux)
	t.Cleanup(s.Close)
	return s
}

// TestWeb: answers come through the process with bounded sizes, redirects are not followed, and errors name their cause.
func TestWeb(t *testing.T) {
	t.Parallel()
	s := newServer(t, httptest.NewServer)
	w := newWeb(t)
	for path, c := range map[string]struct {
		status int
		length int
		fails  string
	}{
		"/echo":     {http.StatusConflict, 100 << 10, ""},
		"/redirect": {http.StatusFound, 0, ""},
		"/long":     {http.StatusOK, maxBody, ""},
		"/header":   {0, 0, "server response headers exceeded"},
		"/reset":    {0, 0, "EOF"},
	} {
		sent := bytes.Repeat([]byte("x"), 100<<10) // more than a message
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+path, bytes.NewReader(sent))
		must(t, err)
		r.Header.Set("X-From", "root")
		answer, err := w.RoundTrip(r)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: %v", path, err)
			}
			continue
		}
		must(t, err)
		text, err := io.ReadAll(answer.Body)
		must(t, err)
		if answer.StatusCode != c.status || len(text) != c.length {
			t.Errorf("%s: HTTP %d with %d bytes", path, answer.StatusCode, len(text))
		}
		if path == "/echo" && (answer.Header.Get("X-Of") != "POST root" || !bytes.Equal(text, sent)) {
			t.Errorf("%s: %v", path, answer.Header)
		}
	}
	s.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	must(t, err)
	if _, err := w.RoundTrip(r); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("without a server: %v", err)
	}
}

// TestWebTrust: the process checks certificates, against the authorities that SSL_CERT_FILE names.
func TestWebTrust(t *testing.T) {
	s := newServer(t, httptest.NewTLSServer)
	own := filepath.Join(t.TempDir(), "own.pem")
	must(t, os.WriteFile(own, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o644))
	for file, fails := range map[string]string{"": "certificate", own: ""} {
		t.Setenv("SSL_CERT_FILE", file)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/echo", nil)
		must(t, err)
		_, err = newWeb(t).RoundTrip(r)
		if (err != nil) != (fails != "") || err != nil && !strings.Contains(err.Error(), fails) {
			t.Errorf("with %q: %v", file, err)
		}
	}
}

// TestWebClosed: a Web that was closed starts no process, and one without requests none either.
func TestWebClosed(t *testing.T) {
	t.Parallel()
	w := newWeb(t)
	must(t, w.Close())
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:1/", nil)
	must(t, err)
	if _, err := w.RoundTrip(r); err == nil || w.process != nil {
		t.Errorf("after Close: %v", err)
	}
}

// TestWebKilled: another process is started in place of one that was killed.
func TestWebKilled(t *testing.T) {
	t.Parallel()
	s := newServer(t, httptest.NewServer)
	w := newWeb(t)
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/echo", strings.NewReader("x"))
		must(t, err)
		answer, err := w.RoundTrip(r)
		must(t, err)
		if answer.StatusCode != http.StatusConflict {
			t.Errorf("HTTP %d", answer.StatusCode)
		}
		must(t, w.process.Kill())
		<-w.process.Done()
	}
}

// TestWebTo: the process speaks to a server with certificates that only root's process has read, and to one behind a unix socket that it
// cannot reach.
func TestWebTo(t *testing.T) {
	t.Parallel()
	secure := newServer(t, httptest.NewTLSServer)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	socket := filepath.Join(t.TempDir(), "socket")
	newServer(t, func(h http.Handler) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		l, err := net.Listen("unix", socket)
		must(t, err)
		s.Listener.Close()
		s.Listener = l
		s.Start()
		return s
	})
	w := newWeb(t)
	for _, c := range []struct {
		to    endpoint.Server
		url   string
		fails string
	}{
		{endpoint.Server{Authorities: authority}, secure.URL, ""},
		{endpoint.Server{Authorities: authority}, secure.URL, ""}, // over the same connection
		{endpoint.Server{}, secure.URL, "certificate"},
		{endpoint.Server{Authorities: authority, Name: "other.example"}, secure.URL, "other.example"},
		{endpoint.Server{Socket: socket}, "http://localhost", ""},
		{endpoint.Server{Socket: socket + "x"}, "http://localhost", "no such file"},
	} {
		carrier, err := w.To(c.to)
		must(t, err)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url+"/echo", strings.NewReader("x"))
		must(t, err)
		answer, err := carrier.RoundTrip(r)
		if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s by %s%q: %v", c.url, c.to.Name, c.to.Socket, err)
		}
		if err == nil && answer.StatusCode != http.StatusConflict {
			t.Errorf("%s: HTTP %d", c.url, answer.StatusCode)
		}
	}
	if _, err := w.To(endpoint.Server{Authorities: []byte("x")}); err == nil {
		t.Error("an authority that is none is accepted")
	}
}

// TestWebServers: the process keeps connections to a bounded number of servers.
func TestWebServers(t *testing.T) {
	t.Parallel()
	w := &web{known: map[[32]byte]*http.Transport{}}
	for i := range 3 * maxServers {
		_, err := w.transport(endpoint.Server{Name: fmt.Sprint(i)}, nil)
		must(t, err)
		if len(w.known) > maxServers {
			t.Fatalf("%d servers", len(w.known))
		}
	}
}

// TestKey: a key in Vault's transit engine signs through the process.
func TestKey(t *testing.T) {
	t.Parallel()
	s := startVault(t)
	s.call(t, "POST", "sys/mounts/transit", map[string]any{"type": "transit"})
	s.call(t, "POST", "transit/keys/host", map[string]any{"type": "ed25519"})
	w := newWeb(t)
	env := map[string]string{"VAULT_ADDR": s.Address, "VAULT_TOKEN": s.Token}
	source, err := transit.New(transit.Config{Name: "host", Dir: t.TempDir(), Getenv: func(k string) string { return env[k] }, To: w.To})
	must(t, err)
	key, err := source.Key(t.Context())
	must(t, err)
	for range 2 {
		_, err = key.Signer.Sign([]byte("text")) // it checks the signature
		must(t, err)
		must(t, w.process.Kill())
		<-w.process.Done()
	}
}
