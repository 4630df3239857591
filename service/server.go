package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/run"
)

// Server carries out what clients ask for. Its fields are set before Serve, which is called once.
type Server struct {
	Open    func() (*host.Host, error) // opens the host's state for one run
	Version string                     // of the program, for the record
	Meters  run.Meters
	Meter   Meter // nil: nothing is counted
	// Sandboxes makes the sandboxes of runs; nil: this process does, as root.
	Sandboxes run.Sandboxes
	// Notice and Problem get what the administrator should know. They may be called concurrently.
	Notice  func(string)
	Problem func(error)
	// Calls returns further calls that a client can make; nil: there are none. conn returns its connection during a call.
	Calls func(p privsep.Peer, conn func() *privsep.Conn) map[string]privsep.Handler
	// Clients and Runs limit connections and runs; zero: the defaults.
	Clients, Runs Limit

	clients, runs *count
	removing      sync.WaitGroup                                 // removes the sandboxes of runs that have ended; each counts as a run
	after         func(time.Duration, func()) (stop func() bool) // nil: time.AfterFunc
	ended         chan struct{}                                  // has an element if a run has ended, and what is not retained is to be deleted
}

// The default limits.
var (
	defaultClients = Limit{All: 512, OfUser: 128}
	defaultRuns    = Limit{All: 256, OfUser: 64}
)

// Times of a connection.
const (
	firstCall    = 30 * time.Second // until a client's first call
	lastMessage  = 5 * time.Second  // for the result of a run, when the server ends
	shutdownTime = 3 * time.Minute  // for a run, when the server ends
	acceptAgain  = 100 * time.Millisecond
)

// Serve serves clients until ctx is done, and closes the listener. It then cancels the runs, and returns when they have ended.
func (s *Server) Serve(ctx context.Context, l *privsep.Listener) error {
	s.clients, s.runs = newCount(cmp.Or(s.Clients, defaultClients)), newCount(cmp.Or(s.Runs, defaultRuns))
	s.ended = make(chan struct{}, 1)
	if s.Meter == nil {
		s.Meter = unmetered{}
	}
	if s.after == nil {
		s.after = func(d time.Duration, do func()) func() bool { return time.AfterFunc(d, do).Stop }
	}
	closed := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { closed <- l.Close() })
	var own sync.WaitGroup
	pruning, endPruning := context.WithCancel(context.WithoutCancel(ctx))
	own.Go(func() { s.prune(pruning) })
	err := s.accept(ctx, l)
	s.removing.Wait()
	endPruning()
	own.Wait()
	if stop() {
		return errors.Join(err, l.Close())
	}
	return errors.Join(err, <-closed)
}

// Beside serves clients while other runs. When one of the two ends, the other one's context is done.
func (s *Server) Beside(ctx context.Context, l *privsep.Listener, other func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- s.Serve(ctx, l)
		cancel()
	}()
	err := other(ctx)
	cancel()
	return errors.Join(err, <-ended)
}

// accept serves clients until the listener is closed, and waits for them.
func (s *Server) accept(ctx context.Context, l *privsep.Listener) error {
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		c, err := l.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil: // too many open files, or a client that has gone
			s.Problem(fmt.Errorf("accept a client: %w", err))
			select {
			case <-time.After(acceptAgain):
				continue
			case <-ctx.Done():
				return nil
			}
		}
		peer, err := privsep.PeerOf(c)
		if err != nil || !s.clients.add(peer.UID) {
			s.Meter.Refuse(tooManyClients)
			s.Notice(fmt.Sprintf("%v was turned away: there are too many clients, or too many of this user", peer))
			c.Close()
			continue
		}
		clients.Go(func() {
			defer s.clients.remove(peer.UID)
			s.serve(ctx, c, peer)
		})
	}
}

// serve serves one client until it has gone.
func (s *Server) serve(ctx context.Context, c *net.UnixConn, peer privsep.Peer) {
	defer s.Meter.Connect()()
	client := newSession(s, peer)
	client.conn = privsep.New(c, client.handlers())
	defer s.after(firstCall, client.expire)()
	stop := context.AfterFunc(ctx, client.end)
	defer stop()
	if err := client.conn.Run(context.WithoutCancel(ctx)); err != nil {
		s.Meter.Refuse(violation)
		s.Notice(fmt.Sprintf("%v lost its connection: %v", peer, err))
	}
}

// remove removes what a run that has ended used.
func (s *Server) remove(j *run.Job) {
	if err := j.Close(); err != nil {
		s.Problem(err)
	}
}

// prune applies the retention settings after runs, until ctx is done.
func (s *Server) prune(ctx context.Context) {
	for {
		select {
		case <-s.ended:
		case <-ctx.Done():
			return
		}
		h, err := s.Open()
		if err == nil {
			err = run.Prune(ctx, h)
		}
		if err != nil {
			s.Problem(err)
		}
	}
}

// pruneSoon makes prune run again.
func (s *Server) pruneSoon() {
	select {
	case s.ended <- struct{}{}:
	default:
	}
}
