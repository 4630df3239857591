package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// Path is the path at which Serve serves metrics.
const Path = "/metrics"

// maxReaders is the number of concurrent requests; further ones get status 503.
const maxReaders = 4

// PublicError reports that an address is reachable from other machines, which was not requested.
type PublicError struct{ Addr string }

// Error implements error.
func (e *PublicError) Error() string {
	return fmt.Sprintf("metrics at %s could be read from other machines", e.Addr)
}

// Hint returns the remedy.
func (e *PublicError) Hint() string {
	return "use a loopback address, or allow public access explicitly: there is neither TLS nor a password"
}

// Serve serves metrics at Path on addr until ctx ends, and then returns nil; see Listen for addr and public.
func (s *Set) Serve(ctx context.Context, addr string, public bool) error {
	l, err := Listen(ctx, addr, public)
	if err != nil {
		return err
	}
	return s.ServeOn(ctx, l)
}

// Listen opens addr, a host and a port. The default host is 127.0.0.1. The error is a PublicError if the host
// is a name or not a loopback address, unless public is set.
func Listen(ctx context.Context, addr string, public bool) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	if host == "" && !public {
		host = "127.0.0.1"
	}
	if ip, err := netip.ParseAddr(host); !public && (err != nil || !ip.Unmap().IsLoopback()) {
		return nil, fmt.Errorf("serve metrics: %w", &PublicError{addr})
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	return l, nil
}

// ServeOn is Serve on a listener, which it closes.
func (s *Set) ServeOn(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, s.Handler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second,
		WriteTimeout: 20 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		stopped <- errors.Join(server.Shutdown(grace), server.Close())
	})
	err := server.Serve(l)
	if !stop() { // ctx has ended: wait for active requests
		<-stopped
		return nil
	}
	return fmt.Errorf("serve metrics: %w", err)
}
