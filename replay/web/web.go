// Package web is the user interface of custody serve: a page and its assets, which are
// embedded in the binary. The page speaks to nothing but the API of the server that it
// came from (see package api), and shows nothing that the API does not give it.
//
// The sources are in ui, the built assets in dist: hack/web/build makes the assets from the
// sources, and hack/web/build --check reports whether they match.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:generate ../../hack/web/build

//go:embed dist
var dist embed.FS

// Policy is the Content-Security-Policy that the page is served with: scripts, styles and
// requests of its own origin and nothing else, no inline code, and no way from text to code.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Handler serves the page at / and its assets below /assets/. It holds them in memory,
// compressed once. Nothing in them is secret: they need no authentication.
func Handler() http.Handler {
	assets := map[string]asset{}
	err := fs.WalkDir(dist, "dist", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := dist.ReadFile(name)
		if err != nil {
			return err
		}
		assets[strings.TrimPrefix(name, "dist")] = newAsset(name, body)
		return nil
	})
	if err != nil {
		panic(fmt.Sprintf("web: the embedded assets cannot be read: %v", err)) // a broken build
	}
	assets["/"] = assets["/index.html"]
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(w, r, assets) })
}

// asset is a file as it is served.
type asset struct {
	body, packed []byte
	kind         string // Content-Type
	tag          string // ETag
	fixed        bool   // its name holds a hash of its bytes
}

func newAsset(name string, body []byte) asset {
	sum := sha256.Sum256(body)
	kind := mime.TypeByExtension(path.Ext(name))
	switch path.Ext(name) { // not what the machine's own tables say
	case ".js":
		kind = "text/javascript; charset=utf-8"
	case ".css":
		kind = "text/css; charset=utf-8"
	case ".html":
		kind = "text/html; charset=utf-8"
	case ".txt":
		kind = "text/plain; charset=utf-8"
	case ".svg":
		kind = "image/svg+xml"
	}
	return asset{body: body, packed: pack(body), kind: kind, fixed: strings.HasPrefix(name, "dist/assets/"),
		tag: `"` + base64.RawURLEncoding.EncodeToString(sum[:16]) + `"`}
}

// pack compresses body. A buffer in memory takes whatever is written to it.
func pack(body []byte) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		panic(fmt.Sprintf("web: %v", err)) // the level is a constant
	}
	z.Write(body)
	z.Close()
	return b.Bytes()
}

func serve(w http.ResponseWriter, r *http.Request, assets map[string]asset) {
	Harden(w.Header())
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the page is only read", http.StatusMethodNotAllowed)
		return
	}
	a, found := assets[r.URL.Path]
	if !found {
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, "there is no such page; the user interface is at /", http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "no-cache")
	if a.fixed {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	body, tag := a.body, a.tag
	if acceptsGzip(r.Header.Get("Accept-Encoding")) && len(a.packed) < len(a.body) {
		body, tag = a.packed, strings.TrimSuffix(a.tag, `"`)+`-gzip"`
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", tag)
	if matches(r.Header.Get("If-None-Match"), tag) {
		h.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		w.Write(body)
	}
}

// Harden sets the headers that keep the page and whatever is shown in it from being
// framed, sniffed, referred to or given any right of the browser's.
func Harden(h http.Header) {
	h.Set("Content-Security-Policy", Policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), payment=(), usb=(), serial=()")
}

// acceptsGzip reads Accept-Encoding (RFC 9110, 12.5.3) as far as gzip is concerned: what is
// said of gzip itself counts more than what is said of *.
func acceptsGzip(header string) bool {
	any := false
	for part := range strings.SplitSeq(header, ",") {
		coding, weight, _ := strings.Cut(part, ";")
		switch strings.ToLower(strings.TrimSpace(coding)) {
		case "gzip", "x-gzip":
			return wanted(weight)
		case "*":
			any = wanted(weight)
		}
	}
	return any
}

// wanted reports whether a weight ("q=0.5", or none) is above zero.
func wanted(weight string) bool {
	q, found := strings.CutPrefix(strings.ToLower(strings.TrimSpace(weight)), "q=")
	value, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
	return !found || err == nil && value > 0
}

// matches compares If-None-Match with the tag, weakly (RFC 9110, 13.1.2).
func matches(header, tag string) bool {
	for part := range strings.SplitSeq(header, ",") {
		if part = strings.TrimPrefix(strings.TrimSpace(part), "W/"); part == tag || part == "*" {
			return true
		}
	}
	return false
}
