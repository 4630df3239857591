package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Client makes the requests of one service with one token. It is safe for concurrent use. Its fields are set before the first request.
type Client struct {
	// HTTP makes the requests. It must have no Timeout, which would end streams. That of New follows no redirections, which could lead the
	// token over a connection without TLS.
	HTTP *http.Client
	// Tenant is the tenant of all requests; empty: the only one of the token.
	Tenant string

	base  *url.URL
	token string
}

// New returns a client of the service at an address such as https://custody.example:8333. The address is http only for a service that is
// reached over loopback.
func New(address, token string) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("%q is no address of a service: write https://HOST:PORT", address)
	}
	if u.Scheme == "http" && !loopback(u.Hostname()) {
		return nil, fmt.Errorf("%s would send the token unencrypted: write https://", address)
	}
	if strings.TrimSpace(token) == "" {
		return nil, errors.New("there is no token: `custody token new NAME --role operator` on the host makes one")
	}
	straight := &http.Client{
		Transport: transport(nil), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &Client{HTTP: straight, base: u.JoinPath("api/v1"), token: strings.TrimSpace(token)}, nil
}

// silence is how long a connection may be silent before the service is asked whether it is still there, and how long it may take to answer.
const silence = 15 * time.Second

// transport returns what makes requests. roots are the certificates to trust; nil: those of the system.
func transport(roots *x509.CertPool) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: silence, PingTimeout: silence}
	return t
}

// TrustOnly makes certificates, in PEM, the only ones that are trusted to issue the service's. It is called before the first request, and
// replaces HTTP's transport.
func (c *Client) TrustOnly(pem []byte) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return errors.New("there is no certificate in it: it must be PEM")
	}
	c.HTTP.Transport = transport(roots)
	return nil
}

func loopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// maxAnswer bounds an answer that is no stream, in bytes.
const maxAnswer = 64 << 20

// call makes a request with a JSON body, unless that is nil, and decodes the answer into result, unless that is nil.
func (c *Client) call(ctx context.Context, method string, at []string, query url.Values, body, result any, header http.Header) error {
	return admitted(ctx, func() error { return c.once(ctx, method, at, query, body, result, header) })
}

// admitted calls f again while the service refuses to carry out its request for now, because there were too many, the sandbox is not
// live yet, or the work takes longer. Each time it waits for as long as the service demands.
func admitted(ctx context.Context, f func() error) error {
	for {
		err := f()
		p := new(Problem)
		if !errors.As(err, &p) || !slices.Contains([]string{tooMany, NotLive, Pending}, strings.TrimPrefix(p.Type, problemType)) {
			return err
		}
		if late := sleep(ctx, p.After+time.Duration(rand.Int64N(int64(time.Second)))); late != nil {
			return errors.Join(late, err)
		}
	}
}

// open makes a request whose body, unless that is nil, can be sent again, and returns the answer, whose body the caller closes.
func (c *Client) open(ctx context.Context, method string, at []string, query url.Values, body []byte, header http.Header) (res *http.Response, err error) {
	err = admitted(ctx, func() error {
		var r io.Reader
		if body != nil {
			r = bytes.NewReader(body)
		}
		res, err = c.do(ctx, method, at, query, r, header)
		return err
	})
	return res, err
}

// sleep waits, at most until ctx is done.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Client) once(ctx context.Context, method string, at []string, query url.Values, body, result any, header http.Header) error {
	var text io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		text = bytes.NewReader(b)
		header = header.Clone()
		if header == nil {
			header = http.Header{}
		}
		header.Set("Content-Type", "application/json")
	}
	return c.send(ctx, method, at, query, text, result, header)
}

// send makes a request with a body, unless that is nil, and decodes the answer into result, unless that is nil.
func (c *Client) send(ctx context.Context, method string, at []string, query url.Values, body io.Reader, result any, header http.Header) error {
	res, err := c.do(ctx, method, at, query, body, header)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if result == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(result); err != nil {
		return fmt.Errorf("%s: the answer of the service: %w", strings.Join(at, "/"), err)
	}
	return nil
}

// do makes a request. It returns an error, which can be a Problem, for each answer that is no success. The caller closes the body.
func (c *Client) do(ctx context.Context, method string, at []string, query url.Values, body io.Reader, header http.Header) (*http.Response, error) {
	var path []string
	for _, part := range at {
		if part == "" || part == "." || part == ".." {
			return nil, fmt.Errorf("%q is no name of a sandbox or a process", part)
		}
		path = append(path, url.PathEscape(part))
	}
	u := c.base.JoinPath(path...)
	if c.Tenant != "" {
		if query == nil {
			query = url.Values{}
		}
		query.Set("tenant", c.Tenant)
	}
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	res, err := c.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusSwitchingProtocols || res.StatusCode >= 200 && res.StatusCode < 300 {
		return res, nil
	}
	defer res.Body.Close()
	return nil, problem(res)
}

// problem returns the error of an answer.
func problem(res *http.Response) error {
	p := &Problem{}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if kind != "application/problem+json" || json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(p) != nil {
		return &Problem{Title: "the service answered " + res.Status, Status: res.StatusCode, Hint: "is this the address of custody serve?"}
	}
	p.Status = cmp.Or(p.Status, res.StatusCode)
	if n, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
		p.After = time.Duration(n) * time.Second
	}
	return p
}

// IsStatus reports whether an error is a Problem with this HTTP status.
func IsStatus(err error, status int) bool {
	p := new(Problem)
	return errors.As(err, &p) && p.Status == status
}
