package outside

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/secrets"
	"github.com/custody-project/custody/secrets/remote"
	"github.com/custody-project/custody/secrets/vault"
)

// broker is Vault's broker in the process.
//
//	waiting --open--> open --end--> ended
type broker struct {
	root *privsep.Conn

	mu     sync.Mutex // guards the fields below
	used   bool       // open was called
	vault  *vault.Broker
	server *remote.Server // nil: nothing is open
}

// handlers returns the calls of root's process. Those of remote.Server fail unless a login is open.
func (b *broker) handlers() map[string]privsep.Handler {
	all := map[string]privsep.Handler{callOpen: b.open, callSweep: privsep.Handle(b.sweep), callClose: privsep.Handle(b.end)}
	for name := range remote.NewServer("", "", nil, nil).Handlers() {
		all[name] = func(ctx context.Context, body []byte, files []*os.File) (any, []*os.File, error) {
			_, s, err := b.opened()
			if err != nil {
				closeAll(files)
				return nil, nil, err
			}
			return s.Handlers()[name](ctx, body, files)
		}
	}
	return all
}

var errNotOpen = errors.New("there is no login to Vault")

func (b *broker) opened() (*vault.Broker, *remote.Server, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.server == nil {
		return nil, nil, errNotOpen
	}
	return b.vault, b.server, nil
}

// open logs in. The process does so once.
func (b *broker) open(ctx context.Context, _ []byte, files []*os.File) (any, []*os.File, error) {
	if len(files) != 1 {
		closeAll(files)
		return nil, nil, errors.New("a login is one file")
	}
	var o order
	if err := privsep.FromMemory(files[0], &o); err != nil {
		return nil, nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used {
		return nil, nil, errors.New("this process has logged in already")
	}
	b.used = true
	o.Config.Place = &away{root: b.root, trust: o.Trust}
	v, err := vault.Open(ctx, o.Config)
	if err != nil {
		return nil, nil, err
	}
	var bindings []secrets.Binding
	for _, s := range o.Bindings {
		bindings = append(bindings, secrets.Binding{Name: s.Name, From: s.From, Deliver: s.Deliver})
	}
	b.vault, b.server = v, remote.NewServer(o.Run, "", bindings, map[string]secrets.Broker{scheme: v})
	return none{}, nil, nil
}

func (b *broker) sweep(ctx context.Context, c within) (any, []*os.File, error) {
	v, _, err := b.opened()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, min(c.Within, maxCall))
	defer cancel()
	// Root's process gives this one the notes of runs that are not alive.
	return none{}, nil, v.Sweep(ctx, func(string) bool { return false })
}

// end revokes what the run has, and logs out.
func (b *broker) end(ctx context.Context, c within) (any, []*os.File, error) {
	v, s, err := b.opened()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, min(c.Within, maxCall))
	defer cancel()
	return none{}, nil, errors.Join(s.Close(ctx), v.Close(ctx))
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
