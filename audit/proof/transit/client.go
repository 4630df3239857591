package transit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/custody-project/custody/internal/endpoint"
	"github.com/custody-project/custody/internal/regular"
)

const (
	perCall   = 5 * time.Second  // for one request
	maxWait   = 15 * time.Second // for a signature with all retries
	maxTries  = 4
	firstWait = 200 * time.Millisecond // doubled with each try
	maxAnswer = 1 << 20                // bytes

	maxAuthorities = 4 << 20 // bytes of certificates
)

// VaultError is an error answer of Vault, or a failed request.
type VaultError struct {
	Path   string
	Status int // of HTTP, 0 if there was no answer
	Err    error
	hint   string
}

// Error implements error.
func (e *VaultError) Error() string { return fmt.Sprintf("Vault, %s: %v", e.Path, e.Err) }

// Unwrap returns the reason.
func (e *VaultError) Unwrap() error { return e.Err }

// Hint returns the remedy.
func (e *VaultError) Hint() string { return e.hint }

// client makes requests to one Vault with custody's own token.
type client struct {
	api     *api.Client
	address string
	token   func() (string, error)
}

func newClient(c Config) (*client, error) {
	address := cmp.Or(c.Getenv("VAULT_ADDR"), "https://127.0.0.1:8200")
	if err := checkAddress(address); err != nil {
		return nil, err
	}
	if v := strings.ToLower(c.Getenv("VAULT_SKIP_VERIFY")); v != "" && v != "0" && v != "false" && v != "f" {
		return nil, errors.New("VAULT_SKIP_VERIFY is set, and Custody does not use a Vault that cannot be verified for the host's key: unset it, and name the certificate of Vault's authority in VAULT_CACERT")
	}
	server, err := serverOf(c.Getenv)
	if err != nil {
		return nil, fmt.Errorf("the certificates for Vault: %w", err)
	}
	to := address
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		server.Socket, to = path, "http://localhost"
	}
	carrier, err := c.To(server)
	if err != nil {
		return nil, fmt.Errorf("the certificates for Vault: %w", err)
	}
	hc := &http.Client{Transport: carrier, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	settings := &api.Config{Address: to, HttpClient: hc, DisableRedirects: true, MaxRetries: 0} // a redirect would send the token to another server
	settings.CheckRetry = func(context.Context, *http.Response, error) (bool, error) { return false, nil }
	v, err := api.NewClient(settings)
	if err != nil {
		return nil, fmt.Errorf("the settings for Vault: %w", err)
	}
	v.ClearToken()
	v.ClearNamespace()
	if ns := c.Getenv("VAULT_NAMESPACE"); ns != "" {
		v.SetNamespace(ns)
	}
	return &client{api: v, address: address, token: func() (string, error) { return tokenFrom(c.Getenv) }}, nil
}

// serverOf returns what the environment states about the server's certificate, and the client's.
func serverOf(getenv func(string) string) (s endpoint.Server, err error) {
	s.Name = getenv("VAULT_TLS_SERVER_NAME")
	if file, dir := getenv("VAULT_CACERT"), getenv("VAULT_CAPATH"); file != "" {
		s.Authorities, err = regular.ReadFile(file)
	} else if dir != "" {
		s.Authorities, err = regular.ReadTree(dir, maxAuthorities)
	}
	cert, key := getenv("VAULT_CLIENT_CERT"), getenv("VAULT_CLIENT_KEY")
	if err != nil || cert == "" && key == "" {
		return s, err
	}
	if cert == "" || key == "" {
		return s, errors.New("VAULT_CLIENT_CERT and VAULT_CLIENT_KEY go together: set both")
	}
	if s.Certificate, err = regular.ReadFile(cert); err == nil {
		s.Key, err = regular.ReadFile(key)
	}
	return s, err
}

// tokenFrom reads the token again for each request, since it may have been renewed.
func tokenFrom(getenv func(string) string) (string, error) {
	if t := getenv("VAULT_TOKEN"); t != "" {
		return t, nil
	}
	const none = "no token for Vault: set VAULT_TOKEN, or log in with vault login"
	home := getenv("HOME")
	if !filepath.IsAbs(home) {
		return "", errors.New(none)
	}
	path := filepath.Join(home, ".vault-token")
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", errors.New(none)
	case err != nil:
		return "", fmt.Errorf("%s: %w", none, err)
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("other users can read %s: chmod 600 %s", path, path)
	}
	b, err := regular.ReadFile(path)
	if t := strings.TrimSpace(string(b)); err == nil && t != "" {
		return t, nil
	}
	return "", errors.Join(errors.New(none), err)
}

// checkAddress refuses to send a token over a network unencrypted.
func checkAddress(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.User != nil || u.Host == "" && u.Scheme != "unix" {
		return errors.New("VAULT_ADDR is not an address: write https://HOST:PORT")
	}
	ip := net.ParseIP(u.Hostname())
	switch {
	case u.Scheme == "https", u.Scheme == "unix", u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()):
		return nil
	}
	return fmt.Errorf("VAULT_ADDR is %s: the token would be sent unencrypted; write https://", address)
}

// call makes a request, and retries if Vault is unreachable or busy. Errors contain neither the token nor the request.
func (c *client) call(ctx context.Context, method, path string, body map[string]any) (map[string]any, error) {
	wait := firstWait
	for try := 1; ; try++ {
		data, err := c.once(ctx, method, path, body)
		var v *VaultError
		if err == nil || try == maxTries || !errors.As(err, &v) || v.Status != 0 && v.Status != http.StatusTooManyRequests && v.Status < 500 {
			return data, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait):
			wait *= 2
		}
	}
}

func (c *client) once(ctx context.Context, method, path string, body map[string]any) (map[string]any, error) {
	token, err := c.token()
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, perCall)
	defer cancel()
	r := c.api.NewRequest(method, "/v1/"+path)
	r.ClientToken = token
	if body != nil {
		if err := r.SetJSONBody(body); err != nil {
			return nil, fmt.Errorf("cannot make a request for %s", path)
		}
	}
	//lint:ignore SA1019 the methods that replace it are one for each kind of request
	resp, err := c.api.RawRequestWithContext(within, r)
	if resp != nil {
		defer resp.Body.Close()
	}
	if err != nil {
		return nil, c.explain(path, err)
	}
	if resp.StatusCode >= 300 {
		return nil, &VaultError{path, resp.StatusCode, errors.New("it redirects the request to another address"), "set VAULT_ADDR to the address of the active node"}
	}
	secret, err := api.ParseSecret(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, &VaultError{path, 0, errors.New("the answer is not from Vault"), "check VAULT_ADDR"}
	}
	if secret == nil {
		return nil, nil
	}
	return secret.Data, nil
}

// explain makes an error that states the cause and the remedy.
func (c *client) explain(path string, err error) error {
	var answer *api.ResponseError
	if !errors.As(err, &answer) {
		return &VaultError{path, 0, fmt.Errorf("no answer from %s: %w", c.address, err), "is Vault running there, and is VAULT_ADDR right? nothing is signed until it answers"}
	}
	words := strings.Join(answer.Errors, "; ")
	e := &VaultError{path, answer.StatusCode, fmt.Errorf("HTTP %d: %.300s", answer.StatusCode, words), ""}
	switch answer.StatusCode {
	case http.StatusForbidden:
		e.hint = "the token has ended, or its policy lacks " + path + " (see package audit/proof/transit)"
	case http.StatusNotFound:
		e.hint = "make the key: vault write -f " + path + " type=ed25519"
	case http.StatusServiceUnavailable:
		e.hint = "Vault is sealed or a standby: unseal it, or set VAULT_ADDR to the active node"
	default:
		e.hint = "see Vault's message above, and Vault's log"
	}
	return e
}
