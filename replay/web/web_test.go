package web

import (
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, h http.Handler, method, path string, headers ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, "http://127.0.0.1/", nil)
	r.URL.Path = path
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) []byte {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// assets returns the paths of all that is embedded.
func assets(t *testing.T) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := fs.WalkDir(dist, "dist", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		all[strings.TrimPrefix(name, "dist")], err = dist.ReadFile(name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestPage(t *testing.T) {
	h := Handler()
	r := get(t, h, "GET", "/")
	page := string(body(t, r))
	if r.StatusCode != 200 || r.Header.Get("Content-Type") != "text/html; charset=utf-8" || r.Header.Get("Cache-Control") != "no-cache" {
		t.Errorf("the page is served as %d %v", r.StatusCode, r.Header)
	}
	names := regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page, -1)
	if len(names) < 3 {
		t.Fatalf("the page names %v", names)
	}
	for _, name := range names {
		if r := get(t, h, "GET", "/"+name[1]); r.StatusCode != 200 {
			t.Errorf("the page names %s, which is answered with %d", name[1], r.StatusCode)
		}
	}
	// What the policy forbids must not be in the page either: it would only be silently ignored.
	for _, bad := range []string{"<style", " style=", "javascript:", " onload=", " onclick="} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if inline := regexp.MustCompile(`<script[^>]*>[^<]`).FindString(page); inline != "" {
		t.Errorf("the page has a script of its own: %s", inline)
	}
}

func TestPolicy(t *testing.T) {
	h := Handler()
	for _, path := range []string{"/", "/index.html", "/NOTICE.txt", "/nothing"} {
		h := get(t, h, "GET", path).Header
		if h.Get("Content-Security-Policy") != Policy || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Frame-Options") != "DENY" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s is served with %v", path, h)
		}
	}
	for _, directive := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(Policy, directive) {
			t.Errorf("the policy lacks %s", directive)
		}
	}
	for _, hole := range []string{"unsafe", "*", "http:", "https:", "data:", "blob:"} {
		if strings.Contains(Policy, hole) {
			t.Errorf("the policy has %s", hole)
		}
	}
}

func TestAssets(t *testing.T) {
	h := Handler()
	kinds := map[string]string{"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "html": "text/html; charset=utf-8", "txt": "text/plain; charset=utf-8", "svg": "image/svg+xml"}
	sum := 0
	for path, want := range assets(t) {
		plain := get(t, h, "GET", path)
		if got := body(t, plain); !bytes.Equal(got, want) || plain.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s is not served as it is", path)
		}
		if kind := kinds[path[strings.LastIndex(path, ".")+1:]]; kind == "" || plain.Header.Get("Content-Type") != kind {
			t.Errorf("%s is served as %q", path, plain.Header.Get("Content-Type"))
		}
		if fixed := strings.Contains(plain.Header.Get("Cache-Control"), "immutable"); fixed != strings.HasPrefix(path, "/assets/") {
			t.Errorf("%s is served with Cache-Control: %s", path, plain.Header.Get("Cache-Control"))
		}
		packed := get(t, h, "GET", path, "Accept-Encoding", "br, gzip")
		raw := body(t, packed)
		sum += len(raw)
		if packed.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(bytes.NewReader(raw))
			if err != nil {
				t.Fatal(err)
			}
			if raw, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(raw, want) {
			t.Errorf("%s is another file when it is compressed", path)
		}
		if packed.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s is served with Vary: %q", path, packed.Header.Get("Vary"))
		}
	}
	if t.Logf("compressed: %d bytes in all", sum); sum > 500_000 {
		t.Errorf("the assets have %d bytes compressed, 500,000 are the limit", sum)
	}
}

// Offline means that nothing in the assets can ask anyone else: addresses in them are names of XML namespaces or text.
func TestOffline(t *testing.T) {
	for path, content := range assets(t) {
		if path == "/NOTICE.txt" {
			continue
		}
		for _, address := range regexp.MustCompile(`(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^"'\x60 ]*`).FindAllString(string(content), -1) {
			if !strings.HasPrefix(address, "http://www.w3.org/") {
				t.Errorf("%s names %s", path, address)
			}
		}
		for _, code := range []string{"eval(", "new Function(", "innerHTML=", "document.write(", "importScripts("} {
			if code == "innerHTML=" && preactOnly(content) {
				continue
			}
			if strings.Contains(string(content), code) {
				t.Errorf("%s has %s", path, code)
			}
		}
	}
}

// preactOnly reports whether innerHTML is set at the one place where Preact does it, for a
// property that no component of ours has (and that Trusted Types would refuse).
func preactOnly(content []byte) bool {
	return bytes.Contains(content, []byte("dangerouslySetInnerHTML")) && bytes.Count(content, []byte("innerHTML=")) <= 3
}

func TestNotModified(t *testing.T) {
	h := Handler()
	for _, coding := range []string{"identity", "gzip"} {
		first := get(t, h, "GET", "/", "Accept-Encoding", coding)
		tag := first.Header.Get("ETag")
		for _, header := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
			r := get(t, h, "GET", "/", "Accept-Encoding", coding, "If-None-Match", header)
			if r.StatusCode != 304 || len(body(t, r)) != 0 || r.Header.Get("ETag") != tag {
				t.Errorf("If-None-Match: %s is answered with %d", header, r.StatusCode)
			}
		}
		if r := get(t, h, "GET", "/", "Accept-Encoding", coding, "If-None-Match", `"other"`); r.StatusCode != 200 {
			t.Errorf("another tag is answered with %d", r.StatusCode)
		}
	}
	if a, b := get(t, h, "GET", "/"), get(t, h, "GET", "/", "Accept-Encoding", "gzip"); a.Header.Get("ETag") == b.Header.Get("ETag") {
		t.Error("two representations have one tag")
	}
}

func TestEncodings(t *testing.T) {
	for header, want := range map[string]bool{
		"": false, "gzip": true, "GZIP": true, "br, gzip;q=0.5": true, "gzip;q=0": false, "gzip; q=0.000": false, "*": true, "*;q=0": false,
		"*;q=0, gzip": true, "gzip;q=0, *": false, "br": false, "gzipped": false, "gzip;q=nonsense": false, "x-gzip": true,
	} {
		if got := acceptsGzip(header); got != want {
			t.Errorf("%q: %v", header, got)
		}
	}
}

func TestRefusals(t *testing.T) {
	h := Handler()
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"} {
		if r := get(t, h, method, "/"); r.StatusCode != 405 || r.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s is answered with %d", method, r.StatusCode)
		}
	}
	for _, path := range []string{"/nothing", "/assets/", "/assets", "/../web.go", "/assets/../index.html", "/dist/index.html", "//", "/index.html/", "/ui/src/main.tsx", "/%2e%2e/web.go", ""} {
		if r := get(t, h, "GET", path); r.StatusCode != 404 {
			t.Errorf("%q is answered with %d", path, r.StatusCode)
		}
	}
	if r := get(t, h, "HEAD", "/"); r.StatusCode != 200 || len(body(t, r)) != 0 || r.Header.Get("Content-Length") == "" {
		t.Errorf("HEAD is answered with %d and %v", r.StatusCode, r.Header)
	}
}
