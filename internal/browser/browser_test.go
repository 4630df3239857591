package browser_test

import (
	"bytes"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/custody-project/custody/internal/browser"
)

// TestPage opens a page, clicks it, and sees that what must not be is noted.
func TestPage(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write([]byte(`<!doctype html><link rel=icon href="data:,"><title>t</title><button id=b onclick="this.textContent='clicked'">press</button><input id=i>`))
	}))
	defer server.Close()
	p := browser.Open(t, server.URL, 640, 480)
	p.Click("#b")
	p.WaitText("clicked")
	p.Type("#i", "abc")
	if got := browser.Eval[string](p, `document.querySelector("#i").value`); got != "abc" {
		t.Errorf("typed %q", got)
	}
	if got := p.Text("#b"); got != "clicked" {
		t.Errorf("the button says %q", got)
	}
	t.Setenv("CUSTODY_SHOTS", t.TempDir())
	img := p.Shot("page")
	if img.Bounds().Dx() != 640 || img.Bounds().Dy() != 480 || len(browser.Colours(img)) < 5 {
		t.Errorf("the picture: %v with %d colours", img.Bounds(), len(browser.Colours(img)))
	}
	b, err := os.ReadFile(filepath.Join(os.Getenv("CUSTODY_SHOTS"), "page.png"))
	if kept, err2 := png.Decode(bytes.NewReader(b)); err != nil || err2 != nil || kept.Bounds() != img.Bounds() {
		t.Errorf("the picture that was kept: %v, %v", err, err2)
	}
	if problems := p.Problems(); len(problems) > 0 {
		t.Errorf("an honest page has problems: %q", problems)
	}
	p.Allow("expected")
	browser.Eval[bool](p, `console.error("expected one"), true`)
	if problems := p.Problems(); len(problems) > 0 {
		t.Errorf("an allowed problem was noted: %q", problems)
	}
}

// TestProblems has a page do what it must not, in a browser whose problems are looked at here.
func TestProblems(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Write([]byte(`<!doctype html><link rel=icon href="data:,"><body>x<script>console.error("first"); new Image().src = "http://127.0.0.2:1/second"; setTimeout(() => { throw new Error("third"); document.title = "done" })</script>`))
	}))
	defer server.Close()
	inner := &watched{TB: t}
	p := browser.Open(inner, server.URL, 320, 200)
	p.Wait(`document.readyState == "complete"`)
	browser.Eval[bool](p, `new Promise(r => setTimeout(() => r(true), 100))`)
	all := strings.Join(p.Problems(), "\n")
	for _, want := range []string{"first", "127.0.0.2:1/second", "third"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q was not noted in:\n%s", want, all)
		}
	}
	inner.end()
	if inner.errors == 0 {
		t.Error("a page with problems did not fail its test")
	}
}

// watched is a test whose errors are counted.
type watched struct {
	testing.TB
	cleanup []func()
	errors  int
}

func (w *watched) Error(args ...any) { w.errors++ }
func (w *watched) Cleanup(f func())  { w.cleanup = append(w.cleanup, f) }
func (w *watched) end() {
	for i := len(w.cleanup) - 1; i >= 0; i-- {
		w.cleanup[i]()
	}
}
