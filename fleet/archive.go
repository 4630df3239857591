package fleet

import (
	"context"
	"time"

	"github.com/custody-project/custody/run"
)

// Archive keeps the stored states of paused sandboxes elsewhere. It is safe for concurrent use.
type Archive interface {
	// Put copies the stored state of a run there, until it expires.
	Put(ctx context.Context, r Request, run string, expires time.Time) error
	// Fetch copies it back.
	Fetch(ctx context.Context, tenant, run string) (run.Saved, error)
	// About returns what was stored with the state of a run on this host.
	About(ctx context.Context, tenant, run string) ([]byte, error)
	// Has reports whether the archive has the state of a run.
	Has(ctx context.Context, tenant, run string) (bool, error)
	// Delete removes it. It is no error if there is none.
	Delete(ctx context.Context, tenant, run string) error
}
