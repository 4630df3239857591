package outside

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/store/clickhouse"
	"github.com/custody-project/custody/store/remote"
)

// storeServer has the store in the process.
//
//	waiting --open--> open
type storeServer struct {
	mu   sync.Mutex // guards the fields below
	used bool       // open was called
	// calls are those of the open store; nil: none is open.
	calls map[string]privsep.Handler
}

// handlers returns the calls of root's process. Those of remote.Server fail unless a store is open.
func (s *storeServer) handlers() map[string]privsep.Handler {
	all := map[string]privsep.Handler{callStore: s.open}
	for _, name := range remote.Calls() {
		all[name] = func(ctx context.Context, body []byte, files []*os.File) (any, []*os.File, error) {
			s.mu.Lock()
			do := s.calls[name]
			s.mu.Unlock()
			if do == nil {
				closeAll(files)
				return nil, nil, errors.New("there is no open store")
			}
			return do(ctx, body, files)
		}
	}
	return all
}

// open opens the store. The process does so once.
func (s *storeServer) open(ctx context.Context, body []byte, files []*os.File) (any, []*os.File, error) {
	if len(files) != 1 {
		closeAll(files)
		return nil, nil, errors.New("a store is one file")
	}
	var d database
	var w within
	if err := errors.Join(privsep.FromMemory(files[0], &d), privsep.Decode(body, &w)); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used {
		return nil, nil, errors.New("this process has opened a store already")
	}
	s.used = true
	ctx, cancel := context.WithTimeout(ctx, min(w.Within, maxCall))
	defer cancel()
	st, err := clickhouse.Open(ctx, d.DSN, d.Options)
	if err != nil {
		return nil, nil, err
	}
	s.calls = remote.NewServer(st).Handlers() // st stays open until the process ends
	return none{}, nil, nil
}
