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
	// patience is how long one call may take, to the last byte of its answer.
	patience = 5 * time.Second
	// maxAnswer is the most that is read of an answer.
	maxAnswer = 4 << 20
	// maxWords is how much of Vault's own words an error repeats.
	maxWords = 300
)

// client makes calls to one Vault. Tokens are arguments: it has none of its own.
type client struct {
	api     *api.Client
	address string
	wait    time.Duration // for one call
	close   func()        // of connections that nothing goes over
}

func newClient(c Config) (*client, error) {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: patience}).DialContext,
		TLSHandshakeTimeout: patience,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     30 * time.Second,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
	}
	hc := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	cfg := &api.Config{
		Address: c.Address, HttpClient: hc, DisableRedirects: true, // a redirect would take the token elsewhere
		MaxRetries: 0, CheckRetry: func(context.Context, *http.Response, error) (bool, error) { return false, nil },
	}
	trust := &api.TLSConfig{CACert: c.CACert, CAPath: c.CAPath, ClientCert: c.ClientCert, ClientKey: c.ClientKey, TLSServerName: c.ServerName}
	if err := cfg.ConfigureTLS(trust); err != nil {
		return nil, fmt.Errorf("the certificates for Vault: %w", err)
	}
	v, err := api.NewClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("the settings for Vault: %w", err)
	}
	hc.Transport = bounded{hc.Transport}
	v.ClearToken()
	v.ClearNamespace()
	if c.Namespace != "" {
		v.SetNamespace(c.Namespace)
	}
	return &client{api: v, address: c.Address, wait: patience, close: transport.CloseIdleConnections}, nil
}

// bounded cuts answers off at maxAnswer bytes, so that they cannot fill the memory.
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

// call makes one request and returns Vault's answer, nil if it has none. Errors name the remedy, and contain neither a
// token nor what was sent.
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
		return nil, fmt.Errorf("Vault at %s sends %s on to another address: set VAULT_ADDR to that of the active node", c.address, path)
	case resp.StatusCode == http.StatusNoContent:
		return nil, nil
	}
	s, err := api.ParseSecret(resp.Body)
	if within.Err() != nil {
		return nil, c.explain(ctx, within.Err(), path, hidden)
	}
	if err != nil { // whose text could repeat a part of the answer
		return nil, fmt.Errorf("what %s answers to %s is not an answer of Vault's: check VAULT_ADDR", c.address, path)
	}
	return s, nil
}

// errGone is what errors are when there is no Vault that answers.
var errGone = errors.New("Vault is gone")

// gone is such an error, with words of its own.
type gone string

// Error implements error.
func (g gone) Error() string { return string(g) }

// Is implements the interface of errors.Is.
func (g gone) Is(err error) bool { return err == errGone }

// refusal is an answer of Vault's that says no.
type refusal struct {
	status int
	words  string // Vault's own, made fit to print
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

// refused returns whether err is Vault's answer with one of the codes.
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

// unknownAccessor returns whether err is Vault's answer that there is no token with that accessor.
func unknownAccessor(err error) bool {
	var r *refusal
	return errors.As(err, &r) && strings.Contains(r.words, "invalid accessor")
}

// explain puts what went wrong into words of ours.
func (c *client) explain(ctx context.Context, err error, path string, hidden []string) error {
	var answer *api.ResponseError
	var netErr *url.Error
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("Vault's answer to %s was not waited for: %w", path, ctx.Err())
	case errors.As(err, &answer):
		words := "no reason given"
		if answer.RawError {
			words = "the answer is not Vault's own: check what stands between"
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

// sensitive is what no error may repeat: the token, and what is sent.
func sensitive(token string, body map[string]any) []string {
	hidden := []string{token}
	for _, v := range body {
		if s, ok := v.(string); ok {
			hidden = append(hidden, s)
		}
	}
	return hidden
}

// printable is text on one line, without what is hidden, and not too long.
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
