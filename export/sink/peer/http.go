package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/custody-project/custody/export"
)

// HTTP posts to one server. It follows no redirect, which would send the credential to another server, and reads at most limit
// bytes of an answer.
type HTTP struct {
	client *http.Client
	// Header is set on each request.
	Header http.Header
	// Authorize returns the value of the header Authorization, "" for none.
	Authorize func() (string, error)
}

// NewHTTP returns a client; c may be nil for http.
func NewHTTP(c *tls.Config) *HTTP {
	dial := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	return Over(&http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dial.DialContext, TLSClientConfig: c, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second, MaxIdleConns: 4,
		MaxResponseHeaderBytes: 64 << 10,
	})
}

// Over returns a client whose requests t carries.
func Over(t http.RoundTripper) *HTTP {
	return &HTTP{
		Header: http.Header{},
		client: &http.Client{
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport:     t,
		},
	}
}

// Close ends idle connections.
func (h *HTTP) Close() error {
	h.client.CloseIdleConnections()
	return nil
}

// Answer is a server's answer. Body is cut at the limit.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	Cut    bool
}

// Post sends a body and reads at most limit bytes of the answer. The error is about the connection: whether the server
// accepted the body is then unknown.
func (h *HTTP) Post(ctx context.Context, url, contentType string, body []byte, zip bool, limit int64) (Answer, error) {
	header := http.Header{"Content-Type": {contentType}}
	if zip {
		var b bytes.Buffer
		z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // the level is valid
		z.Write(body)                                   // to memory: never fails
		z.Close()
		body = b.Bytes()
		header.Set("Content-Encoding", "gzip")
	}
	return h.do(ctx, http.MethodPost, url, header, body, limit)
}

func (h *HTTP) do(ctx context.Context, method, url string, header http.Header, body []byte, limit int64) (Answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	for k, v := range h.Header {
		req.Header[k] = v
	}
	for k, v := range header {
		req.Header[k] = v
	}
	req.Header.Set("User-Agent", "custody")
	if h.Authorize != nil {
		auth, err := h.Authorize()
		if err != nil {
			return Answer{}, err
		}
		if auth != "" {
			req.Header.Set("Authorization", auth)
		}
	}
	res, err := h.client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	if err != nil {
		return Answer{}, fmt.Errorf("read the answer: %w", err)
	}
	a := Answer{Status: res.StatusCode, Header: res.Header, Body: b}
	if int64(len(b)) > limit {
		a.Body, a.Cut = b[:limit], true
	}
	return a, nil
}

// Said returns the beginning of an answer, sanitized for a log.
func (a Answer) Said() string {
	const most = 300
	b := a.Body
	if len(b) > most {
		b = b[:most]
	}
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(b), " "))
	return fmt.Sprintf("HTTP %d: %s", a.Status, strings.Join(strings.Fields(clean), " "))
}

// Outcome returns the outcome of a status, for bodies without further details: nil for 2xx; *export.Refused for those that
// concern the events (400, 413, 422); *export.Later for all others. A wrong credential, address or index must be repaired
// by an administrator: no event is given up for it.
func (a Answer) Outcome() error {
	switch {
	case a.Status >= 200 && a.Status <= 299:
		return nil
	case a.Status == http.StatusBadRequest, a.Status == http.StatusRequestEntityTooLarge, a.Status == http.StatusUnprocessableEntity:
		return &export.Refused{Reason: a.Said()}
	}
	return a.Later()
}

// Later returns the outcome that requests a retry, after the time in Retry-After (RFC 9110, section 10.2.3) if there is one.
func (a Answer) Later() error {
	err := errors.New(a.Said())
	if a.Status >= 300 && a.Status <= 399 {
		err = fmt.Errorf("HTTP %d: redirects are not followed: name the server that it leads to, %.200q", a.Status, a.Header.Get("Location"))
	}
	return &export.Later{After: retryAfter(a.Header.Get("Retry-After"), time.Now()), Err: err}
}

func retryAfter(v string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(strings.TrimSpace(v), 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
