package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/api"
)

// closeDeadEvery is how often runs whose process died are closed while a service goes on.
const closeDeadEvery = 30 * time.Second

// service is a gate and an API behind one listener. One goroutine uses it, through run.
type service struct {
	Options
	dir   string // of the login link's file
	path  string // what the login link opens in the page; "" for its beginning
	every func() // called every closeDeadEvery; nil: nothing is

	gate *access.Gate
	api  *api.Server
	log  io.Closer // the access log; nil: there is none
}

func newService(o Options, l net.Listener, dir string) *service {
	o.Config.Listen = l.Addr().String()
	o.LinkFor = cmp.Or(o.LinkFor, DefaultLinkFor)
	return &service{Options: o, dir: dir}
}

// run opens the service's parts, serves, and closes them and l.
func (s *service) run(ctx context.Context, l net.Listener, open func(*service) error) error {
	if err := open(s); err != nil {
		return errors.Join(err, s.close(), l.Close())
	}
	return errors.Join(s.serve(ctx, l), s.close())
}

// close closes what answers requests before what records them.
func (s *service) close() error {
	var errs []error
	if s.api != nil {
		errs = append(errs, s.api.Close())
	}
	if s.gate != nil {
		errs = append(errs, s.gate.Close())
	}
	if s.log != nil {
		errs = append(errs, s.log.Close())
	}
	return errors.Join(errs...)
}

// serve answers requests until ctx ends, or no client has been connected for s.Idle. It closes l.
func (s *service) serve(ctx context.Context, l net.Listener) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var config *tls.Config
	if s.Config.TLS() {
		var err error
		if config, err = access.TLSConfig(s.Config.Cert, s.Config.Key, s.Notice); err != nil {
			return errors.Join(err, l.Close())
		}
	}
	link, err := s.announce(ctx)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer link.remove()
	var closing sync.WaitGroup
	defer closing.Wait()
	defer stop()
	if s.every != nil {
		closing.Go(func() { s.closeDead(ctx) })
	}
	return s.api.Serve(ctx, closeWhenIdle(l, s.Idle, stop), config)
}

// announce calls Ready. A login link with a one-time token exists only if the service is reached over loopback. The file with
// the link, if there is one, is the caller's to remove; nil: there is none.
func (s *service) announce(ctx context.Context) (*linkFile, error) {
	once, login := s.gate.Once()
	a := Address{URL: s.address(login), LinkFor: s.LinkFor}
	link := a.URL + "#"
	if login {
		link += "once=" + once
	}
	link = strings.TrimSuffix(link+s.path, "#")
	if !login || !s.LinkToFile {
		a.Link = link
		return nil, s.Ready(a)
	}
	file, err := writeLink(ctx, s.dir, s.Config.Listen, link, s.LinkFor)
	if err != nil {
		return nil, err
	}
	a.File = file.path()
	if err := s.Ready(a); err != nil {
		file.remove()
		return nil, err
	}
	return file, nil
}

// address is the page's URL, on this machine only or from any.
func (s *service) address(local bool) string {
	scheme, host := "http", s.Config.Listen
	if s.Config.TLS() {
		scheme = "https"
	}
	names := s.Config.Names
	if local {
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n != "localhost" && n != "127.0.0.1" && n != "::1" })
	}
	if _, port, err := net.SplitHostPort(s.Config.Listen); err == nil && len(names) > 0 {
		host = net.JoinHostPort(names[0], port)
	}
	return scheme + "://" + host + "/"
}

func (s *service) closeDead(ctx context.Context) {
	tick := time.NewTicker(closeDeadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.every()
		}
	}
}
