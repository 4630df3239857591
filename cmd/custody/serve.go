package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/redact/pattern"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/api"
	"github.com/custody-project/custody/replay/report"
	saved "github.com/custody-project/custody/replay/views"
	"github.com/custody-project/custody/replay/web"
	"github.com/custody-project/custody/store"
)

type serveCmd struct {
	File   string        `arg:"" optional:"" help:"The file of a bundle, - for standard input: show it alone, without anything of this host."`
	Key    []string      `placeholder:"KEY|FILE" help:"Of a bundle: show it only if it verifies with this public key (default: this host's keys)."`
	Listen string        `placeholder:"ADDRESS" help:"Where to listen (default: host.yaml's, else 127.0.0.1:8333). Port 0 takes any."`
	Idle   time.Duration `placeholder:"TIME" help:"End when no client has been connected for this long, such as 1h."`
	Link   time.Duration `name:"link-for" default:"10m" help:"How long the printed link is good, once."`
	Show   string        `name:"run" predictor:"run" placeholder:"RUN" help:"Have the printed link lead to this run (or last)."`
}

// usualLink is how long the link is good where no one says otherwise.
const usualLink = 10 * time.Minute

func (c serveCmd) Run(a *app) error {
	switch {
	case c.File != "":
		return c.bundle(a)
	case len(c.Key) > 0:
		return usageError{errors.New("--key is for the file of a bundle")}
	}
	h, err := a.open()
	if err != nil {
		return err
	}
	config := h.Config().Serve.WithDefaults()
	if c.Listen != "" {
		config.Listen = c.Listen
	}
	if err := config.Check(); err != nil {
		return err
	}
	place, run, err := c.place(a, h)
	if err != nil {
		return err
	}
	var listen net.ListenConfig
	l, err := listen.Listen(a.ctx, "tcp", config.Listen)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	config.Listen = l.Addr().String() // with the port that was given
	if err := a.service(h, "serve"); err != nil {
		return errors.Join(err, l.Close())
	}
	s := &service{app: a, home: h, dir: h.Serve(), config: config, place: place, leadsTo: run, linkFor: cmp.Or(c.Link, usualLink)}
	if err := s.open(); err != nil {
		return errors.Join(err, s.close(), l.Close())
	}
	return errors.Join(s.serve(l, c.Idle), s.close())
}

// place is where in the page the printed link leads, "" for its beginning, and the run that it shows there.
func (c serveCmd) place(a *app, h *host.Host) (string, store.Run, error) {
	if c.Show == "" {
		return "", store.Run{}, nil
	}
	st, err := h.Reader(a.ctx)
	if err != nil {
		return "", store.Run{}, err
	}
	defer st.Close()
	run, err := st.Run(a.ctx, "", c.Show)
	if err != nil {
		return "", run, fmt.Errorf("%s: %w", c.Show, err)
	}
	return "/runs/" + run.ID, run, nil
}

// service is custody serve with its parts.
type service struct {
	*app
	home   *host.Host // nil: a bundle is shown alone
	dir    string     // where a link is kept that no one sees printed
	config access.Config
	// The printed link's place in the page, and how long it is good.
	place   string
	leadsTo store.Run // the run of place; without an ID: none
	linkFor time.Duration
	looks   *host.AccessLog
	gate    *access.Gate
	api     *api.Server
}

// open makes the parts; close ends those that were made.
func (s *service) open() error {
	tag, err := s.home.TagKey()
	if err != nil {
		return err
	}
	redactor, err := pattern.NewRedactor(tag)
	if err != nil {
		return err
	}
	tokens, err := access.OpenTokens(s.home.Serve())
	if err != nil {
		return err
	}
	s.looks = s.home.AccessLog(redactor, version())
	s.gate, err = access.New(access.Options{Config: s.config, Tokens: tokens, Tenant: s.home.Config().Tenant, Local: s.tenants, Recorder: s.looks, LinkFor: s.linkFor, Warn: s.say})
	if err != nil {
		return err
	}
	exports, err := forms()
	if err != nil {
		return err
	}
	s.api, err = api.New(api.Options{
		Open: s.reader, Ahead: s.ahead, Verify: s.verify, Marks: s.marks, Bundle: s.bundle, Proof: s.proof, Report: s.report, Frameworks: frameworks(),
		Exports: exports, ExportDir: s.home.Serve(), Notes: notebook{s.looks}, Views: saved.Open(s.home.Views()), Tokens: tokens, Gate: s.gate, OIDC: s.config.OIDC != nil, Assets: s.gate.Host(web.Handler()), Log: s.log,
	})
	return err
}

// tenants are those in which the printed link grants a role: the host's own, and those under which this host
// recorded runs before host.yaml named another. That of the run which the link leads to is the first.
func (s *service) tenants(ctx context.Context) []string {
	all := []string{s.home.Config().Tenant}
	st, err := s.home.Reader(ctx)
	if err != nil {
		s.say(fmt.Sprintf("the store cannot be read, so the link shows the host's own tenant only: %v", err))
		return all
	}
	defer st.Close()
	runs, err := st.Runs(ctx, store.Filter{})
	if err != nil {
		s.say(fmt.Sprintf("the runs cannot be listed, so the link shows the host's own tenant only: %v", err))
	}
	for _, run := range runs {
		if !slices.Contains(all, run.Tenant) && s.home.RunLogs().HasOf(scope(run.Tenant), run.ID) {
			all = append(all, run.Tenant)
		}
	}
	slices.Sort(all[1:])
	if i := slices.Index(all, s.leadsTo.Tenant); s.leadsTo.ID != "" && i > 0 {
		all[0], all[i] = all[i], all[0]
	}
	return all
}

// close ends what takes requests before what records them.
func (s *service) close() error {
	var errs []error
	if s.api != nil {
		errs = append(errs, s.api.Close())
	}
	if s.gate != nil {
		errs = append(errs, s.gate.Close())
	}
	if s.looks != nil {
		errs = append(errs, s.looks.Close())
	}
	return errors.Join(errs...)
}

// serve answers requests until its context is done, or no client has been connected for the idle time.
func (s *service) serve(l net.Listener, idle time.Duration) error {
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	var conf *tls.Config
	if s.config.TLS() {
		var err error
		if conf, err = access.TLSConfig(s.config.Cert, s.config.Key, s.say); err != nil {
			return errors.Join(err, l.Close())
		}
	}
	kept, err := s.announce()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer kept.remove()
	var tidying sync.WaitGroup
	defer tidying.Wait()
	defer stop()
	if s.home != nil {
		tidying.Go(func() { s.tidyOn(ctx) })
	}
	return s.api.Serve(ctx, watchQuiet(l, idle, stop), conf)
}

// announce prints where to look, with the link for a person at this host if there is one: a one-time
// token is good on loopback only. Where standard output is kept, as by systemd's journal, the
// link goes into a file, which is returned and whose path is printed.
func (s *service) announce() (*linkFile, error) {
	once, ok := s.gate.Once()
	link := s.address(ok) + "#"
	if ok {
		link += "once=" + once
	}
	link = strings.TrimSuffix(link+s.place, "#")
	if !ok || s.shown() {
		_, err := fmt.Fprintln(s.stdout, link)
		return nil, err
	}
	kept, err := keepLink(s.ctx, s.dir, s.config.Listen, link, s.linkFor)
	if err != nil {
		return nil, err
	}
	s.say(fmt.Sprintf("to log in from this host, open the link in %s: it works once and expires in %v", kept.path(), s.linkFor))
	if _, err := fmt.Fprintf(s.stdout, "%s\n%s\n", s.address(ok), kept.path()); err != nil {
		kept.remove()
		return nil, err
	}
	return kept, nil
}

// address is what to open in a browser, here or anywhere.
func (s *service) address(here bool) string {
	scheme, host := "http", s.config.Listen
	if s.config.TLS() {
		scheme = "https"
	}
	names := s.config.Names
	if here {
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n != "localhost" && n != "127.0.0.1" && n != "::1" })
	}
	if _, port, err := net.SplitHostPort(s.config.Listen); err == nil && len(names) > 0 {
		host = net.JoinHostPort(names[0], port)
	}
	return scheme + "://" + host + "/"
}

// tidyEvery is how often runs whose process died are closed while the service goes on.
const tidyEvery = 30 * time.Second

func (s *service) tidyOn(ctx context.Context) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.tidy(s.home)
		}
	}
}

func (s *service) reader(ctx context.Context) (api.Source, error) { return s.home.Reader(ctx) }

func (s *service) ahead(ctx context.Context, src api.Source, run store.Run) (api.Records, error) {
	return s.home.Ahead(ctx, src, run)
}

// marks says of what a search found whether it is what a host signed.
func (s *service) marks(ctx context.Context) (api.Marker, error) {
	st, err := s.home.Reader(ctx)
	if err != nil {
		return nil, err
	}
	m, err := s.home.Checks().Marks(st)
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return marker{m, st}, nil
}

type marker struct {
	*host.Marks
	host.Reader
}

// verify checks a run with the keys that this host knows.
func (s *service) verify(ctx context.Context, run store.Run) (proof.Report, error) {
	st, err := s.home.Reader(ctx)
	if err != nil {
		return proof.Report{}, err
	}
	report, err := s.checkTrusted(ctx, s.home, st, run)
	return report, errors.Join(err, st.Close())
}

// bundle writes the evidence of a run, or of a part of it.
func (s *service) bundle(ctx context.Context, w io.Writer, run store.Run, part api.Selection) error {
	o := host.BundleOptions{Since: part.Since, By: part.By}
	if part.First > 0 || part.Last > 0 {
		last := part.Last
		if last == 0 {
			last = run.LastSeq
		}
		o.Select = &proof.Selection{Context: true, What: fmt.Sprintf("seq %d to %d", part.First, last),
			Shows: func(seq uint64) bool { return part.First <= seq && seq <= last }}
	}
	err := s.home.Proofs().Bundle(ctx, w, scope(run.Tenant), run.ID, o)
	if unknown := new(host.NotEnrolledError); errors.As(err, &unknown) {
		return access.NewProblem(http.StatusConflict, "host-unknown", unknown.Error(), unknown.Hint())
	}
	if errors.Is(err, proof.ErrOtherHost) {
		return access.NewProblem(http.StatusConflict, "host-other", err.Error(), "ask for the whole run")
	}
	return err
}

// proof proves one record.
func (s *service) proof(ctx context.Context, run store.Run, seq uint64) (proof.RecordProof, error) {
	return s.home.Proofs().OfRecord(ctx, scope(run.Tenant), run.ID, seq)
}

// notebook records notes in the access log.
type notebook struct{ *host.AccessLog }

// Note implements api.Notes.
func (n notebook) Note(ctx context.Context, note audit.Note) (audit.Noted, error) {
	noted, err := n.AccessLog.Note(ctx, note)
	if errors.Is(err, host.ErrOtherTenant) {
		return noted, access.NewProblem(http.StatusConflict, "other-tenant", err.Error(), "note it at a host of the run's tenant, or of none")
	}
	return noted, err
}

// frameworks are those that a report can be made for.
func frameworks() (names []string) {
	for _, f := range report.Frameworks() {
		names = append(names, f.ID)
	}
	return names
}
