package serve

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/sampleruns"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/store"
)

// running is a service under test, and its end.
type running struct {
	Address
	end func() error
}

// start runs serve until the test's end, and returns once it is ready.
func start(t *testing.T, o Options, serve func(context.Context, Options) error) running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan Address, 1), make(chan error, 1)
	o.Notice = func(text string) { t.Log(text) }
	o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	o.Ready = func(a Address) error { ready <- a; return nil }
	go func() { ended <- serve(ctx, o) }()
	end := sync.OnceValue(func() error { stop(); return <-ended })
	t.Cleanup(func() { end() })
	select {
	case a := <-ready:
		return running{a, end}
	case err := <-ended:
		ended <- err
		t.Fatalf("the service ended: %v", err)
	}
	return running{}
}

// onHost serves h on a free port.
func onHost(h *host.Host, run store.Run) func(context.Context, Options) error {
	return func(ctx context.Context, o Options) error {
		l, err := Listen(ctx, "127.0.0.1:0")
		if err != nil {
			return err
		}
		return Host(ctx, h, l, HostOptions{Options: o, Run: run, Version: "test"})
	}
}

// login exchanges the one-time token of a link for a session, and returns a client that has it.
func login(t *testing.T, link string) (*http.Client, error) {
	t.Helper()
	base, fragment, _ := strings.Cut(link, "#once=")
	once, _, _ := strings.Cut(fragment, "/")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar, Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	req, err := http.NewRequestWithContext(t.Context(), "POST", base+"api/v1/session", strings.NewReader(`{"token":"`+once+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", strings.TrimSuffix(base, "/"))
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		body, _ := io.ReadAll(res.Body)
		return nil, errors.New(res.Status + ": " + string(body))
	}
	return client, nil
}

func get(t *testing.T, c *http.Client, address string) (int, string) {
	t.Helper()
	res, err := c.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// TestHost: the login link works once and opens the run; the access is in an access log that is sealed when the service ends.
func TestHost(t *testing.T) {
	dir := t.TempDir()
	id := sampleruns.Record(t, dir, sampleruns.Large(20))
	h, err := host.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, Options{Config: access.Config{}.WithDefaults()}, onHost(h, store.Run{ID: id}))
	if u, err := url.Parse(s.Link); err != nil || !strings.HasSuffix(u.Fragment, "/runs/"+id) || s.File != "" || s.LinkFor != DefaultLinkFor {
		t.Errorf("the address is %+v, %v", s.Address, err)
	}
	if status, _ := get(t, http.DefaultClient, s.URL+"api/v1/runs"); status != http.StatusUnauthorized {
		t.Errorf("without a session: %d", status)
	}
	client, err := login(t, s.Link)
	if err != nil {
		t.Fatal(err)
	}
	if status, body := get(t, client, s.URL+"api/v1/runs"); status != http.StatusOK || !strings.Contains(body, id) {
		t.Errorf("the runs: %d, %s", status, body)
	}
	if _, err := login(t, s.Link); err == nil {
		t.Error("the link works twice")
	}
	if err := s.end(); err != nil {
		t.Fatal(err)
	}
	st, err := h.Reader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	logs, err := st.Runs(t.Context(), store.Filter{Class: store.Accesses})
	if err != nil || len(logs) != 1 || logs[0].Status != store.Sealed {
		t.Errorf("access logs %+v, %v", logs, err)
	}
}

// TestLinkFile: a link that is not to be printed is in a file, which ends with the service.
func TestLinkFile(t *testing.T) {
	h, err := host.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, Options{Config: access.Config{}.WithDefaults(), LinkToFile: true, LinkFor: time.Hour}, onHost(h, store.Run{}))
	link, err := os.ReadFile(s.File)
	if err != nil || s.Link != "" || !strings.HasPrefix(string(link), s.URL+"#once=") {
		t.Errorf("%+v with a file of %q, %v", s.Address, link, err)
	}
	if info, err := os.Stat(s.File); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.File); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the end: %v", err)
	}
}

// TestReadyFails: an error of Ready ends the service, and its link's file.
func TestReadyFails(t *testing.T) {
	h, err := host.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	broken, file := errors.New("broken pipe"), ""
	o := Options{Config: access.Config{}.WithDefaults(), LinkToFile: true, Notice: func(string) {}, Ready: func(a Address) error { file = a.File; return broken }}
	if err := Host(t.Context(), h, l, HostOptions{Options: o}); !errors.Is(err, broken) {
		t.Errorf("Host: %v", err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the link's file: %v", err)
	}
	if _, err := l.Accept(); err == nil {
		t.Error("the listener is open")
	}
}

// TestBundle: one bundle is served without any state of a host; one that is altered is refused, and one that no key verifies has a doubt.
func TestBundle(t *testing.T) {
	dir := t.TempDir()
	id := sampleruns.Record(t, dir, sampleruns.Large(20))
	h, err := host.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := h.Proofs().Bundle(t.Context(), &text, "", id, host.BundleOptions{}); err != nil {
		t.Fatal(err)
	}
	keys, err := h.Keys().Trusted()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "run.bundle")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := OpenBundle(t.Context(), path, proof.Trust{Keys: keys}, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil { // the copy is what is read
		t.Fatal(err)
	}
	if b.Doubt != nil || b.Shown.ID != id {
		t.Errorf("bundle of %s: %v", b.Shown.ID, b.Doubt)
	}
	s := start(t, Options{Config: access.Config{}.WithDefaults()}, func(ctx context.Context, o Options) error {
		l, err := Listen(ctx, "127.0.0.1:0")
		if err != nil {
			return err
		}
		return b.Serve(ctx, l, o)
	})
	client, err := login(t, s.Link)
	if err != nil {
		t.Fatal(err)
	}
	if status, body := get(t, client, s.URL+"api/v1/runs/"+id+"/bundle"); status != http.StatusOK || body != text.String() {
		t.Errorf("the bundle: %d, %d bytes of %d", status, len(body), text.Len())
	}
	if err := errors.Join(s.end(), b.Close()); err != nil {
		t.Error(err)
	}

	refused := new(RefusedError)
	if _, err := ReadBundle(t.Context(), bytes.NewReader(text.Bytes()), proof.Trust{}, true); !errors.As(err, &refused) {
		t.Errorf("strict, without its key: %v", err)
	}
	unknown, err := ReadBundle(t.Context(), bytes.NewReader(text.Bytes()), proof.Trust{}, false)
	if err != nil || unknown.Doubt == nil {
		t.Fatalf("without its key: %v", err)
	}
	if err := unknown.Close(); err != nil {
		t.Error(err)
	}
	altered := bytes.Clone(text.Bytes())
	altered[len(altered)/2] ^= 1
	if _, err := ReadBundle(t.Context(), bytes.NewReader(altered), proof.Trust{Keys: keys}, false); !errors.As(err, &refused) {
		t.Errorf("altered: %v", err)
	}
}

// TestAddress: the URL has a name under which the certificate or the link is valid.
func TestAddress(t *testing.T) {
	for _, c := range []struct {
		config access.Config
		local  bool
		want   string
	}{
		{access.Config{Listen: "127.0.0.1:8333"}, true, "http://127.0.0.1:8333/"},
		{access.Config{Listen: "[::1]:8333"}, false, "http://[::1]:8333/"},
		{access.Config{Listen: "127.0.0.1:8333", Names: []string{"custody.example.com", "localhost"}}, true, "http://localhost:8333/"},
		{access.Config{Listen: "0.0.0.0:8443", Names: []string{"custody.example.com"}, Cert: "c", Key: "k"}, false, "https://custody.example.com:8443/"},
	} {
		s := service{Options: Options{Config: c.config}}
		if got := s.address(c.local); got != c.want {
			t.Errorf("%+v: %s, want %s", c.config, got, c.want)
		}
	}
}
