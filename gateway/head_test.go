package gateway

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// FuzzHead: net/http parses accepted heads in the same way.
func FuzzHead(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"POST /a?b HTTP/1.1\r\nHost: a.example:80\r\nContent-Length: 4\r\n\r\n",
		"POST /a?b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n",
		"GET http://a.example/ HTTP/1.0\r\nhost: A.example\r\nConnection: keep-alive, X\r\nX: \xff\t b \r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", "GET / HTTP/1.1\nHost: a\n\n", "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nHost : a\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		raw, err := readHeadBytes(bufio.NewReaderSize(bytes.NewReader(b), 16))
		if err != nil {
			return
		}
		if !bytes.HasPrefix(b, raw) || bytes.Count(raw, []byte("\r\n\r\n")) != 1 || !bytes.HasSuffix(raw, []byte("\r\n\r\n")) {
			t.Fatalf("a head of %q out of %q", raw, b)
		}
		h, err := parseHead(raw)
		if err != nil {
			return
		}
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			// It parses the target as a URL, which the gateway does later, as strictly.
			if (&exchanger{conn: &conn{to: destination{name: "a.example"}}, scheme: "http"}).targetOK(h) {
				t.Fatalf("net/http refuses %q: %v", raw, err)
			}
			return
		}
		length := r.ContentLength
		if len(r.TransferEncoding) > 0 {
			length = -1
		}
		host := h.host
		if r.URL.Host != "" {
			host = r.URL.Host // absolute-form: net/http prefers it; the gateway later requires both to be equal
		}
		if r.Method != h.method || r.RequestURI != h.target || r.Host != host || r.ProtoMinor != h.minor || length != h.length {
			t.Fatalf("net/http reads %+v, we read %+v", r, h)
		}
		want := r.Header.Clone()
		delete(want, "Content-Length")
		got := h.header.Clone()
		for _, g := range []http.Header{want, got} {
			delete(g, "Connection") // net/http removes some of these
			delete(g, "Pragma")
			delete(g, "Cache-Control")
			delete(g, "Trailer")
		}
		if !reflect.DeepEqual(map[string][]string(want), map[string][]string(got)) {
			t.Fatalf("net/http reads %v, we read %v", want, got)
		}
	})
}

// targetOK reports whether vet would accept the request's target.
func (x *exchanger) targetOK(h *head) bool {
	_, no := x.locate(h.target)
	return no == nil && h.method != http.MethodConnect
}

// FuzzChunks: net/http parses accepted bodies in the same way, to the same byte.
func FuzzChunks(f *testing.F) {
	for _, s := range []string{"3\r\nabc\r\n0\r\n\r\n", "0\r\n\r\nGET", "3;a=b\r\nabc\r\n1\r\nx\r\n00\r\nX: y\r\n\r\n", "3\nabc\n0\n\n", "3 \r\nabc\r\n0\r\n\r\n", "fffffffff\r\n"} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, b []byte, step uint8) {
		r := bufio.NewReaderSize(bytes.NewReader(b), 16)
		body := newBody(r, -1)
		var got []byte
		p := make([]byte, int(step)+1)
		for {
			n, err := body.Read(p)
			got = append(got, p[:n]...)
			if err == io.EOF {
				break
			}
			if err != nil {
				return
			}
		}
		rest, _ := io.ReadAll(r)
		theirs := bufio.NewReader(io.MultiReader(strings.NewReader("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), bytes.NewReader(b)))
		req, err := http.ReadRequest(theirs)
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(req.Body)
		if err != nil {
			if strings.Contains(err.Error(), "trailer") {
				return // it parses trailers, more strictly; the gateway drops them
			}
			t.Fatalf("net/http refuses %q: %v", b, err)
		}
		after, _ := io.ReadAll(theirs)
		if !bytes.Equal(got, want) || !bytes.Equal(rest, after) || body.read.Load() != int64(len(got)) || !body.whole.Load() {
			t.Fatalf("%q: we read %q and leave %q, net/http %q and %q", b, got, rest, want, after)
		}
	})
}

// FuzzTarget: an accepted target is sent unchanged, and its host is the name.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{"/", "/a%2fb?c=%zz", "http://a.example/x", "http://a.example?x", "//b.example/", "/a|b", "http://a.example@b.example/", "*", "/?", "/%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		x := &exchanger{conn: &conn{to: destination{name: "a.example"}}, scheme: "http", authority: "a.example"}
		u, no := x.locate(target)
		if no != nil {
			return
		}
		rest, absolute := strings.CutPrefix(target, "http://")
		if absolute {
			end := strings.IndexAny(rest+"/", "/?")
			if host := strings.ToLower(rest[:end]); host != "a.example" && host != "a.example:0" {
				t.Fatalf("%q is let through", target)
			}
			if rest = rest[end:]; !strings.HasPrefix(rest, "/") {
				rest = "/" + rest
			}
		}
		r := &http.Request{Method: "GET", URL: u, Host: "a.example", Header: http.Header{"User-Agent": {""}}}
		var b bytes.Buffer
		if err := r.Write(&b); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: a.example\r\n\r\n", rest); b.String() != want {
			t.Fatalf("%q is sent as %q", target, b.String())
		}
	})
}
