package host

import (
	"context"
	"net/http"

	"github.com/custody-project/custody/internal/endpoint"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/clickhouse"
)

// Web carries requests to servers until Close. It is safe for concurrent use.
type Web interface {
	http.RoundTripper // to servers that the system's authorities certify
	// To returns what carries requests to another server.
	To(s endpoint.Server) (http.RoundTripper, error)
	// Prepare does what the first request would have to wait for. That request reports an error.
	Prepare(ctx context.Context)
	Close() error
}

// Outside has what speaks to other machines for a process of root, which then parses none of their bytes. What is not set, this process does.
type Outside struct {
	// NewWeb returns what carries requests to witnesses, time-stamping authorities or webhooks. The caller closes it.
	NewWeb func() Web
	// Key carries requests to the Vault that has the host's signing key.
	Key Web
	// OpenStore opens a ClickHouse database.
	OpenStore func(ctx context.Context, dsn string, o clickhouse.Options) (store.Store, error)
}

// Web returns a Web, which the caller closes.
func (o Outside) Web() Web {
	if o.NewWeb != nil {
		return o.NewWeb()
	}
	return ownWeb{http.DefaultTransport.(*http.Transport).Clone()}
}

// ownWeb is the Web of this process.
type ownWeb struct{ *http.Transport }

// To implements Web.
func (ownWeb) To(s endpoint.Server) (http.RoundTripper, error) { return s.Transport() }

// Prepare implements Web.
func (ownWeb) Prepare(context.Context) {}

// Close implements Web.
func (w ownWeb) Close() error {
	w.CloseIdleConnections()
	return nil
}
