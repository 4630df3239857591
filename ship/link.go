package ship

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// link is a connection to external servers, which survives the loss of each.
type link struct {
	config     Config
	conn       *nats.Conn
	js         jetstream.JetStream
	reconnects atomic.Uint64
	inflight   atomic.Int64 // bytes of unanswered messages

	closing     atomic.Bool
	stopHelpers context.CancelFunc // nil if there are none
	helpers     sync.WaitGroup

	guarding sync.Mutex          // guards guards
	guards   map[*guard]struct{} // active requests
}

// guard ends a request early that would get no answer: because the server does not permit it, or
// because the connection is lost or replaced (errTurned).
type guard struct {
	subject string
	cancel  context.CancelCauseFunc
}

// connect tries all servers until one accepts the connection, an error is permanent, or ctx ends.
func connect(ctx context.Context, c Config) (*link, error) {
	options, err := c.options()
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	l := &link{config: c, guards: map[*guard]struct{}{}}
	options = append(options,
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { l.failed(err) }),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { l.wake() }),
		nats.ReconnectHandler(func(*nats.Conn) { l.reconnects.Add(1); l.wake() }),
	)
	for delay := firstReconnect; ; delay = min(2*delay, lastReconnect) {
		if l.conn, err = nats.Connect(c.URL, options...); err == nil {
			break
		}
		err = c.explain(err)
		var final *Error
		if errors.As(err, &final) {
			return nil, fmt.Errorf("connect to NATS at %s: %w", c.servers(), err)
		}
		if pause(ctx, jitter(delay)); ctx.Err() != nil {
			return nil, fmt.Errorf("connect to NATS at %s: %w", c.servers(), errors.Join(err, ctx.Err()))
		}
	}
	if l.js, err = jetstream.New(l.conn); err != nil {
		l.conn.Close()
		return nil, err
	}
	return l, nil
}

// explain adds the remedy to a permanent error of a connection.
func (c Config) explain(err error) error {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &authority):
		return hinted(err, "the server's certificate is signed by another CA: set the CA file to the CA that signed it")
	case errors.As(err, &host):
		return hinted(err, "use a name in the URL that the server's certificate has, or issue the server a certificate with this name")
	case errors.As(err, &invalid):
		return hinted(err, "renew the server's certificate, and check the clocks of both machines")
	case errors.As(err, &record), errors.Is(err, nats.ErrSecureConnWanted):
		return hinted(err, "the server does not use TLS: add a tls block to its configuration, or use nats:// and no CA")
	case errors.Is(err, nats.ErrSecureConnRequired):
		return hinted(err, "the server requires TLS: use tls:// and set the CA file")
	case strings.Contains(err.Error(), "tls: ") && strings.Contains(err.Error(), "certificate"):
		return hinted(err, "the server requires a client certificate of a CA that it trusts: set certificate and key")
	case errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked), errors.Is(err, nats.ErrAccountAuthExpired):
		return hinted(err, "renew the credentials file")
	case errors.Is(err, nats.ErrAuthorization):
		return hinted(err, "the server does not know these credentials: see the user's NKey or JWT on both sides")
	}
	return err
}

// violation finds the subject in the server's permission error.
var violation = regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to "([^"]+)"`)

// failed is called with the server's asynchronous errors.
func (l *link) failed(err error) {
	m := violation.FindStringSubmatch(err.Error())
	if m == nil {
		return
	}
	l.guarding.Lock()
	defer l.guarding.Unlock()
	verb := "publish"
	if !strings.EqualFold(m[1], verb) {
		verb = "subscribe to"
	}
	denied := hinted(fmt.Errorf("%w: %s %s", ErrDenied, verb, m[2]), "allow this user to %s %q", verb, m[2])
	for g := range l.guards {
		if g.subject == m[2] || strings.HasPrefix(m[2], inboxRoot) {
			g.cancel(denied)
		}
	}
}

// guarded returns a context that is canceled, with the cause, if the server denies subject or the
// connection is replaced.
func (l *link) guarded(ctx context.Context, subject string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	g := &guard{subject: subject, cancel: cancel}
	l.guarding.Lock()
	l.guards[g] = struct{}{}
	l.guarding.Unlock()
	return ctx, func() {
		l.guarding.Lock()
		delete(l.guards, g)
		l.guarding.Unlock()
		cancel(nil)
	}
}

// api makes a request to JetStream under subject's guard, distinguishes a denial from a missing answer, and times out
// after requestTimeout.
func (l *link) api(ctx context.Context, subject string, request func(context.Context) error) error {
	return l.try(ctx, subject, requestTimeout, request)
}

// try is api with another timeout.
func (l *link) try(ctx context.Context, subject string, timeout time.Duration, request func(context.Context) error) error {
	guarded, done := l.guarded(ctx, subject)
	defer done()
	bounded, cancel := context.WithTimeout(guarded, timeout)
	defer cancel()
	err := request(bounded)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if cause := context.Cause(guarded); cause != nil {
		return cause
	}
	return err
}

const requestTimeout = 10 * time.Second

// errTurned is the cause of requests that were canceled because the connection was lost or replaced.
var errTurned = errors.New("the connection to the NATS server was lost or replaced")

// wake cancels all guarded requests: their answers are lost, or a retry can get one now.
func (l *link) wake() {
	l.guarding.Lock()
	defer l.guarding.Unlock()
	for g := range l.guards {
		g.cancel(errTurned)
	}
}

// rest returns after d, when the connection is replaced or at the end of ctx.
func (l *link) rest(ctx context.Context, d time.Duration) {
	guarded, done := l.guarded(ctx, "")
	defer done()
	pause(guarded, d)
}

// probe checks that the server is alive, after a request that it did not answer, and reconnects if it is
// not. Pings would detect that later.
func (l *link) probe(err error) {
	timeout := probeTimeout
	switch {
	case errors.Is(err, jetstream.ErrNoHeartbeat):
		timeout = pullHeartbeat // the answer may wait behind a long message
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		timeout += time.Duration(l.inflight.Load()) * time.Second / slowest
	default:
		return
	}
	if l.conn.IsConnected() && l.conn.FlushTimeout(timeout) != nil && l.conn.IsConnected() {
		_ = l.conn.ForceReconnect()
	}
}

const (
	probeTimeout = 2 * time.Second
	// slowest is the minimum rate of a connection in bytes per second: a slower one counts as broken.
	slowest = 64 << 10
)

func (l *link) close() {
	l.closing.Store(true)
	if l.stopHelpers != nil {
		l.stopHelpers()
	}
	l.helpers.Wait()
	l.conn.Close()
	l.wake()
}

// jitter returns a time between d/2 and d, so that clients do not act simultaneously.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// pause returns after d or at the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
