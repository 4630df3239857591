//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/command"
	"github.com/custody-project/custody/fleet"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/forms"
	"github.com/custody-project/custody/replay/serve"
	"github.com/custody-project/custody/replay/show"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/service"
	"github.com/custody-project/custody/state/archive"
	"github.com/custody-project/custody/store"
)

type serveCmd struct {
	File    string        `arg:"" optional:"" help:"The file of a bundle, or - for standard input: serve only this bundle."`
	Key     []string      `placeholder:"KEY|FILE" help:"Of a bundle: show it only if it verifies with this public key (default: this host's keys)."`
	Listen  string        `placeholder:"ADDRESS" help:"Where to listen (default: host.yaml's, else 127.0.0.1:8333). Port 0 takes any."`
	Idle    time.Duration `placeholder:"TIME" help:"End when no client has been connected for this long, such as 1h."`
	Link    time.Duration `name:"link-for" default:"10m" help:"Lifetime of the printed link, which works once."`
	Socket  string        `placeholder:"PATH" help:"Carry out the runs of users who connect to this unix socket; it needs root, or custody host."`
	Group   string        `default:"custody" placeholder:"NAME" help:"The group whose members can connect to the socket."`
	Metrics string        `placeholder:"ADDRESS" help:"Serve Prometheus metrics of the service's runs there, and those of the warm sandboxes of custody host."`
	Show    string        `name:"run" predictor:"run" placeholder:"RUN" help:"Make the printed link open this run (or last)."`
}

func (c serveCmd) Run(a *app) error {
	switch {
	case c.File != "":
		return c.bundle(a)
	case c.Metrics != "" && c.Socket == "" && !service.Inherits(os.Getenv):
		return command.Usage(errors.New("--metrics: these are metrics of the runs of users: give --socket"))
	case len(c.Key) > 0:
		return command.Usage(errors.New("--key is for the file of a bundle"))
	}
	socket, err := c.openSocket(a)
	if err != nil {
		return err
	}
	defer socket.Close()
	h, err := a.open()
	if err != nil {
		return err
	}
	if err := h.ManifestLog().Served(); err != nil {
		return err
	}
	config := h.Config().Serve.WithDefaults()
	if c.Listen != "" {
		config.Listen = c.Listen
	}
	if err := config.Check(); err != nil {
		return err
	}
	shown, err := c.target(a, h)
	if err != nil {
		return err
	}
	o, l, err := c.listen(a, config)
	if err != nil {
		return err
	}
	if err := a.service(h, "serve"); err != nil {
		return errors.Join(err, l.Close())
	}
	o.Log = a.Log
	log, err := serve.AccessLog(h, version())
	if err != nil {
		return errors.Join(err, l.Close())
	}
	var sandboxes *fleet.Fleet
	page := func(ctx context.Context) error {
		return serve.Host(ctx, h, l, serve.HostOptions{
			Options: o, Run: shown, Version: version(), Access: log, Sandboxes: sandboxes, CloseDead: func() { a.env().Tidy(a.ctx, h) },
		})
	}
	if socket == nil {
		return errors.Join(page(a.ctx), log.Close())
	}
	meters, err := a.meter(c.Metrics)
	if err != nil {
		return errors.Join(err, l.Close(), log.Close())
	}
	defer a.Close(meters)
	held, err := host.HoldOpen(a.ctx, h)
	if err != nil {
		return errors.Join(err, l.Close(), log.Close())
	}
	defer a.Close(held)
	commands := &command.Server{Dir: h.Dir, Open: a.opener(), Store: a.store, Tenant: h.Config().Tenant, Access: log, Log: a.Log}
	users := &service.Server{Open: a.home, Version: version(), Notice: a.Say, Problem: a.Complain, Calls: commands.Handlers}
	meters.Service(users)
	meters.Spool(h)
	if c := a.privileged(); c != nil {
		defer c.Close()
		users.Sandboxes = c
		meters.Remote(c.Metrics)
	}
	runs := &fleet.Runs{Open: a.home, Version: version(), Sandboxes: users.Sandboxes, Notice: a.Say, Problem: a.Complain}
	var end func()
	live := fleet.Config{Runner: runs, Problem: a.Complain, Tokens: filepath.Join(h.Dir, "llm-tokens"), Paused: filepath.Join(h.Serve(), "paused")}
	live.Record = func(ctx context.Context, t fleet.Transition) error {
		return log.Record(ctx, audit.Access{
			Who: "custody", Via: "lifecycle", Tenant: t.Tenant, Action: "manage", Route: "lifecycle " + string(t.Action), About: audit.Text(t.Sandbox), Query: audit.Text(t.Reason), Verdict: audit.Allow,
		})
	}
	if err := a.archive(h, runs, &live); err != nil {
		return errors.Join(err, l.Close(), log.Close())
	}
	var opened atomic.Pointer[fleet.Fleet]
	meters.Fleet(&live, func() []fleet.TenantStats { return opened.Load().Stats() })
	sandboxes, end, err = fleet.Open(h.Config().Quotas, live)
	if err != nil {
		return errors.Join(err, l.Close(), log.Close())
	}
	opened.Store(sandboxes)
	err = users.Beside(a.ctx, socket, page)
	end()
	return errors.Join(err, log.Close())
}

// archive adds the archive of paused sandboxes, if host.yaml names one. A storage that is away is tried again when it is used; one that is not
// suitable is an error.
func (a *app) archive(h *host.Host, runs *fleet.Runs, c *fleet.Config) error {
	if h.Config().Paused.Archive == nil {
		return nil
	}
	storage, err := host.OpenArchive(a.ctx, h)
	if errors.Is(err, archive.ErrUnsafe) {
		return err
	}
	if err != nil {
		a.Complain(fmt.Errorf("%w: it is tried again when a sandbox is archived or fetched", err))
	}
	c.Archive = fleet.NewArchive(runs, func(ctx context.Context) (*archive.Archive, error) {
		if storage != nil {
			return storage, nil
		}
		return host.OpenArchive(ctx, h)
	})
	return nil
}

// openSocket opens the socket for users of this host, nil if there is to be none.
func (c serveCmd) openSocket(a *app) (*privsep.Listener, error) {
	if c.Socket == "" && !service.Inherits(os.Getenv) {
		return nil, nil
	}
	if c.Idle > 0 {
		return nil, command.Usage(errors.New("--idle: a service that carries out runs does not end by itself"))
	}
	require := run.RequireHost
	if a.privileged() != nil {
		require = privsep.Restrict
	}
	if err := require(); err != nil {
		return nil, err
	}
	return service.Listen(a.ctx, os.Getenv, c.Socket, c.Group)
}

// target returns the run that the login link opens; without an ID: none.
func (c serveCmd) target(a *app, h *host.Host) (store.Run, error) {
	if c.Show == "" {
		return store.Run{}, nil
	}
	st, err := h.Reader(a.ctx)
	if err != nil {
		return store.Run{}, err
	}
	defer st.Close()
	run, err := st.Run(a.ctx, "", c.Show)
	if err != nil {
		return run, fmt.Errorf("%s: %w", c.Show, err)
	}
	return run, nil
}

// listen listens as config specifies, and returns the options that both kinds of service need.
func (c serveCmd) listen(a *app, config access.Config) (serve.Options, net.Listener, error) {
	exports, err := forms.Exports()
	if err != nil {
		return serve.Options{}, nil, err
	}
	l, err := serve.Listen(a.ctx, config.Listen)
	if err != nil {
		return serve.Options{}, nil, fmt.Errorf("serve: %w", err)
	}
	return serve.Options{Config: config, Exports: exports, LinkFor: c.Link, LinkToFile: !console.IsTerminal(a.stdout), Idle: c.Idle, Ready: addressPrinter{a.stdout, a.Say}.print, Notice: a.Say}, l, nil
}

// addressPrinter prints the address of the page.
type addressPrinter struct {
	out io.Writer
	say func(string)
}

// print prints the login link to open in a browser, or the path of the file with the link. Then the service is ready.
func (p addressPrinter) print(to serve.Address) error {
	text := to.Link
	if to.File != "" {
		p.say(fmt.Sprintf("to log in from this host, open the link in %s: it works once and expires in %v", to.File, to.LinkFor))
		text = to.URL + "\n" + to.File
	}
	if _, err := fmt.Fprintln(p.out, text); err != nil {
		return err
	}
	return service.Ready()
}

// bundle serves the page for one bundle, read-only, to this machine. It does not use $CUSTODY_HOME.
func (c serveCmd) bundle(a *app) (err error) {
	if file, err := isFile(c.File); err != nil || !file {
		return cmp.Or(err, error(command.Usage(fmt.Errorf("%s: there is no such file; custody serve --run %[1]s shows a run of this host", c.File))))
	}
	if c.Show != "" {
		return command.Usage(errors.New("--run names a run of this host; a bundle has only one run, which the link opens"))
	}
	config := access.Config{Listen: c.Listen}.WithDefaults()
	if host, _, err := net.SplitHostPort(config.Listen); err != nil || !loopback(host) {
		return command.Usage(fmt.Errorf("--listen %s: a bundle is served to this machine only: give 127.0.0.1:PORT", config.Listen))
	}
	b, err := a.openBundle(c.File, c.Key)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if b.Doubt != nil {
		a.Say(show.Describe(b))
	}
	o, l, err := c.listen(a, config)
	if err != nil {
		return err
	}
	return b.Serve(a.ctx, l, o)
}

// loopback reports whether a host name or address is this machine's loopback.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
