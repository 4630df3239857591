package simnet

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
)

// KeyHeader is the header field whose value a reflection returns.
const KeyHeader = "X-Api-Key"

// reflect responds with the value of KeyHeader, like an error page, a debugging endpoint or a hostile server. The
// query's "as" selects the encoding.
func (s *web) reflect(rw http.ResponseWriter, r *http.Request) {
	key := r.Header.Get(KeyHeader)
	text := "you sent " + key + " here\n"
	h := rw.Header()
	switch as := r.URL.Query().Get("as"); as {
	case "base64":
		text = base64.StdEncoding.EncodeToString([]byte(text))
	case "hex":
		text = hex.EncodeToString([]byte(text))
	case "utf16":
		var b strings.Builder
		for _, u := range utf16.Encode([]rune(text)) {
			b.Write([]byte{byte(u), byte(u >> 8)})
		}
		text = b.String()
	case "gzip":
		h.Set("Content-Encoding", "gzip")
		text = gzipped(text)
	case "deflate":
		h.Set("Content-Encoding", "deflate")
		var b bytes.Buffer
		z := zlib.NewWriter(&b)
		io.WriteString(z, text) // a Buffer never fails
		z.Close()
		text = b.String()
	case "gzip-twice":
		h.Set("Content-Encoding", "gzip, gzip")
		text = gzipped(gzipped(text))
	case "unknown": // a coding that the gateway does not support, and that the body does not have
		h.Set("Content-Encoding", "br")
	case "no-gzip":
		h.Set("Content-Encoding", "gzip")
	case "gzip-broken": // truncated
		h.Set("Content-Encoding", "gzip")
		text = gzipped(text + strings.Repeat("filling ", 4000))
		text = text[:len(text)-9]
	case "part":
		h.Set("Content-Range", "bytes 0-99/100")
		rw.WriteHeader(http.StatusPartialContent)
	case "error":
		rw.WriteHeader(http.StatusInternalServerError)
	case "header":
		h.Set("X-Echo", key)
		h.Set("Set-Cookie", "k="+base64.RawURLEncoding.EncodeToString([]byte(key)))
	case "trailer":
		h.Set("Trailer", "X-Echo")
		fmt.Fprint(rw, Hello)
		h.Set("X-Echo", key)
		return
	case "chunks":
		for _, c := range []byte(text) {
			rw.Write([]byte{c})
			http.NewResponseController(rw).Flush()
		}
		return
	case "pauses": // longer than the gateway may hold data back
		for _, part := range []string{text[:len(text)/3], text[len(text)/3 : len(text)/2], text[len(text)/2:]} {
			io.WriteString(rw, part)
			http.NewResponseController(rw).Flush()
			time.Sleep(300 * time.Millisecond)
		}
		return
	case "cut": // the connection ends within the response
		h.Set("Content-Length", strconv.Itoa(len(text)+1000))
		io.WriteString(rw, text)
		http.NewResponseController(rw).Flush()
		panic(http.ErrAbortHandler)
	case "beyond-head", "beyond-204", "beyond-304", "beyond-short", "beyond-chunks":
		beyond(rw, strings.TrimPrefix(as, "beyond-"), text)
		return
	}
	io.WriteString(rw, text)
}

// beyond responds over HTTP/1 with Hello or without a body, and sends text after the response's end.
func beyond(rw http.ResponseWriter, how, text string) {
	answer := map[string]string{
		"head":   fmt.Sprintf("200 OK\r\nContent-Length: %d\r\n\r\n", len(text)),
		"204":    "204 No Content\r\n\r\n",
		"304":    "304 Not Modified\r\n\r\n",
		"short":  fmt.Sprintf("200 OK\r\nContent-Length: %d\r\n\r\n%s", len(Hello), Hello),
		"chunks": fmt.Sprintf("200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(Hello), Hello),
	}[how]
	c, _, err := http.NewResponseController(rw).Hijack()
	if err != nil { // HTTP/2, whose frames delimit responses
		panic(http.ErrAbortHandler)
	}
	defer c.Close()
	io.WriteString(c, "HTTP/1.1 "+answer+text)
	time.Sleep(300 * time.Millisecond) // closing immediately would hide the text
}

func gzipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, s) // a Buffer never fails
	z.Close()
	return b.String()
}
