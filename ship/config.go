package ship

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/custody-project/custody/internal/regular"
)

// Config has the addresses of the servers and the credentials for them. Files are read again for each connection and
// reconnect, so that they can be renewed.
type Config struct {
	// URL is of one or more servers of one cluster, separated by commas: nats://host:4222, or tls://.
	URL string
	// Tenant and Host identify whose segments Remote publishes. Both are part of the subjects.
	Tenant, Host string

	CA        string // file with the CA certificates for servers; empty: the system's
	Cert, Key string // files with the client certificate and key, if servers require one
	Creds     string // JWT credentials file, as nsc writes it
	NKey      string // file with an NKey seed

	// Monitor has the monitoring endpoints of the servers, http(s)://host:8222, separated by commas: sync_interval is
	// checked there. If empty, it is not checked.
	Monitor string
	// Replicas is the number of replicas of streams that are created. 0 means 3 in a cluster, else 1.
	Replicas int
	// StreamBytes is the size limit of the stream CUSTODY if it is created. 0 means DefaultStreamBytes.
	StreamBytes int64
	// Warn, if set, is called with a problem that does not end the work. It must be safe for concurrent
	// use.
	Warn func(string)
}

// DefaultStreamBytes is the size at which publishers must wait.
const DefaultStreamBytes = 8 << 30

func (c Config) warn(format string, args ...any) {
	if c.Warn != nil {
		c.Warn(fmt.Sprintf(format, args...))
	}
}

// Error is a permanent failure with its remedy.
type Error struct {
	Err  error
	hint string
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Hint returns the remedy, in one line.
func (e *Error) Hint() string { return e.hint }

func hinted(err error, format string, args ...any) error {
	return &Error{Err: err, hint: fmt.Sprintf(format, args...)}
}

// Errors of a connection, wrapped in an *Error.
var (
	// ErrDenied: the servers deny this user an operation.
	ErrDenied = errors.New("not permitted by the NATS server")
	// ErrStream: the stream is missing, or its settings can lose segments.
	ErrStream = errors.New("stream " + streamName + " cannot be used")
)

// servers returns the URLs, without credentials.
func (c Config) servers() string {
	urls := strings.Split(c.URL, ",")
	for i, raw := range urls {
		if u, err := url.Parse(strings.TrimSpace(raw)); err == nil {
			urls[i] = u.Redacted()
		} else {
			urls[i] = "(not a URL)"
		}
	}
	return strings.Join(urls, ",")
}

// options returns the options of connects and reconnects. Errors are of the configuration.
func (c Config) options() ([]nats.Option, error) {
	inbox, err := subject(inboxRoot, c.Tenant, c.Host)
	if err != nil {
		return nil, err
	}
	options := []nats.Option{
		nats.Name("custody " + c.Host),
		nats.Timeout(dialTimeout),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // credentials may be restored
		nats.CustomReconnectDelay(reconnectDelay),
		nats.ReconnectBufSize(-1), // Publish retries
		nats.PingInterval(pingEvery),
		nats.MaxPingsOutstanding(2),
		nats.CustomInboxPrefix(inbox),
		nats.NoCallbacksAfterClientClose(),
	}
	if err := c.checkURLs(); err != nil {
		return nil, err
	}
	secure, err := c.tls()
	if err != nil {
		return nil, err
	}
	login, err := c.login()
	return append(append(options, secure...), login...), err
}

func (c Config) checkURLs() error {
	if strings.TrimSpace(c.URL) == "" {
		return hinted(errors.New("no NATS server is configured"), "set the URL of a server, such as tls://nats.example.com:4222")
	}
	for _, raw := range strings.Split(c.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(raw))
		if err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls" {
			return hinted(errors.New("the list of NATS servers contains an invalid URL"), "write nats://host:4222 or tls://host:4222, separated by commas")
		}
		if u.Scheme == "nats" && c.CA == "" && c.Cert == "" && !isLoopback(u.Hostname()) {
			c.warn("records go to %s without encryption unless that server requires TLS: use tls:// and a CA", u.Host)
		}
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (c Config) tls() ([]nats.Option, error) {
	var pool nats.RootCAsHandler
	var pair nats.TLSCertHandler
	if c.CA != "" {
		pool = func() (*x509.CertPool, error) { return readPool(c.CA) }
		if _, err := pool(); err != nil {
			return nil, err
		}
	}
	switch {
	case c.Cert != "" && c.Key != "":
		pair = func() (tls.Certificate, error) { return regular.KeyPair(c.Cert, c.Key) }
		if _, err := pair(); err != nil {
			return nil, hinted(fmt.Errorf("client certificate %s with key %s: %w", c.Cert, c.Key, err), "both are PEM files and belong together")
		}
	case c.Cert != "" || c.Key != "":
		return nil, hinted(errors.New("a client certificate needs its key, and the key its certificate"), "set both files")
	}
	if pool == nil && pair == nil {
		return nil, nil
	}
	return []nats.Option{nats.ClientTLSConfig(pair, pool)}, nil
}

func readPool(path string) (*x509.CertPool, error) {
	pem, err := regular.ReadFile(path)
	if err != nil {
		return nil, hinted(fmt.Errorf("certificates of the CA: %w", err), "name a PEM file that this process can read")
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, hinted(fmt.Errorf("%s has no certificate", path), "name the PEM file of the CA that signed the servers' certificates")
	}
	return pool, nil
}

func (c Config) login() ([]nats.Option, error) {
	switch {
	case c.Creds != "" && c.NKey != "":
		return nil, hinted(errors.New("both credentials and an NKey are set"), "set the server's")
	case c.Creds != "":
		if err := readable(c.Creds); err != nil {
			return nil, err
		}
		return []nats.Option{nats.UserCredentials(c.Creds)}, regular.Check(c.Creds)
	case c.NKey != "":
		if err := readable(c.NKey); err != nil {
			return nil, err
		}
		option, err := nats.NkeyOptionFromSeed(c.NKey)
		if err != nil {
			return nil, hinted(fmt.Errorf("%s has no NKey seed", c.NKey), "the file has one line that begins with SU")
		}
		return []nats.Option{option}, nil
	}
	return nil, nil
}

// readable checks that a secret file can be read, and by its owner only.
func readable(path string) error {
	f, err := regular.Open(path)
	if err != nil {
		return hinted(fmt.Errorf("NATS credentials: %w", err), "name a file that this process can read")
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = hinted(fmt.Errorf("%s has mode %#o: others can read the credentials", path, info.Mode().Perm()), "chmod 600 %s", path)
	}
	return err
}

const (
	dialTimeout = 5 * time.Second
	pingEvery   = 20 * time.Second
	// Delays of reconnects: 100 ms at first, at most 10 s.
	firstReconnect = 100 * time.Millisecond
	lastReconnect  = 10 * time.Second
)

// reconnectDelay returns the delay after that many attempts at all servers.
func reconnectDelay(attempts int) time.Duration {
	return jitter(min(firstReconnect<<min(attempts, 10), lastReconnect))
}
