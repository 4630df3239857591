package client

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"net/http"
	"time"
)

// Box is a sandbox of a service. It is safe for concurrent use.
type Box struct {
	ID     string
	client *Client
}

// attempts bounds how often a request that is safe to repeat is made, and patience how often output is asked for, which survives a service
// that starts again within a minute. pause is the time before the first repetition; it doubles up to longestPause.
const (
	attempts     = 5
	patience     = 20
	pause        = 200 * time.Millisecond
	longestPause = 4 * time.Second
)

// Create creates a sandbox, or returns that of the request's session. It does not wait until the sandbox is live. It repeats the request if
// the connection breaks, with an idempotency key, so that there is one sandbox.
func (c *Client) Create(ctx context.Context, r SandboxRequest) (*Box, error) {
	header := http.Header{"Idempotency-Key": {rand.Text()}}
	var s Sandbox
	err := repeat(ctx, func() error {
		return c.call(ctx, http.MethodPost, []string{"sandboxes"}, nil, r, &s, header)
	})
	if err != nil {
		return nil, err
	}
	return c.Sandbox(s.ID), nil
}

// repeat calls f until it succeeds, the service refuses it, or it has failed too often.
func repeat(ctx context.Context, f func() error) error { return repeatFor(ctx, attempts, f) }

// repeatFor is repeat with a number of attempts.
func repeatFor(ctx context.Context, attempts int, f func() error) error {
	for i := 1; ; i++ {
		err := f()
		if err == nil || i == attempts || ctx.Err() != nil || refused(err) {
			return err
		}
		if sleep(ctx, min(pause<<(i-1), longestPause)) != nil {
			return err
		}
	}
}

// refused reports whether the service has answered an error that another attempt does not change, or is not the right one.
func refused(err error) bool {
	for _, temporary := range []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout} {
		if IsStatus(err, temporary) {
			return false
		}
	}
	return errors.As(err, new(*Problem)) || errors.As(err, new(*tls.CertificateVerificationError))
}

// Sandbox returns the sandbox with an ID, which need not exist.
func (c *Client) Sandbox(id string) *Box { return &Box{id, c} }

// List returns the sandboxes of the tenant: those that live, and those that ended in the last minutes.
func (c *Client) List(ctx context.Context) ([]Sandbox, error) {
	var list struct{ Sandboxes []Sandbox }
	err := repeat(ctx, func() error { return c.call(ctx, http.MethodGet, []string{"sandboxes"}, nil, nil, &list, nil) })
	return list.Sandboxes, err
}

// Info returns the description of the sandbox.
func (b *Box) Info(ctx context.Context) (s Sandbox, err error) {
	err = repeat(ctx, func() error { return b.client.call(ctx, http.MethodGet, b.path(), nil, nil, &s, nil) })
	return s, err
}

// Extend sets how long the sandbox lives from now on.
func (b *Box) Extend(ctx context.Context, d time.Duration) (s Sandbox, err error) {
	err = b.client.call(ctx, http.MethodPost, b.path("extend"), nil, ExtendRequest{int64(d / time.Second)}, &s, nil)
	return s, err
}

// Pause stores the processes and files of the sandbox, and ends its machine. It returns when the sandbox is paused. Connections and operations on
// files end. The next call resumes it, as Resume does. If Sandbox.FilesOnly is set, only the files were stored, and the processes have ended.
func (b *Box) Pause(ctx context.Context) (s Sandbox, err error) { return b.change(ctx, "pause") }

// Resume makes the sandbox live, and returns when it is. Its processes continue in a new run. A sandbox that cannot be resumed stays paused.
func (b *Box) Resume(ctx context.Context) (s Sandbox, err error) { return b.change(ctx, "resume") }

// change asks for a change that can be repeated.
func (b *Box) change(ctx context.Context, what string) (s Sandbox, err error) {
	err = repeat(ctx, func() error {
		return b.client.call(ctx, http.MethodPost, b.path(what), nil, nil, &s, nil)
	})
	return s, err
}

// Fork makes sandboxes that continue from the state of this one, each with a copy of its processes and files, and returns when they are live. A sandbox that
// is live is paused for that, and continues then; one that is paused stays paused. After an error there are none. It repeats the request if the connection breaks, with an
// idempotency key.
func (b *Box) Fork(ctx context.Context, r ForkRequest) ([]Sandbox, error) {
	header := http.Header{"Idempotency-Key": {rand.Text()}}
	var list struct{ Sandboxes []Sandbox }
	err := repeat(ctx, func() error {
		return b.client.call(ctx, http.MethodPost, b.path("fork"), nil, r, &list, header)
	})
	return list.Sandboxes, err
}

// Destroy ends the sandbox, and returns when its record is closed. It is no error if the sandbox has ended before.
func (b *Box) Destroy(ctx context.Context) error {
	err := repeat(ctx, func() error { return b.client.call(ctx, http.MethodDelete, b.path(), nil, nil, nil, nil) })
	if IsStatus(err, http.StatusNotFound) {
		return nil
	}
	return err
}

// path returns the path of something of the sandbox.
func (b *Box) path(parts ...string) []string { return append([]string{"sandboxes", b.ID}, parts...) }
