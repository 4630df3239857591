package api

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
)

// The content security policies. Data is never a page; a page loads
// only what this server serves.
const (
	dataPolicy = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; sandbox"
	pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

// secured sets the security headers of every answer, and answers 500 where next panics.
func (s *Server) secured(next http.Handler) http.Handler {
	inner := s.recovered(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", dataPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Embedder-Policy", "require-corp")
		h.Set("Permissions-Policy", "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()")
		inner.ServeHTTP(w, r)
	})
}

// zipped compresses large responses. Their lengths are padded at random, against attacks that
// guess a secret in a response by its compressed length (BREACH).
func zipped(next http.Handler) http.Handler {
	zip, err := gzhttp.NewWrapper(gzhttp.MinSize(2048), gzhttp.CompressionLevel(gzip.BestSpeed), gzhttp.RandomJitter(32, 0, false), gzhttp.ContentTypes([]string{
		"application/json", "application/problem+json", "text/html", "text/javascript", "text/css", "image/svg+xml", "application/wasm"}))
	if err != nil {
		panic(err) // the options are valid
	}
	return zip(next)
}

// recovered answers 500 if a handler panics, and logs the reason.
func (s *Server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler {
				panic(p)
			}
			s.fail(w, r, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}()
		next.ServeHTTP(w, r)
	})
}

// pageOf serves the page from assets, with the caching that they allow.
func pageOf(assets http.Handler) http.Handler {
	page := zipped(assets)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", pagePolicy)
		w.Header().Set("Cache-Control", "no-cache")
		page.ServeHTTP(w, r)
	})
}

func newID() string { return rand.Text()[:16] }
