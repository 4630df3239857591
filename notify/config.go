// Package notify sends messages about findings, failed verifications, frozen runs and ends of
// runs to webhooks, and starts commands on this host for them. host.yaml configures both.
//
// A message for a webhook is a file in $CUSTODY_HOME/notify until it is delivered, so the next
// command delivers the messages of one that was killed. A command is started at most once for a message.
// docs/notify.md describes both.
package notify

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/sink/peer"
)

// The types of messages.
const (
	Finding = "finding" // a record of kind finding
	Verify  = "verify"  // verify, fsck or monitor found something, or a run's record could not be closed
	Frozen  = "frozen"  // a run's sandbox was frozen
	End     = "end"     // a run ended
	Test    = "test"    // of custody notify test
)

var types = []string{Finding, Verify, Frozen, End}

// Config is host.yaml's notify. The zero Config sends nothing.
type Config struct {
	Webhooks []Webhook `yaml:"webhooks"`
	Hooks    []Hook    `yaml:"hooks"`
}

// Filter selects messages.
type Filter struct {
	// On lists the types; empty: finding, verify and frozen for a webhook, end for a hook.
	On []string `yaml:"on"`
	// Rules lists the rules of findings, with "*" for any characters; empty: all.
	Rules []string `yaml:"rules"`
	// Severity is the minimum severity, alert or error for findings; empty: all.
	Severity string `yaml:"severity"`
}

// Webhook is an endpoint that receives messages over HTTPS.
type Webhook struct {
	Name string `yaml:"name"`
	// URL is the address, or file:PATH or env:NAME if the address is a secret.
	URL    string `yaml:"url"`
	Filter `yaml:",inline"`
	// Format is json (default) or slack.
	Format string `yaml:"format"`
	// Key is file:PATH or env:NAME of the signing key, whsec_ and base64 of 24 to 64 bytes.
	Key string `yaml:"key"`
	// CA is a PEM file with the only trusted authorities; empty: the system's.
	CA string `yaml:"ca"`
	// PlainHTTP allows http:// to other hosts than this one.
	PlainHTTP bool `yaml:"plain_http"`
}

// Hook is a command on this host, started as the user who runs custody.
type Hook struct {
	Name   string   `yaml:"name"`
	Argv   []string `yaml:"argv"`
	Filter `yaml:",inline"`
	// Time is the time after which it is killed, in Go's syntax; default 30s, at most 10m.
	Time string `yaml:"time"`
}

// Bounds of a hook's time.
const (
	hookTime    = 30 * time.Second
	maxHookTime = 10 * time.Minute
)

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

// Check finds mistakes that need no network to detect.
func (c Config) Check() error {
	names := map[string]bool{}
	check := func(what, name string, f Filter) error {
		if !validName.MatchString(name) || names[name] {
			return fmt.Errorf("notify.%s %q: each needs a unique name of letters, digits, '-' or '_'", what, name)
		}
		names[name] = true
		if err := f.check(); err != nil {
			return fmt.Errorf("notify.%s %s: %w", what, name, err)
		}
		return nil
	}
	for _, w := range c.Webhooks {
		if err := check("webhooks", w.Name, w.Filter); err != nil {
			return err
		}
		if err := w.check(); err != nil {
			return fmt.Errorf("notify.webhooks %s: %w", w.Name, err)
		}
	}
	for _, h := range c.Hooks {
		if err := check("hooks", h.Name, h.Filter); err != nil {
			return err
		}
		if err := h.check(); err != nil {
			return fmt.Errorf("notify.hooks %s: %w", h.Name, err)
		}
	}
	return nil
}

func (f Filter) check() error {
	for _, t := range f.On {
		if !slices.Contains(types, t) {
			return fmt.Errorf("on %q: want %s", t, strings.Join(types, ", "))
		}
	}
	if _, ok := levels[f.Severity]; !ok && f.Severity != "" {
		return fmt.Errorf("severity %q: want alert, error, warning, notice or info", f.Severity)
	}
	return nil
}

// takes reports whether the filter selects a message. A test is always selected.
func (f Filter) takes(m Message, byDefault []string) bool {
	on := f.On
	if len(on) == 0 {
		on = byDefault
	}
	switch {
	case m.Type == Test:
		return true
	case !slices.Contains(on, m.Type):
		return false
	case f.Severity != "" && levels[m.Severity] > levels[f.Severity]:
		return false
	case m.Type != Finding || len(f.Rules) == 0:
		return true
	}
	return slices.ContainsFunc(f.Rules, func(pattern string) bool { return matches(pattern, m.Rule) })
}

func matches(pattern, rule string) bool {
	parts := strings.Split(pattern, "*")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	ok, err := regexp.MatchString("^"+strings.Join(parts, ".*")+"$", rule)
	return ok && err == nil
}

// levels orders the names of severities like RFC 5424: the most severe is the lowest number.
var levels = map[string]export.Severity{
	"alert": export.Alert, "error": export.Error, "warning": export.Warning, "notice": export.Notice, "info": export.Info,
}

func levelOf(s export.Severity) string {
	for name, level := range levels {
		if level == s {
			return name
		}
	}
	return "info"
}

func (w Webhook) check() error {
	if w.Format != "" && w.Format != "json" && w.Format != "slack" {
		return fmt.Errorf("format %q: want json or slack", w.Format)
	}
	if w.Key == "" && w.Format != "slack" {
		return errors.New("a webhook of format json is signed: name its key, file:PATH or env:NAME")
	}
	if w.Key != "" {
		if _, err := source(w.Key); err != nil {
			return fmt.Errorf("key: %w", err)
		}
	}
	if _, err := source(w.URL); err == nil {
		return nil
	}
	return w.checkURL(w.URL)
}

func (w Webhook) checkURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.User != nil:
		return errors.New("url: want https://HOST/PATH without a user, file:PATH or env:NAME")
	case u.Scheme == "https", u.Scheme == "http" && (w.PlainHTTP || peer.Local(u.Hostname())):
		return nil
	}
	return errors.New("url: want https; plain_http: true allows http to other hosts than this one")
}

// address returns the URL. Its errors never quote it.
func (w Webhook) address() (string, error) {
	s, err := source(w.URL)
	if err != nil {
		return w.URL, nil
	}
	address, err := s.Value()
	if err != nil {
		return "", fmt.Errorf("url: %w", err)
	}
	return address, w.checkURL(address)
}

// secret returns the signing key, nil for none.
func (w Webhook) secret() ([]byte, error) {
	if w.Key == "" {
		return nil, nil
	}
	s, err := source(w.Key)
	if err != nil {
		return nil, err
	}
	text, err := s.Value()
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	encoded, ok := strings.CutPrefix(text, "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return nil, errors.New("key: want whsec_ and the base64 of 24 to 64 bytes")
	}
	return key, nil
}

// source reads file:PATH or env:NAME.
func source(s string) (peer.Secret, error) {
	if path, ok := strings.CutPrefix(s, "file:"); ok && filepath.IsAbs(path) {
		return peer.Secret{File: path}, nil
	}
	if name, ok := strings.CutPrefix(s, "env:"); ok && name != "" {
		return peer.Secret{Env: name}, nil
	}
	return peer.Secret{}, errors.New("want file: and an absolute path, or env:NAME")
}

func (h Hook) check() error {
	if len(h.Argv) == 0 || !filepath.IsAbs(h.Argv[0]) {
		return errors.New("argv: want a list that begins with the absolute path of a program")
	}
	if d, err := h.limit(); err != nil || d <= 0 || d > maxHookTime {
		return fmt.Errorf("time %q: want up to %v", h.Time, maxHookTime)
	}
	return nil
}

func (h Hook) limit() (time.Duration, error) {
	if h.Time == "" {
		return hookTime, nil
	}
	return time.ParseDuration(h.Time)
}
