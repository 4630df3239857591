package simnet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// services runs the servers and watchers of a network.
type services struct {
	mu      sync.Mutex // guards closers
	closers []io.Closer
	work    sync.WaitGroup // one goroutine for each
}

// close ends all services, and waits for their goroutines.
func (s *services) close() error {
	s.mu.Lock()
	closers := s.closers
	s.closers = nil
	s.mu.Unlock()
	var errs []error
	for _, c := range closers {
		errs = append(errs, c.Close())
	}
	s.work.Wait()
	return errors.Join(errs...)
}

// run starts a service, which ends when c is closed.
func (s *services) run(c io.Closer, serve func()) {
	s.own(c)
	s.work.Go(serve)
}

// own adds c to the closers of close.
func (s *services) own(c io.Closer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closers = append(s.closers, c)
}

// listenAll serves on ports of all addresses of a space.
func (s *services) listenAll(at *space, ports []uint16, answer func(net.Conn)) error {
	return at.do(func() error {
		for _, port := range ports {
			l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
			if err != nil {
				return err
			}
			s.serve(l, answer)
		}
		return nil
	})
}

// serve accepts connections on a listener until close, which also ends them.
func (s *services) serve(l net.Listener, answer func(net.Conn)) {
	srv := &server{Listener: l, open: map[net.Conn]bool{}}
	s.run(srv, func() { srv.run(answer) })
}

type closerFunc func() error

func (f closerFunc) Close() error { return f() }

type server struct {
	net.Listener
	talks sync.WaitGroup

	mu    sync.Mutex // guards open
	open  map[net.Conn]bool
	ended bool
}

func (s *server) run(answer func(net.Conn)) {
	defer s.talks.Wait()
	for {
		c, err := s.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.ended {
			c.Close()
		} else {
			s.open[c] = true
			s.talks.Go(func() { s.talk(c, answer) })
		}
		s.mu.Unlock()
	}
}

func (s *server) talk(c net.Conn, answer func(net.Conn)) {
	defer func() {
		c.Close()
		s.mu.Lock()
		delete(s.open, c)
		s.mu.Unlock()
	}()
	answer(c)
}

// Close ends the listener and its connections.
func (s *server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for c := range s.open {
		c.Close()
	}
	return s.Listener.Close()
}
