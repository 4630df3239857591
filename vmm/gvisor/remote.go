package gvisor

import (
	"context"
	"errors"
	"os"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/remote"
)

// The calls of a container, in addition to those of every machine.
const (
	callFreeze  = "vm-freeze"
	callThaw    = "vm-thaw"
	callChanged = "vm-changed"
)

type changedCall struct {
	Report   bool
	HashOver int64
}

// NewServer returns the server of a container (package remote), whose files stay open until its Close.
func (d *Driver) NewServer(m vmm.Machine) privsep.Server {
	s := remote.NewServer(func(ctx context.Context) (started remote.Started[*spawned], err error) {
		p, e, err := d.spawn(ctx, m)
		if err != nil {
			return started, err
		}
		files, err := e.files()
		if err != nil {
			return started, errors.Join(err, p.Remove())
		}
		return remote.Started[*spawned]{Process: p, Result: remote.Empty{}, Files: files}, nil
	})
	simple := func(name string, do func(*spawned, context.Context) error) {
		remote.Add(s, name, func(ctx context.Context, p *spawned, _ remote.Empty) (any, []*os.File, error) {
			return remote.Empty{}, nil, do(p, ctx)
		})
	}
	simple(callFreeze, (*spawned).Freeze)
	simple(callThaw, (*spawned).Thaw)
	remote.Add(s, callChanged, func(ctx context.Context, p *spawned, c changedCall) (any, []*os.File, error) {
		r, err := p.stream(ctx, c)
		if err != nil {
			return nil, nil, err
		}
		return remote.Empty{}, []*os.File{r}, nil
	})
	return s
}

// files returns the ends as files, which take their place: the channel, the trace sink, and with a network its two devices.
func (e ends) files() ([]*os.File, error) {
	files, err := remote.Files(e.channel, e.sink)
	if err != nil {
		e.close()
		return nil, err
	}
	if e.device != nil {
		files = append(files, e.device, e.tap)
	}
	e.device, e.tap = nil, nil
	e.close()
	return files, nil
}

// Remote is a vmm.Driver for the container of a server at the other end of a connection. It starts one container.
type Remote struct {
	Driver // names the tier
	conn   *privsep.Conn
}

// NewRemote returns the driver of a server.
func NewRemote(c *privsep.Conn) *Remote { return &Remote{conn: c} }

// Start implements vmm.Driver. Of m it uses the ID only; all else is with the server.
func (r *Remote) Start(ctx context.Context, m vmm.Machine) (vmm.VM, error) {
	p, files, err := remote.Start(ctx, r.conn, nil, remote.Any)
	if err != nil {
		return nil, err
	}
	var e ends
	switch len(files) {
	case 4:
		e.device, e.tap = files[2], files[3]
	case 2:
	default:
		remote.CloseAll(files)
		return nil, errors.New("the container has other descriptors than a channel, a trace sink and a network")
	}
	if err := remote.Sockets(files[:2], &e.channel, &e.sink); err != nil {
		e.close()
		return nil, err
	}
	return connect(ctx, remoteContainer{p}, e, m.ID)
}

// remoteContainer is the container of a server.
type remoteContainer struct{ *remote.Machine }

// Freeze implements container.
func (c remoteContainer) Freeze(ctx context.Context) error {
	_, err := c.Call(ctx, callFreeze, remote.Empty{}, nil, 0)
	return err
}

// Thaw implements container.
func (c remoteContainer) Thaw(ctx context.Context) error {
	_, err := c.Call(ctx, callThaw, remote.Empty{}, nil, 0)
	return err
}

// Changed implements container.
func (c remoteContainer) Changed(ctx context.Context, hashOver int64, emit func(*audit.File) error) error {
	files, err := c.Call(ctx, callChanged, changedCall{Report: emit != nil, HashOver: hashOver}, nil, 1)
	if err != nil {
		return err
	}
	return readFound(ctx, files[0], emit)
}
