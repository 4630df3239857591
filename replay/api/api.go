package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/fleet"
	"github.com/custody-project/custody/replay/views"
	"github.com/custody-project/custody/store"
)

// Source reads runs; a host.Reader is one. Its methods are safe for
// concurrent use.
type Source interface {
	Runs(ctx context.Context, f store.Filter) ([]store.Run, error)
	Run(ctx context.Context, tenant, name string) (store.Run, error)
	Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error]
	Search(ctx context.Context, s store.Search) iter.Seq2[store.Row, error]
	Close() error
}

// Records reads a run's records; of a live run, before its segments are sealed.
type Records interface {
	Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error]
	Close() error
}

// Options are the parts of a Server. Open and Gate are required; a route whose part is
// missing answers 501.
type Options struct {
	// Open opens the store. It is called at the first request, and again after an error,
	// at most once a second. The Server closes what it opened.
	Open func(ctx context.Context) (Source, error)
	// Ahead returns a reader that has a live run's records as soon as they are durable; nil:
	// Source is asked. The Server closes it.
	Ahead func(ctx context.Context, src Source, run store.Run) (Records, error)
	// Verify checks a run's record. Its error is that of package proof or of replay's comparison.
	Verify func(ctx context.Context, run store.Run) (proof.Report, error)
	// Marks marks the rows that differ from what a host signed; nil: no row is marked.
	Marks func(ctx context.Context) (Marker, error)
	// Bundle writes an evidence bundle.
	Bundle func(ctx context.Context, w io.Writer, run store.Run, s Selection) error
	// Proof proves one record.
	Proof func(ctx context.Context, run store.Run, seq uint64) (proof.RecordProof, error)
	// Frameworks are the frameworks of reports.
	Frameworks []string
	// Report writes a report.
	Report func(ctx context.Context, w io.Writer, q ReportRequest) error
	// Exports are the export formats; they include Lines.
	Exports []Export
	// ExportDir is where export jobs keep their files until the Server is closed; "": there are no jobs.
	ExportDir string
	// ExportBytes bounds the file of one job; 0: 1 GiB.
	ExportBytes int64
	// Notes records notes on runs; nil: there are none.
	Notes Notes
	// Views stores saved views of the page; nil: views cannot be saved.
	Views *views.Shelf
	// Tokens are the API tokens; nil: they cannot be administered through the API.
	Tokens Tokens
	// Tenant is the host's own.
	Tenant string
	// Sandboxes are the live sandboxes; nil: there are none. Serves reports whether a tenant can have some here;
	// nil: none can.
	Sandboxes *fleet.Fleet
	Serves    func(tenant string) bool
	// PortOf returns the port of a sandbox that a Host header names; nil: ports are not served by host name.
	PortOf func(host string) (port int, sandbox string, ok bool)
	// PortName returns the host name of a port, "" if it has none; nil: none has.
	PortName func(port int, sandbox string) string
	// Gate authorizes each request.
	Gate Gate
	// OIDC reports that browsers can log in with an OIDC issuer.
	OIDC bool
	// Assets serves all that is not below /api/; nil: all else is not found.
	Assets http.Handler
	// Log, if set, gets the errors whose details the client must not see.
	Log *slog.Logger
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// CursorKey authenticates cursors, so that those of one process are valid in another;
	// nil: the Server makes a key, and cursors are valid until it is closed.
	CursorKey []byte
	// StoryBytes bounds the memory of cached runs; 0: 512 MiB.
	StoryBytes int64
}

// Selection is a part of a run.
type Selection struct {
	By          string // the principal of the request
	First, Last uint64 // 0: from the beginning, to the end
	Since       []byte // an earlier checkpoint of the host's log; nil: none
}

// Server answers requests. Its methods are safe for concurrent use.
type Server struct {
	log     *slog.Logger
	source  *lazySource
	hubs    *hubs
	jobs    *jobs
	handler http.Handler

	stop  context.CancelFunc // ends streams and work
	work  sync.WaitGroup     // the workers of checks and jobs
	close func() error       // once
}

// New returns a Server. The caller closes it.
func New(o Options) (*Server, error) {
	if o.Open == nil || o.Gate == nil {
		return nil, errors.New("the API needs a store and a gate")
	}
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	document, err := documentJSON()
	if err != nil {
		return nil, err
	}
	s := &Server{log: o.Log}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.close = sync.OnceValue(s.shut)
	s.source = &lazySource{open: o.Open, ctx: ctx}
	m := &markers{o.Marks, o.Log}
	s.jobs = &jobs{source: s.source, markers: m, now: o.Now, log: o.Log, most: o.ExportBytes, base: o.ExportDir, wake: make(chan struct{}, 1)}
	if err := s.jobs.prepare(); err != nil {
		s.stop()
		return nil, err
	}
	s.hubs = newHubs(ctx, s.source, o.Ahead, m)
	c := newChecks(o.Verify, s.source, o.Now, o.Log, ctx.Done())
	h := s.handlers(&o, newStories(ctx, o.StoryBytes, s.hubs, m, o.Now), c)
	h.about.document = document
	s.handler = s.mux(&o, h)
	if o.Verify != nil {
		s.work.Go(func() { c.work(ctx) })
	}
	if o.ExportDir != "" {
		s.work.Go(func() { s.jobs.work(ctx) })
	}
	return s, nil
}

// setDefaults sets the optional fields that are unset.
func (o *Options) setDefaults() error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.ExportBytes = cmp.Or(o.ExportBytes, defaultJobBytes)
	if !slices.ContainsFunc(o.Exports, func(e Export) bool { return e.Name == Lines().Name }) {
		o.Exports = append([]Export{Lines()}, o.Exports...)
	}
	if len(o.CursorKey) > 0 {
		return nil
	}
	o.CursorKey = make([]byte, 32)
	_, err := rand.Read(o.CursorKey)
	return err
}

// handlers makes the handlers of all resources.
func (s *Server) handlers(o *Options, st *stories, c *checks) *handlers {
	m := st.markers
	find, key := runFinder{s.source}, cursors{o.CursorKey}
	search := searcher{s.source, m, key}
	nr := &noteReader{source: s.source}
	files := &downloads{turnstile: turnstile{most: maxDownloads, each: maxDownloadsOf}, log: s.log}
	all := &handlers{
		about:    aboutHandler{source: s.source, oidc: o.OIDC, sandboxes: o.Sandboxes != nil},
		runs:     runsHandler{find, st, c, key},
		records:  recordsHandler{find, st, m, nr, key, o.Proof, o.Now},
		state:    stateHandler{find, st, o.Now},
		live:     liveHandler{runFinder: find, hubs: s.hubs, checks: c, streams: turnstile{most: maxStreams, each: maxStreamsOf}, ended: c.ended},
		notes:    notesHandler{find, nr, o.Notes, m, o.Proof},
		checks:   checksHandler{find, c},
		exports:  exportsHandler{find, o.Exports, m, files, o.Bundle, o.Now},
		jobs:     jobsHandler{find, s.jobs, o.Exports, files},
		search:   searchHandler{search},
		reports:  reportsHandler{find, c, files, o.Frameworks, o.Report},
		accesses: accessesHandler{search},
		views:    viewsHandler{o.Views},
		tokens:   tokensHandler{o.Tokens},

		sandboxes: sandboxesHandler{fleet: o.Sandboxes, records: stateHandler{find, st, o.Now}, tenant: o.Tenant, serves: o.Serves, ended: c.ended, waits: turnstile{most: maxWaits, each: maxWaitsOf}},
	}
	all.ports = portsHandler{&all.sandboxes, turnstile{most: maxTunnels, each: maxTunnelsOf}, o.PortName, o.Gate}
	return all
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Close ends all streams and work. Later requests fail. Further calls do nothing.
func (s *Server) Close() error { return s.close() }

func (s *Server) shut() error {
	s.stop()
	s.work.Wait()
	s.hubs.close()
	return errors.Join(s.jobs.close(), s.source.Close())
}
