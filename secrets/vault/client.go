package vault

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/hashicorp/vault/api"
)

const (
	// patience is the timeout of a call, including the response body.
	patience = 5 * time.Second
	// maxAnswer bounds the size of a response.
	maxAnswer = 4 << 20
	// maxWords bounds the part of Vault's messages in an error.
	maxWords = 300
)

// client makes calls to one Vault. Tokens are arguments: it has none itself.
type client struct {
	api     *api.Client
	address string
	wait    time.Duration // timeout of a call
	close   func()        // closes idle connections
}

func newClient(c Config) (*client, error) {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: patience}).DialContext,
		TLSHandshakeTimeout: patience,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     30 * time.Second,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName},
	}
	hc := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	cfg := &api.Config{
		Address: c.Address, HttpClient: hc, DisableRedirects: true, // a redirect would send the token elsewhere
		MaxRetries: 0, CheckRetry: func(context.Context, *http.Response, error) (bool, error) { return false, nil },
	}
	trust, err := c.place().Trust()
	if err == nil {
		err = trust.apply(transport.TLSClientConfig)
	}
	if err != nil {
		return nil, fmt.Errorf("the certificates for Vault: %w", err)
	}
	v, err := api.NewClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("the settings for Vault: %w", err)
	}
	if strings.HasPrefix(c.Address, unixScheme) {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return c.place().Dial(ctx) }
	}
	hc.Transport = bounded{hc.Transport}
	v.ClearToken()
	v.ClearNamespace()
	if c.Namespace != "" {
		v.SetNamespace(c.Namespace)
	}
	return &client{api: v, address: c.Address, wait: patience, close: transport.CloseIdleConnections}, nil
}

// bounded limits responses to maxAnswer bytes, so that they cannot exhaust the memory.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	}
	return resp, err
}

// call makes one request and returns Vault's response, nil if it has none. Errors name the remedy, and contain neither a
// token nor the request's body.
func (c *client) call(ctx context.Context, token, method, path string, body map[string]any) (*api.Secret, error) {
	within, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	r := c.api.NewRequest(method, "/v1/"+path)
	r.ClientToken = token
	hidden := sensitive(token, body)
	if body != nil {
		if err := r.SetJSONBody(body); err != nil {
			return nil, fmt.Errorf("a request for %s cannot be written", path)
		}
	}
	//lint:ignore SA1019 the methods that replace it are one for each kind of request
	resp, err := c.api.RawRequestWithContext(within, r)
	if resp != nil {
		defer resp.Body.Close()
	}
	switch {
	case err != nil:
		return nil, c.explain(ctx, err, path, hidden)
	case resp.StatusCode >= 300:
		return nil, fmt.Errorf("Vault at %s redirects %s to another address: set VAULT_ADDR to that of the active node", c.address, path)
	case resp.StatusCode == http.StatusNoContent:
		return nil, nil
	}
	s, err := api.ParseSecret(resp.Body)
	if within.Err() != nil {
		return nil, c.explain(ctx, within.Err(), path, hidden)
	}
	if err != nil { // its text could contain a part of the response
		return nil, fmt.Errorf("the response of %s to %s is not Vault's: check VAULT_ADDR", c.address, path)
	}
	return s, nil
}

// errGone is matched by the errors of an unreachable Vault.
var errGone = errors.New("Vault is unreachable")

// gone is such an error with a specific text.
type gone string

// Error implements error.
func (g gone) Error() string { return string(g) }

// Is implements the interface of errors.Is.
func (g gone) Is(err error) bool { return err == errGone }

// refusal is an error response of Vault.
type refusal struct {
	status int
	words  string // Vault's messages, in printable form
	path   string
}

// Is implements the interface of errors.Is.
func (r *refusal) Is(err error) bool {
	return err == errGone && r.status >= http.StatusInternalServerError
}

// Error implements error.
func (r *refusal) Error() string {
	text := fmt.Sprintf("Vault refuses %s: %s (HTTP %d)", r.path, r.words, r.status)
	switch {
	case r.status == http.StatusServiceUnavailable && strings.Contains(r.words, "sealed"):
		return "Vault is sealed: unseal it (vault operator unseal)"
	case r.status == http.StatusForbidden:
		return text + "; docs/vault.md has the policies that custody needs"
	case r.status == http.StatusTooManyRequests:
		return text + "; its rate limit is too low for this many steps"
	}
	return text
}

// refused reports whether err is Vault's response with one of the codes.
func refused(err error, codes ...int) bool {
	var r *refusal
	if !errors.As(err, &r) {
		return false
	}
	for _, code := range codes {
		if r.status == code {
			return true
		}
	}
	return false
}

// unknownAccessor reports whether err is Vault's response that no token has the accessor.
func unknownAccessor(err error) bool {
	var r *refusal
	return errors.As(err, &r) && strings.Contains(r.words, "invalid accessor")
}

// explain returns the error with its cause and remedy.
func (c *client) explain(ctx context.Context, err error, path string, hidden []string) error {
	var answer *api.ResponseError
	var netErr *url.Error
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the call of %s was cancelled: %w", path, ctx.Err())
	case errors.As(err, &answer):
		words := "no reason given"
		if answer.RawError {
			words = "the response is not Vault's: check the proxies in between"
		} else if len(answer.Errors) > 0 {
			words = printable(strings.Join(answer.Errors, "; "), hidden)
		}
		return &refusal{status: answer.StatusCode, words: words, path: path}
	case errors.Is(err, context.DeadlineExceeded):
		return gone(fmt.Sprintf("Vault at %s did not answer to %s within %s", c.address, path, c.wait))
	case errors.As(err, &netErr):
		return gone(fmt.Sprintf("Vault at %s cannot be reached: %s", c.address, printable(netErr.Err.Error(), hidden)))
	}
	return fmt.Errorf("Vault at %s: %s: %s", c.address, path, printable(err.Error(), hidden))
}

// sensitive returns what no error may contain: the token, and the request's body.
func sensitive(token string, body map[string]any) []string {
	hidden := []string{token}
	for _, v := range body {
		if s, ok := v.(string); ok {
			hidden = append(hidden, s)
		}
	}
	return hidden
}

// printable returns text on one line, without hidden, and truncated.
func printable(text string, hidden []string) string {
	for _, h := range hidden {
		if len(h) >= 8 {
			text = strings.ReplaceAll(text, h, "[hidden]")
		}
	}
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if len(text) > maxWords {
		text = strings.ToValidUTF8(text[:maxWords], "") + "..."
	}
	return text
}
