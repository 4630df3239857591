package outside

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/custody-project/custody/internal/endpoint"
	"github.com/custody-project/custody/privsep"
)

const callRequest = "web-request"

const maxBody = 1 << 20 // bytes of an answer; the rest is cut off

type (
	// request is an HTTP request. Its content is in a file in memory; the connection to the server's socket, if it has one, in a second file.
	request struct {
		Method, URL string
		Header      http.Header
		Within      time.Duration
	}
	content struct {
		Server endpoint.Server
		Body   []byte
	}
	response struct {
		Status int
		Header http.Header
	}
)

// Web carries requests to servers: another process speaks to them, which is started for the first request. It is safe for concurrent use.
//
//	waiting --RoundTrip--> started --Close--> closed
type Web struct {
	worker func() (privsep.Worker, error) // describes the process

	mu      sync.Mutex // guards the fields below
	process *privsep.Process
	closed  bool
}

// NewWeb returns a Web. The caller closes it.
func NewWeb() *Web { return &Web{worker: describe} }

// start returns the process.
func (w *Web) start(ctx context.Context) (*privsep.Process, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, net.ErrClosed
	}
	if w.process != nil {
		select {
		case <-w.process.Done(): // it was killed
			_ = w.process.Close()
			w.process = nil
		default:
			return w.process, nil
		}
	}
	description, err := w.worker()
	if err != nil {
		return nil, err
	}
	p, err := description.Start(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("the process that speaks to servers: %w", err)
	}
	w.process = p
	return p, nil
}

// Prepare starts the process.
func (w *Web) Prepare(ctx context.Context) { _, _ = w.start(ctx) }

// RoundTrip implements http.RoundTripper, for servers that the system's authorities certify.
func (w *Web) RoundTrip(r *http.Request) (*http.Response, error) {
	return to{w, endpoint.Server{}}.RoundTrip(r)
}

// To returns what carries requests to a server.
func (w *Web) To(s endpoint.Server) (http.RoundTripper, error) {
	_, err := s.TLS() // here, its error has a caller
	return to{w, s}, err
}

// to carries requests to one server.
type to struct {
	web    *Web
	server endpoint.Server
}

// RoundTrip implements http.RoundTripper. An answer has at most 1 MiB, the rest is cut off.
func (t to) RoundTrip(r *http.Request) (*http.Response, error) {
	c := content{Server: t.server}
	if r.Body != nil {
		var err error
		c.Body, err = io.ReadAll(io.LimitReader(r.Body, privsep.MaxMemory/2))
		if err = errors.Join(err, r.Body.Close()); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxCall)
	defer cancel()
	p, err := t.web.start(ctx)
	if err != nil {
		return nil, err
	}
	files, err := t.files(ctx, c)
	defer closeAll(files)
	if err != nil {
		return nil, err
	}
	until, _ := ctx.Deadline()
	var got response
	answer, err := p.Call(ctx, callRequest, request{r.Method, r.URL.String(), r.Header, time.Until(until)}, &got, files...)
	if err != nil {
		return nil, remoteError(err)
	}
	return got.http(r, answer)
}

// files returns the files of a request.
func (t to) files(ctx context.Context, c content) ([]*os.File, error) {
	f, err := privsep.Memory("request", c)
	if err != nil || c.Server.Socket == "" {
		return []*os.File{f}, err
	}
	socket, err := connect(ctx, c.Server.Socket)
	return []*os.File{f, socket}, err
}

// connect connects to a unix socket, which the process cannot reach.
func connect(ctx context.Context, path string) (*os.File, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.(*net.UnixConn).File()
}

// http returns an answer, whose body is in a file in memory.
func (a response) http(r *http.Request, files []*os.File) (*http.Response, error) {
	if len(files) != 1 {
		closeAll(files)
		return nil, errors.New("an answer is one file")
	}
	var text []byte
	if err := privsep.FromMemoryUpTo(2*maxBody, files[0], &text); err != nil {
		return nil, err
	}
	if a.Status < 100 || a.Status > 999 || len(text) > maxBody {
		return nil, fmt.Errorf("the status %d with %d bytes is not an answer", a.Status, len(text))
	}
	return &http.Response{
		Status: fmt.Sprintf("%03d %s", a.Status, http.StatusText(a.Status)), StatusCode: a.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.Header, Body: io.NopCloser(bytes.NewReader(text)), ContentLength: int64(len(text)), Request: r,
	}, nil
}

// Close ends the process.
func (w *Web) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.process == nil {
		return nil
	}
	return w.process.Close()
}
