package api_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/store/storetest"
)

// FuzzQuery sends any query to each route that reads parameters: the answer is one of those that the
// document has for bad and good requests, never 5xx, and never with a record of another tenant.
func FuzzQuery(f *testing.F) {
	w := newWorld(f)
	w.ingest("", storetest.Run("r-1", 40, 20)...)
	w.ingest("acme", madeUp("r-other", 40, 0)...)
	token := w.token("", access.Auditor)
	paths := []string{"/runs", "/runs/r-1/records", "/runs/r-1/state", "/runs/r-1/lanes", "/runs/r-1/changes", "/runs/r-1/output", "/runs/r-1/export", "/search", "/findings", "/access", "/compare"}
	for i, q := range []string{"", "limit=3&cursor=", "kind=exec&q=git&order=desc&limit=2", "at=%2B5ms&lines=3", "from=%2B1ms&to=%2B9ms&columns=7", "from=12:00:00.001", "after=3&limit=2",
		"format=cef&kind=exec", "q=%00%ff&from=2026-11-03T12:00:00Z", "rule=x", "from=2026-01-01T00:00:00Z&to=2027-01-01T00:00:00Z", "a=r-1&b=r-other", "argv=%3C%3E",
		"hash=" + strings.Repeat("ab", 32), "tenant=acme", "limit=1&limit=2", "status=sealed&findings=0", "at=%2B9999999999h", "from=%2B2562047h47m16.854775807s"} {
		f.Add(byte(i), q)
	}
	f.Fuzz(func(t *testing.T, which byte, query string) {
		path := paths[int(which)%len(paths)]
		req := httptest.NewRequest(http.MethodGet, "/api/v1"+path, nil)
		req.URL.RawQuery = query
		req.Host = "127.0.0.1"
		req.RemoteAddr = "127.0.0.1:1"
		req.Header.Set("Authorization", "Bearer "+token)
		got := httptest.NewRecorder()
		w.server.ServeHTTP(got, req)
		if got.Code >= 500 || got.Code < 200 {
			t.Fatalf("%s?%s: %d\n%s", path, query, got.Code, got.Body)
		}
		if strings.Contains(got.Body.String(), `"run":"r-other"`) {
			t.Fatalf("%s?%s shows another tenant's run", path, query)
		}
	})
}

// FuzzCursor sends any cursor: it is refused, unless the server made it for this very request.
func FuzzCursor(f *testing.F) {
	w := newWorld(f)
	w.ingest("", storetest.Run("r-1", 40, 20)...)
	token := w.token("", access.Viewer)
	ask := func(path, cursor string) *httptest.ResponseRecorder {
		req := httptest.NewRequest(http.MethodGet, "/api/v1"+path+"limit=3&cursor="+url.QueryEscape(cursor), nil)
		req.Host, req.RemoteAddr = "127.0.0.1", "127.0.0.1:1"
		req.Header.Set("Authorization", "Bearer "+token)
		got := httptest.NewRecorder()
		w.server.ServeHTTP(got, req)
		return got
	}
	good := map[string]bool{}
	for _, path := range []string{"/runs/r-1/records?", "/search?q=git&"} {
		body := ask(path, "").Body.String()
		_, after, _ := strings.Cut(body, `"next":"`)
		next, _, _ := strings.Cut(after, `"`)
		if next == "" {
			f.Fatal(body)
		}
		good[path+next] = true
		f.Add(next)
		f.Add(next[:len(next)-2])
		f.Add(next + "AA")
	}
	f.Add("eyJxIjo1fQ")
	f.Add("\x00")
	f.Fuzz(func(t *testing.T, cursor string) {
		for _, path := range []string{"/runs/r-1/records?", "/search?q=git&", "/runs?"} {
			if got := ask(path, cursor); cursor != "" && (got.Code == 200) != good[path+cursor] {
				t.Fatalf("%s with %q: %d %s", path, cursor, got.Code, got.Body)
			}
		}
	})
}
