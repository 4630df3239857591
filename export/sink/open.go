package sink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/sink/file"
	"github.com/custody-project/custody/export/sink/peer"
)

// SchemeError: a URL names no known sink.
type SchemeError struct{ To string }

// Error implements error.
func (e *SchemeError) Error() string { return fmt.Sprintf("%.80q names no sink", e.To) }

// Hint returns the remedy.
func (e *SchemeError) Hint() string {
	return "begin with file:, stdout:, syslog+tls://, hec+https://, elastic+https://, otlp+grpcs://, otlp+https://, tls+nats:// or s3://"
}

// CredentialError: a URL contains a credential, which would be exposed in process lists, logs and shell histories.
type CredentialError struct{ Name string }

// Error implements error.
func (e *CredentialError) Error() string {
	return fmt.Sprintf("the URL of %s has a credential in it, and is not used", e.Name)
}

// Hint returns the remedy.
func (e *CredentialError) Hint() string {
	return "remove it from the URL, store it in a file of mode 0600, and name that file as token_file or password_file, with user"
}

// PlainError: events would be sent unencrypted to another machine.
type PlainError struct{ Scheme, Host string }

// Error implements error.
func (e *PlainError) Error() string {
	return fmt.Sprintf("%s to %s would send the record in plain text", e.Scheme, e.Host)
}

// Hint returns the remedy.
func (e *PlainError) Hint() string {
	return "use the scheme with TLS, or set insecure: true if the connection is protected otherwise"
}

// Open returns the sink that t names. Most connect when there is something to send, so that an
// unavailable server is not an error.
func Open(ctx context.Context, t Target) (export.Sink, error) {
	s, err := open(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("export %s: %w", t.Name, err)
	}
	return s, nil
}

func open(_ context.Context, t Target) (export.Sink, error) {
	scheme, rest, ok := strings.Cut(t.To, ":")
	switch {
	case !ok:
		return nil, &SchemeError{t.To}
	case scheme == "file":
		return openFile(t, rest)
	case scheme == "stdout" && rest == "":
		return file.NewStream(os.Stdout), nil
	}
	by := openers[scheme]
	if by == nil {
		return nil, &SchemeError{t.To}
	}
	u, err := parse(t)
	if err != nil {
		return nil, err
	}
	return by(t, u)
}

// openers open sinks, by scheme.
var openers = map[string]func(Target, *url.URL) (export.Sink, error){
	"syslog+tcp": openSyslog, "syslog+tls": openSyslog,
	"hec+http": openHEC, "hec+https": openHEC,
	"elastic+http": openElastic, "elastic+https": openElastic,
	"otlp+grpc": openGRPC, "otlp+grpcs": openGRPC, "otlp+http": openOTLP, "otlp+https": openOTLP,
	"nats": openNATS, "tls+nats": openNATS, "nats+tls": openNATS,
	"s3": openS3,
}

// Check checks the target's URL, as far as that is possible without opening anything.
func (t Target) Check() error {
	scheme, rest, ok := strings.Cut(t.To, ":")
	if ok && (scheme == "file" || scheme == "stdout" && rest == "") {
		return nil
	}
	if !ok || openers[scheme] == nil {
		return &SchemeError{t.To}
	}
	_, err := parse(t)
	return err
}

// parse parses a URL, which must not have a credential nor, unless accepted, send plain text to another machine.
func parse(t Target) (*url.URL, error) {
	to, more := t.To, ""
	if strings.Contains(strings.SplitN(to, ":", 2)[0], "nats") { // the one scheme with several hosts
		to, more = firstHost(to)
	}
	u, err := url.Parse(to)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) {
			err = e.Err // the URL itself may contain a credential
		}
		return nil, fmt.Errorf("to: %w", err)
	}
	if u.User != nil || strings.Contains(more, "@") {
		return nil, &CredentialError{t.Name}
	}
	for key := range u.Query() {
		switch strings.ToLower(key) {
		case "token", "password", "secret", "key", "apikey", "api_key", "access_key", "secret_key", "auth", "authorization":
			return nil, &CredentialError{t.Name}
		}
	}
	if u.Host == "" {
		return nil, fmt.Errorf("to: %.80q has no host", t.To)
	}
	if u.Fragment != "" {
		return nil, fmt.Errorf("to: %.80q has a fragment", t.To)
	}
	u.Host += more
	return u, nil
}

// firstHost keeps the first host in a URL, and returns the others separately, each after a comma.
func firstHost(to string) (one, more string) {
	begin, rest, _ := strings.Cut(to, "://")
	hosts, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		hosts, path = rest[:i], rest[i:]
	}
	if i := strings.IndexByte(hosts, ','); i >= 0 {
		hosts, more = hosts[:i], hosts[i:]
	}
	return begin + "://" + hosts + path, more
}

// plain refuses a scheme without TLS to another machine.
func plain(t Target, u *url.URL) error {
	for host := range strings.SplitSeq(u.Host, ",") {
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if !t.Insecure && !peer.Local(strings.Trim(host, "[]")) {
			return &PlainError{u.Scheme, u.Host}
		}
	}
	return nil
}

// queryOnly refuses unknown parameters.
func queryOnly(u *url.URL, known ...string) error {
	q := u.Query()
	for _, k := range known {
		q.Del(k)
	}
	for k := range q {
		return fmt.Errorf("to: unknown parameter %.40q", k)
	}
	return nil
}

// withPort adds a port if the URL has none.
func withPort(u *url.URL, port string) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// secure returns the TLS configuration of a scheme with TLS, or nil for accepted plain text.
func secure(t Target, u *url.URL, hasTLS bool) (*tls.Config, error) {
	if !hasTLS {
		if t.tls() != (peer.TLS{}) {
			return nil, fmt.Errorf("%s has no TLS and does not support ca, cert, key and server_name", u.Scheme)
		}
		return nil, plain(t, u)
	}
	return t.tls().Config()
}

func openFile(t Target, path string) (export.Sink, error) {
	if rest, ok := strings.CutPrefix(path, "//"); ok {
		if path = rest; !strings.HasPrefix(path, "/") {
			return nil, fmt.Errorf("to: write file:/PATH, or file:PATH for one relative to this directory")
		}
	}
	if path == "" {
		return nil, errors.New("to: file: needs a path")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	return file.New(file.Options{Path: path, Bytes: int64(t.RotateBytes), Age: t.RotateAge, Keep: t.Keep, Gzip: t.Gzip})
}
