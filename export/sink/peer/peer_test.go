package peer

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/export"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for v, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, " 7 ": 7 * time.Second, "-1": 0, "1.5": 0, "x": 0, "99999999999999999999": 0,
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute, "Fri, 02 Jan 2020 03:05:05 GMT": 0,
	} {
		if got := retryAfter(v, now); got != want {
			t.Errorf("%q: %v, want %v", v, got, want)
		}
	}
}

// TestRedirect: no other server gets the credential, or the events.
func TestRedirect(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	h := NewHTTP(nil)
	defer h.Close()
	a, err := h.Post(t.Context(), server.URL, "text/plain", []byte("x"), false, 100)
	var later *export.Later
	if err != nil || !errors.As(a.Outcome(), &later) || !strings.Contains(a.Outcome().Error(), "redirects are not followed") {
		t.Error(err, a.Outcome())
	}
}

// TestAnswersAreBounded: neither an endless answer nor a slow one blocks a sink.
func TestAnswersAreBounded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("\x00x\n", 1000)); err != nil {
				return
			}
			if r.URL.Path == "/drip" {
				w.(http.Flusher).Flush()
				time.Sleep(10 * time.Millisecond)
			}
		}
	}))
	defer server.Close()
	h := NewHTTP(nil)
	defer h.Close()
	a, err := h.Post(t.Context(), server.URL, "text/plain", nil, false, 10000)
	if err != nil || len(a.Body) != 10000 || !a.Cut || strings.ContainsAny(a.Said(), "\x00\n") || len(a.Said()) > 400 {
		t.Error(err, len(a.Body), a.Said())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := h.Post(ctx, server.URL+"/drip", "text/plain", nil, false, 1<<30); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestSecret(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Setenv("CUSTODY_TEST_SECRET", "from env")
	t.Setenv("CUSTODY_TEST_EMPTY", "")
	for _, c := range []struct {
		s    Secret
		want string
	}{
		{Secret{}, ""}, {Secret{File: write("a", " s3cret\r\n")}, "s3cret"}, {Secret{Env: "CUSTODY_TEST_SECRET"}, "from env"},
	} {
		if v, err := c.s.Value(); v != c.want || err != nil {
			t.Errorf("%+v: %q, %v", c.s, v, err)
		}
	}
	for _, s := range []Secret{{File: write("b", "")}, {File: write("c", " \n")}, {File: write("d", "a\nX-Header: b")}, {File: filepath.Join(dir, "none")},
		{Env: "CUSTODY_TEST_EMPTY"}, {Env: "CUSTODY_TEST_NONE"}, {File: "x", Env: "y"}} {
		if v, err := s.Value(); err == nil {
			t.Errorf("%+v: %q", s, v)
		}
	}
	path := write("renewed", "one")
	s := Secret{File: path}
	s.Value()
	write("renewed", "two")
	if v, err := s.Value(); v != "two" || err != nil {
		t.Error(v, err)
	}
}
