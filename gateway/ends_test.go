package gateway

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
)

// answerEnd is the oracle: net/http reads a response as its client does, and answerEnd returns its length. ok is false
// if the client rejects the response, or reads until the end of the connection.
func answerEnd(method string, sent []byte) (n int, ok bool) {
	from := bytes.NewReader(sent)
	r := bufio.NewReader(from)
	for {
		resp, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil || resp.StatusCode == http.StatusSwitchingProtocols {
			return 0, false
		}
		if resp.StatusCode >= 100 && resp.StatusCode < 200 {
			continue
		}
		if resp.Close && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 && resp.Body != http.NoBody {
			return 0, false
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return 0, false
		}
		return len(sent) - from.Len() - r.Buffered(), true
	}
}

// takeAll passes pieces to ends, and returns how many bytes belonged to the response.
func takeAll(method string, sent []byte, piece func() int) int {
	var e ends
	e.expect(method)
	at := 0
	for at < len(sent) {
		n := min(max(piece(), 1), len(sent)-at)
		own := e.take(sent[at : at+n])
		at += own
		if own < n {
			break
		}
	}
	return at
}

var someAnswers = []struct{ method, answer, more string }{
	{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "x-api-key: echo"},
	{"GET", "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", "\r\n"},
	{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"},
	{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", "more"},
	{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "hello"},
	{"HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"},
	{"GET", "HTTP/1.1 204 No Content\r\n\r\n", "hello"},
	{"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "hello"},
	{"GET", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", "y"},
	{"POST", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0A \r\n0123456789\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"},
	{"POST", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\nZ: \r\n\r\n", "more"},
	{"GET", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", "more"},
	{"GET", "HTTP/1.1 404 Not Found\r\nX: folded\r\n  \r\n line\r\nContent-Length: 2\r\n\r\nno", "more"},
}

// TestEnds has responses followed by other bytes, in pieces of every size.
func TestEnds(t *testing.T) {
	for _, c := range someAnswers {
		sent := []byte(c.answer + c.more)
		if n, ok := answerEnd(c.method, sent); !ok || n != len(c.answer) {
			t.Errorf("%s %q: net/http reads %d bytes, %t", c.method, sent, n, ok)
		}
		for size := 1; size <= len(sent); size++ {
			if n := takeAll(c.method, sent, func() int { return size }); n != len(c.answer) {
				t.Errorf("%s %q in pieces of %d: %d bytes, not %d", c.method, sent, size, n, len(c.answer))
			}
		}
	}
	var e ends
	if n := e.take([]byte("x")); n != 0 {
		t.Error("no response is expected, but", n, "bytes were taken")
	}
	for _, whole := range []string{"HTTP/1.1 200 OK\r\n\r\nto the end", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nanything", "HTTP/1.0 200 OK\r\n\r\nto the end", "no HTTP\r\n\r\nat all"} {
		if n := takeAll("GET", []byte(whole), func() int { return 7 }); n != len(whole) {
			t.Errorf("%q: %d", whole, n)
		}
	}
	long := "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxAnswerHead+1)
	if e.expect("GET"); e.take([]byte(long)) != len(long) || e.at != inRest {
		t.Error("an endless head is buffered")
	}
}

// FuzzEnds compares ends with net/http for all responses that its client accepts.
func FuzzEnds(f *testing.F) {
	for _, c := range someAnswers {
		f.Add(c.method, []byte(c.answer+c.more), uint64(len(c.answer)))
	}
	f.Fuzz(func(t *testing.T, method string, sent []byte, seed uint64) {
		want, ok := answerEnd(method, sent)
		random := rand.New(rand.NewPCG(seed, 1))
		n := takeAll(method, sent, func() int { return random.IntN(9) })
		if ok && n != want {
			t.Fatalf("%s %q: %d bytes, net/http takes %d", method, sent, n, want)
		}
	})
}
