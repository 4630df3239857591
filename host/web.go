package host

import (
	"context"
	"net/http"
)

// Web carries requests to servers until Close. It is safe for concurrent use.
type Web interface {
	http.RoundTripper
	// Prepare does what the first request would have to wait for. That request reports an error.
	Prepare(ctx context.Context)
	Close() error
}

// webOf returns a Web of a host. The caller closes it.
func webOf(h *Host) Web {
	if h.NewWeb != nil {
		return h.NewWeb()
	}
	return ownWeb{http.DefaultTransport.(*http.Transport).Clone()}
}

// ownWeb is the Web of this process.
type ownWeb struct{ *http.Transport }

// Prepare implements Web.
func (ownWeb) Prepare(context.Context) {}

// Close implements Web.
func (w ownWeb) Close() error {
	w.CloseIdleConnections()
	return nil
}
