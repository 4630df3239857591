package outside

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/custody-project/custody/privsep"
)

const callRequest = "web-request"

const (
	maxBody   = 1 << 20  // bytes of an answer; the rest is cut off
	maxHeader = 16 << 10 // bytes of an answer's header
)

type (
	// request is an HTTP request. Its body is in a file in memory.
	request struct {
		Method, URL string
		Header      http.Header
		Within      time.Duration
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

// RoundTrip implements http.RoundTripper. An answer has at most 1 MiB, the rest is cut off.
func (w *Web) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(io.LimitReader(r.Body, privsep.MaxMemory/2))
		if err = errors.Join(err, r.Body.Close()); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxCall)
	defer cancel()
	p, err := w.start(ctx)
	if err != nil {
		return nil, err
	}
	f, err := privsep.Memory("request", body)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	until, _ := ctx.Deadline()
	var got response
	files, err := p.Call(ctx, callRequest, request{r.Method, r.URL.String(), r.Header, time.Until(until)}, &got, f)
	if err != nil {
		return nil, remoteError(err)
	}
	var text []byte
	if len(files) != 1 {
		closeAll(files)
		return nil, errors.New("an answer is one file")
	}
	if err := privsep.FromMemoryUpTo(2*maxBody, files[0], &text); err != nil {
		return nil, err
	}
	if got.Status < 100 || got.Status > 999 || len(text) > maxBody {
		return nil, fmt.Errorf("the status %d with %d bytes is not an answer", got.Status, len(text))
	}
	return &http.Response{
		Status: fmt.Sprintf("%03d %s", got.Status, http.StatusText(got.Status)), StatusCode: got.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: got.Header, Body: io.NopCloser(bytes.NewReader(text)), ContentLength: int64(len(text)), Request: r,
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

// web makes the requests in the process. It is safe for concurrent use.
type web struct{ client http.Client }

// newWebProcess returns a web that follows no redirects and trusts the authorities of the system, or of SSL_CERT_FILE and SSL_CERT_DIR.
func newWebProcess() *web {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxResponseHeaderBytes = maxHeader
	return &web{http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// request makes a request. It follows no redirect.
func (w *web) request(ctx context.Context, body []byte, files []*os.File) (any, []*os.File, error) {
	if len(files) != 1 {
		closeAll(files)
		return nil, nil, errors.New("a request is one file")
	}
	var text []byte
	if err := privsep.FromMemory(files[0], &text); err != nil {
		return nil, nil, err
	}
	var r request
	if err := privsep.Decode(body, &r); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, min(r.Within, maxCall))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(text))
	if err != nil {
		return nil, nil, err
	}
	req.Header = r.Header
	answer, err := w.client.Do(req)
	if e := (*url.Error)(nil); errors.As(err, &e) {
		err = e.Err // root's process names the address
	}
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	text, err = io.ReadAll(io.LimitReader(answer.Body, maxBody))
	if err != nil {
		return nil, nil, err
	}
	f, err := privsep.Memory("answer", text)
	if err != nil {
		return nil, nil, err
	}
	return response{answer.StatusCode, answer.Header}, []*os.File{f}, nil
}
