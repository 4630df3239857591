package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/secrets"
)

// The secrets of the tests, and the guest's placeholders.
const (
	apiValue  = "sk-ant-4fK9wQ2zLx7RtYbN"
	apiHolder = "custody-placeholder-9b1deb4d3b7d4bad"
	gitValue  = "ghp_Zk3vTq8LmX5cRw1NsY7d"
)

var _ Credentials = (*secrets.Issuer)(nil)

// keys are the secrets of a test network: api, which the gateway adds to requests for a.example, and git, which the
// guest has and may send to git.example.
type keys struct {
	red  *redact.Redactor // the record's, with placeholders under separate names
	mu   sync.Mutex       // guards the fields below
	of   map[string]secrets.Credential
	gone error // the reason if there are no credentials
	told []sighting
}

type sighting struct {
	secret, host, where string
	seq                 uint64
}

func (k *keys) Credential(name string) (secrets.Credential, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, ok := k.of[name]
	if !ok {
		return c, fmt.Errorf("no step has this credential")
	}
	return c, k.gone
}

func (k *keys) Find(text []byte) []string {
	var names []string
	for _, name := range k.red.Find(markers.ReplaceAll(text, []byte{0})) {
		names = append(names, strings.TrimPrefix(name, "_placeholder."))
	}
	return names
}

func (k *keys) Watch() *secrets.Watch { return secrets.NewWatch(k.red) }

var markers = regexp.MustCompile(`\[REDACTED:[^]]*]`)

func (k *keys) Presented(_ context.Context, secret, host, where string, seq uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told = append(k.told, sighting{secret, host, where, seq})
	return secret == "git" && host == "git.example"
}

func (k *keys) Echoed(secret, host string, seq uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told = append(k.told, sighting{secret, host, "after an answer", seq})
}

// sightings returns the reports since its last call.
func (k *keys) sightings() []sighting {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := k.told
	k.told = nil
	return list
}

func (k *keys) set(name string, c secrets.Credential) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.of[name] = c
	if c.Placeholder != "" {
		if err := k.red.Add("_placeholder."+name, []byte(c.Placeholder)); err != nil {
			panic(err)
		}
	}
}

func withCredential(name string) func(*netpolicy.Rule) {
	return func(r *netpolicy.Rule) { r.HTTP, r.Credential = &netpolicy.HTTP{}, name }
}

func redacted(is bool) func(*netpolicy.Rule) {
	return func(r *netpolicy.Rule) { r.HTTP.Redact = &is }
}

// keyWorld is a world with secrets. a.example gets a credential in x-api-key, also on port 80; b.example and git.example
// are opened without one, plain.example is spliced and has a port without TLS. Responses of raw.example, which has a
// credential, are not masked; those of masked.example, which has none, are.
type keyWorld struct {
	*world
	keys  *keys
	mu    sync.Mutex
	saw   []string // the complete requests that the hosts received
	reply http.Handler

	requests int // the number of events that nextHTTP has returned
}

func newKeyWorld(tb testing.TB, reply http.Handler, change ...func(*Config)) *keyWorld {
	tb.Helper()
	k := &keys{of: map[string]secrets.Credential{}}
	rules := []netpolicy.Rule{
		rule("a.example", withCredential("api"), ports(443, 80)),
		rule("b.example", withHTTP(nil, nil)),
		rule("git.example", withHTTP(nil, nil)),
		rule("raw.example", withCredential("api"), redacted(false)),
		rule("masked.example", withHTTP(nil, nil), redacted(true), ports(443, 80)),
		rule("plain.example", ports(443, 80)),
		rule("*.wild.example", ports(443, 80)),
	}
	w := &keyWorld{keys: k, reply: reply}
	w.world = newWorld(tb, rules, append([]func(*Config){func(c *Config) { c.Credentials, k.red = k, c.Redactor }}, change...)...)
	for name, value := range map[string]string{"api": apiValue, "git": gitValue} {
		if err := w.red.Add(name, []byte(value)); err != nil {
			tb.Fatal(err)
		}
	}
	k.set("api", secrets.Credential{Header: "x-api-key", Value: []byte(apiValue), Placeholder: apiHolder})
	for _, name := range []string{"a.example", "b.example", "git.example", "plain.example", "raw.example", "masked.example"} {
		h := w.newHost(name, 443, http.HandlerFunc(w.serveHost))
		w.newHostAt(h.addr, nil, 80, http.HandlerFunc(w.serveHost))
	}
	return w
}

// serveHost stores every request that reaches a host.
func (w *keyWorld) serveHost(rw http.ResponseWriter, r *http.Request) {
	var b strings.Builder
	note := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.saw = append(w.saw, b.String())
	}
	fmt.Fprintf(&b, "%s %s %s\n", r.Method, r.RequestURI, r.Host)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(r.Header[name], " | "))
	}
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(&b, "\n%s", body)
	for name, values := range r.Trailer {
		fmt.Fprintf(&b, "\ntrailer %s: %s", name, strings.Join(values, " | "))
	}
	note()
	switch {
	case err != nil:
		panic(http.ErrAbortHandler)
	case w.reply != nil:
		w.reply.ServeHTTP(rw, r)
	default:
		io.WriteString(rw, "done")
	}
}

// seen returns what the hosts received since its last call.
func (w *keyWorld) seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.saw
	w.saw = nil
	return list
}

// trust returns the roots that a guest trusts.
func (w *keyWorld) trust(c *tls.Config) {
	c.RootCAs = x509.NewCertPool()
	c.RootCAs.AppendCertsFromPEM(w.cfg.Authority.PEM())
}

// checkRecord checks that the record contains no value of a secret.
func (w *keyWorld) checkRecord() {
	w.Helper()
	text := []byte(w.dump())
	for _, value := range []string{apiValue, gitValue} {
		if bytes.Contains(text, []byte(value)) {
			w.Errorf("a value is in the record:%s", text)
		}
	}
}

// nextHTTP waits for the next http event and returns it.
func (w *keyWorld) nextHTTP() *audit.HTTP {
	w.Helper()
	w.requests++
	return w.http(w.requests)
}
