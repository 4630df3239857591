package outside

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/clickhouse"
	"github.com/custody-project/custody/store/remote"
)

const callStore = "store-open"

// storeMemory limits the memory of the process with a store, in bytes. A call to it has at most privsep.MaxMemory.
const storeMemory = 768 << 20

// database is a ClickHouse database, in a file in memory.
type database struct {
	DSN     string
	Options clickhouse.Options
}

// OpenStore opens a ClickHouse database in a process that speaks to its servers. The files that dsn names are read in this process.
func OpenStore(ctx context.Context, dsn string, o clickhouse.Options) (store.Store, error) {
	return newStoreProcess(describe, dsn, o).store(ctx)
}

func newStoreProcess(worker func() (privsep.Worker, error), dsn string, o clickhouse.Options) *storeProcess {
	return &storeProcess{worker: worker, database: database{dsn, o}, turn: make(chan struct{}, 1)}
}

// storeProcess is the process of a store. It is safe for concurrent use.
//
//	opening --> open --the process ends--> none --Conn--> opening
//	  any --Close--> closed
type storeProcess struct {
	worker   func() (privsep.Worker, error)
	database database

	turn   chan struct{} // full while a process is started
	mu     sync.Mutex    // guards the fields below
	open   *privsep.Process
	closed bool
}

var _ remote.Process = (*storeProcess)(nil)

// store returns the store, which is open.
func (s *storeProcess) store(ctx context.Context) (store.Store, error) {
	if _, err := s.Conn(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return remote.New(s), nil
}

// Conn implements remote.Process.
func (s *storeProcess) Conn(ctx context.Context) (*privsep.Conn, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p, err := s.live()
	if p != nil || err != nil {
		return connOf(p), err
	}
	if p, err = s.start(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(net.ErrClosed, p.Close())
	}
	s.open = p
	return p.Conn, nil
}

func connOf(p *privsep.Process) *privsep.Conn {
	if p == nil {
		return nil
	}
	return p.Conn
}

// live returns the process, nil if there is none.
func (s *storeProcess) live() (*privsep.Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	if s.open == nil {
		return nil, nil
	}
	select {
	case <-s.open.Done():
	case <-s.open.Ended(): // it violated the protocol
	default:
		return s.open, nil
	}
	err := s.open.Close()
	s.open = nil
	return nil, err
}

// start starts a process and opens the store in it.
func (s *storeProcess) start(ctx context.Context) (*privsep.Process, error) {
	d := s.database
	var err error
	if d.Options.Server, err = clickhouse.Files(d.DSN); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	f, err := privsep.Memory("store", d)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	w, err := s.worker()
	if err != nil {
		return nil, err
	}
	w.Memory, w.Kinds = storeMemory, remote.Kinds
	p, err := w.Start(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("the process that speaks to the store: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, maxCall)
	defer cancel()
	until, _ := ctx.Deadline()
	if _, err := p.Call(ctx, callStore, within{time.Until(until)}, nil, f); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Close implements remote.Process.
func (s *storeProcess) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.open == nil {
		return nil
	}
	err := s.open.Close()
	s.open = nil
	return err
}
