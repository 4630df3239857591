package api

import (
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
	"github.com/custody-project/custody/replay/views"
	"github.com/custody-project/custody/store"
)

// Source is where runs are read from; a host.Reader is one. Its methods may be
// called concurrently.
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

// Options are the parts of a Server. Open and Gate are needed; a route whose part is
// missing answers 501.
type Options struct {
	// Open opens the store. It is called at the first request, and again after an error,
	// at most once a second. The Server closes what it opened.
	Open func(ctx context.Context) (Source, error)
	// Ahead returns a reader that has a live run's records as soon as they are durable; nil:
	// Source is asked. The Server closes it.
	Ahead func(ctx context.Context, src Source, run store.Run) (Records, error)
	// Verify checks a run's record. Its error is what package proof or replay's comparison says.
	Verify func(ctx context.Context, run store.Run) (proof.Report, error)
	// Marks says of each row that a search found whether it is what a host signed; nil: nothing is said.
	Marks func(ctx context.Context) (Marker, error)
	// Bundle writes an evidence bundle.
	Bundle func(ctx context.Context, w io.Writer, run store.Run, s Selection) error
	// Proof proves one record.
	Proof func(ctx context.Context, run store.Run, seq uint64) (proof.RecordProof, error)
	// Frameworks are those that Report knows.
	Frameworks []string
	// Report writes a report.
	Report func(ctx context.Context, w io.Writer, q ReportRequest) error
	// Exports are the formats in which records leave; Lines is always among them.
	Exports []Export
	// ExportDir is where export jobs keep their files while the Server lives; "": there are no jobs.
	ExportDir string
	// ExportBytes bounds the file of one job; 0: 1 GiB.
	ExportBytes int64
	// Notes records notes on runs; nil: there are none.
	Notes Notes
	// Views are what people saved of the page; nil: they cannot.
	Views *views.Shelf
	// Tokens are administered through the API; nil: they are not.
	Tokens Tokens
	// Gate stands before every route.
	Gate Gate
	// OIDC reports that browsers can log in with an OIDC issuer.
	OIDC bool
	// Assets serves all that is not below /api/; nil: nothing is there.
	Assets http.Handler
	// Log, if set, gets the errors whose details the client must not see.
	Log *slog.Logger
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// CursorKey authenticates cursors, so that those of one process are good for another;
	// nil: one is made, and cursors end with the Server.
	CursorKey []byte
	// StoryBytes bounds the memory of cached runs; 0: 512 MiB.
	StoryBytes int64
}

// Selection is a part of a run.
type Selection struct {
	By          string // the principal of the request
	First, Last uint64 // 0: from the begin, to the end
	Since       []byte // an earlier checkpoint of the host's log; nil: none
}

// Server answers requests. Its methods may be called concurrently.
type Server struct {
	opt      Options
	log      *slog.Logger
	now      func() time.Time
	cursors  cursors
	source   *lazySource
	stories  *stories
	hubs     hubs
	streams  turnstile
	checks   *checks
	jobs     *jobs
	fresh    fresh
	handler  http.Handler
	document []byte // the OpenAPI document, as JSON

	downloads turnstile

	ctx   context.Context // ends with the Server
	stop  context.CancelFunc
	work  sync.WaitGroup // what the Server does beside requests
	close func() error   // once
}

// New returns a Server. The caller closes it.
func New(o Options) (*Server, error) {
	if o.Open == nil || o.Gate == nil {
		return nil, errors.New("the API needs a store and a gate")
	}
	s := &Server{opt: o, log: o.Log, now: o.Now, cursors: cursors{o.CursorKey}}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	if len(s.cursors.key) == 0 {
		s.cursors.key = make([]byte, 32)
		if _, err := rand.Read(s.cursors.key); err != nil {
			return nil, err
		}
	}
	if !slices.ContainsFunc(s.opt.Exports, func(e Export) bool { return e.Name == Lines().Name }) {
		s.opt.Exports = append([]Export{Lines()}, s.opt.Exports...)
	}
	var err error
	if s.document, err = documentJSON(); err != nil {
		return nil, err
	}
	if s.jobs, err = newJobs(o.ExportDir, o.ExportBytes); err != nil {
		return nil, err
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.source = &lazySource{open: o.Open, ctx: s.ctx}
	s.stories = newStories(o.StoryBytes)
	s.hubs.all = map[runKey]*hub{}
	s.streams = turnstile{most: maxStreams, each: maxStreamsOf}
	s.downloads = turnstile{most: maxDownloads, each: maxDownloadsOf}
	s.checks = newChecks(o.Verify, s.now)
	s.close = sync.OnceValue(s.shut)
	s.handler = s.mux()
	if o.Verify != nil {
		s.work.Go(func() { s.checkAll(s.ctx) })
	}
	if o.ExportDir != "" {
		s.work.Go(func() { s.workJobs(s.ctx) })
	}
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Close ends all streams and work. Requests that go on afterwards fail. Another Close does nothing.
func (s *Server) Close() error { return s.close() }

func (s *Server) shut() error {
	s.stop()
	s.work.Wait()
	return errors.Join(s.jobs.close(), s.source.Close())
}
