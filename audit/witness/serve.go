package witness

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// Serve serves requests on l until ctx ends, then waits at most 5 s for active requests.
// If conf is not nil, it uses TLS. It closes l.
func (w *Witness) Serve(ctx context.Context, l net.Listener, conf *tls.Config) error {
	s := &http.Server{
		Handler:           w,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      20 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    8 << 10,
	}
	if conf != nil {
		l = tls.NewListener(l, conf)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := s.Shutdown(grace)
	if err != nil {
		err = s.Close()
	}
	if end := <-ended; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}

// readBody reads a request's body, or answers with an error.
func readBody(rw http.ResponseWriter, req *http.Request) ([]byte, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(rw, req.Body, maxRequest))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		http.Error(rw, "the request is too large", http.StatusRequestEntityTooLarge)
	case err != nil:
		http.Error(rw, "the request is incomplete", http.StatusBadRequest)
	}
	return body, err == nil
}

// addresses is how many addresses the limiter remembers; it evicts the least recently seen.
const addresses = 4096

// limiter limits the rate of requests from an address.
type limiter struct {
	per  rate.Limit
	seen *lru.Cache[netip.Prefix, *rate.Limiter]
}

func newLimiter(perSecond float64) (*limiter, error) {
	seen, err := lru.New[netip.Prefix, *rate.Limiter](addresses)
	return &limiter{per: rate.Limit(perSecond), seen: seen}, err
}

func (l *limiter) allow(remote string) bool {
	var from netip.Prefix
	if ap, err := netip.ParseAddrPort(remote); err == nil {
		bits := 32
		if ap.Addr().Unmap().Is6() {
			bits = 64
		}
		from, _ = ap.Addr().Unmap().WithZone("").Prefix(bits)
	}
	fresh := rate.NewLimiter(l.per, max(1, int(2*l.per)))
	bucket, known, _ := l.seen.PeekOrAdd(from, fresh)
	if !known {
		bucket = fresh
	} else {
		l.seen.Get(from) // marks it as recently seen
	}
	return bucket.Allow()
}
