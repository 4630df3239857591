package serve

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/api"
	"github.com/custody-project/custody/replay/web"
	"github.com/custody-project/custody/store"
)

// Serve serves the bundle's run, read-only, to clients of l until ctx ends or the service is idle, and closes l. It uses no state of
// this host. There is no access log, so l must be reachable from this machine only.
func (b *Bundle) Serve(ctx context.Context, l net.Listener, o Options) error {
	s := newService(o, l, filepath.Join(b.Dir, "serve"))
	s.path = "/runs/" + b.Shown.ID
	return s.run(ctx, l, b.backend)
}

// backend makes the parts of s: a bundle has no access log, no notes, no saved views and no tokens.
func (b *Bundle) backend(s *service) error {
	tokens, err := access.OpenTokens(s.dir)
	if err != nil {
		return err
	}
	s.gate, err = access.New(access.Options{Config: s.Config, Tokens: tokens, Tenant: b.Shown.Tenant, Recorder: unrecorded{}, LinkFor: s.LinkFor, Warn: s.Notice})
	if err != nil {
		return err
	}
	s.api, err = api.New(api.Options{
		Open: func(context.Context) (api.Source, error) { return bundleSource{b}, nil }, Verify: b.verify, Proof: b.proof, Bundle: b.copy,
		Exports: s.Exports, Gate: s.gate, Assets: s.gate.Host(web.Handler()), Log: s.Log,
	})
	return err
}

// unrecorded drops access events: a bundle on a machine without Custody has no access log.
type unrecorded struct{}

// Record implements access.Recorder.
func (unrecorded) Record(context.Context, audit.Access) error { return nil }

// bundleSource is a bundle that stays open when the API closes it.
type bundleSource struct{ *Bundle }

// Close implements api.Source.
func (bundleSource) Close() error { return nil }

// verify checks the bundle again, with the keys that it was opened with.
func (b *Bundle) verify(ctx context.Context, _ store.Run) (proof.Report, error) {
	return proof.Verify(ctx, b.evidence, b.trust)
}

func (b *Bundle) proof(ctx context.Context, _ store.Run, seq uint64) (proof.RecordProof, error) {
	return proof.ProofOf(ctx, b.evidence, seq)
}

// copy writes the bundle's file.
func (b *Bundle) copy(_ context.Context, w io.Writer, _ store.Run, part api.Selection) error {
	if part.First > 0 || part.Last > 0 || part.Since != nil {
		return access.NewProblem(http.StatusConflict, "bundle-whole", "a bundle is downloaded unchanged", "ask for the whole run, or the host that made it for a part")
	}
	f, err := os.Open(b.path)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return errors.Join(err, f.Close())
}
