package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// bundle serves the page over one bundle, read-only, to this machine. It needs nothing of $CUSTODY_HOME.
func (c serveCmd) bundle(a *app) (err error) {
	if file, err := isFile(c.File); err != nil || !file {
		return cmp.Or(err, error(usageError{fmt.Errorf("%s: there is no such file; custody serve --run %[1]s shows a run of this host", c.File)}))
	}
	if c.Show != "" {
		return usageError{errors.New("--run names a run of this host: a bundle has one run, which the link leads to")}
	}
	config := access.Config{Listen: c.Listen}.WithDefaults()
	if host, _, err := net.SplitHostPort(config.Listen); err != nil || !loopback(host) {
		return usageError{fmt.Errorf("--listen %s: a bundle is served to this machine only: give 127.0.0.1:PORT", config.Listen)}
	}
	b, err := a.openBundle(c.File, c.Key)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if b.doubt != nil {
		a.say(b.verdict())
	}
	var listen net.ListenConfig
	l, err := listen.Listen(a.ctx, "tcp", config.Listen)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	config.Listen = l.Addr().String()
	s := &service{app: a, dir: filepath.Join(b.Dir, "serve"), config: config, place: "/runs/" + b.Shown.ID, linkFor: cmp.Or(c.Link, usualLink)}
	if err := s.openBundle(b); err != nil {
		return errors.Join(err, s.close(), l.Close())
	}
	return errors.Join(s.serve(l, c.Idle), s.close())
}

// loopback reports whether a host's name or address is this machine's own.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// openBundle makes the parts for a bundle: it has no access log, no notes, no saved views and no tokens.
func (s *service) openBundle(b *shownBundle) error {
	tokens, err := access.OpenTokens(s.dir)
	if err != nil {
		return err
	}
	s.gate, err = access.New(access.Options{Config: s.config, Tokens: tokens, Tenant: b.Shown.Tenant, Recorder: unrecorded{}, LinkFor: s.linkFor, Warn: s.say})
	if err != nil {
		return err
	}
	exports, err := forms()
	if err != nil {
		return err
	}
	s.api, err = api.New(api.Options{
		Open: func(context.Context) (api.Source, error) { return bundleSource{b}, nil }, Verify: b.verify, Proof: b.proof, Bundle: b.copy,
		Exports: exports, Gate: s.gate, Assets: s.gate.Host(web.Handler()), Log: s.log,
	})
	return err
}

// unrecorded drops access events: a bundle on a machine without Custody has no access log.
type unrecorded struct{}

// Record implements access.Recorder.
func (unrecorded) Record(context.Context, audit.Access) error { return nil }

// bundleSource is a bundle that stays open when the API closes it.
type bundleSource struct{ *shownBundle }

// Close implements api.Source.
func (bundleSource) Close() error { return nil }

// verify checks the bundle again, with the keys that it was opened with.
func (b *shownBundle) verify(ctx context.Context, _ store.Run) (proof.Report, error) {
	return proof.Verify(ctx, b.evidence, b.trust)
}

func (b *shownBundle) proof(ctx context.Context, _ store.Run, seq uint64) (proof.RecordProof, error) {
	return proof.ProofOf(ctx, b.evidence, seq)
}

// copy writes the bundle's file.
func (b *shownBundle) copy(_ context.Context, w io.Writer, _ store.Run, part api.Selection) error {
	if part.First > 0 || part.Last > 0 || part.Since != nil {
		return access.NewProblem(http.StatusConflict, "bundle-whole", "a bundle is given as it is", "ask for the whole run, or the host that made it for a part")
	}
	f, err := os.Open(b.path)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return errors.Join(err, f.Close())
}
