package gateway

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
)

// answer writes one HTTP/1 response (RFC 9112, sections 4 and 6). It implements http.ResponseWriter for one goroutine;
// another goroutine may call continueBody.
type answer struct {
	w      *bufio.Writer
	header http.Header
	head   bool // the request's method is HEAD
	minor  int  // of the request's HTTP/1

	begin   sync.Mutex // guards status
	status  int        // 0: not written yet
	empty   bool       // there is no body, whatever the header fields are
	chunked bool       // the body is chunked
	left    int64      // of the body; -1: the body ends with the connection or with the last chunk
	last    bool       // the connection is closed after this response
}

var _ http.ResponseWriter = (*answer)(nil)

var (
	errTooLong  = errors.New("the body is longer than its Content-Length")
	errTooShort = errors.New("the body is shorter than its Content-Length")
)

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter; the next Write returns its error.
func (a *answer) WriteHeader(status int) {
	a.begin.Lock()
	defer a.begin.Unlock()
	if a.status != 0 {
		return
	}
	a.status, a.left = status, -1
	a.empty = a.head || status < 200 || status == http.StatusNoContent || status == http.StatusNotModified
	n, known := contentLength(a.header.Get("Content-Length"))
	known = known && a.header.Get("Content-Length") != ""
	switch {
	case a.empty:
		a.left = 0
	case known:
		a.left = n
	case a.minor == 0:
		a.last = true
	default:
		a.chunked = true
	}
	fmt.Fprintf(a.w, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	_ = a.header.Write(a.w) // the writer keeps its error
	if a.chunked {
		a.w.WriteString("Transfer-Encoding: chunked\r\n")
	}
	if a.last {
		a.w.WriteString("Connection: close\r\n")
	} else if a.minor == 0 {
		a.w.WriteString("Connection: keep-alive\r\n")
	}
	a.w.WriteString("\r\n")
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	switch {
	case a.empty:
		return len(p), nil
	case len(p) == 0:
		return 0, nil
	case a.chunked:
		a.w.WriteString(strconv.FormatInt(int64(len(p)), 16) + "\r\n")
		a.w.Write(p)
		_, err := a.w.WriteString("\r\n")
		return len(p), err
	case a.left >= 0 && int64(len(p)) > a.left:
		return 0, errTooLong
	case a.left >= 0:
		a.left -= int64(len(p))
	}
	return a.w.Write(p)
}

// continueBody sends 100 Continue to a client that waits for it (RFC 9110, section 10.1.1), unless the response has
// begun.
func (a *answer) continueBody() error {
	a.begin.Lock()
	defer a.begin.Unlock()
	if a.status != 0 {
		return nil
	}
	a.w.WriteString("HTTP/1.1 100 Continue\r\n\r\n")
	return a.w.Flush()
}

// FlushError is called by http.ResponseController.
func (a *answer) FlushError() error { return a.w.Flush() }

// finish ends the body.
func (a *answer) finish() error {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if a.chunked {
		a.w.WriteString("0\r\n\r\n")
	}
	if a.left > 0 {
		return errTooShort
	}
	return a.w.Flush()
}
