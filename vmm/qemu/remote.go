package qemu

import (
	"context"
	"errors"
	"os"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/remote"
)

// The calls of a QEMU, in addition to those of every machine.
const (
	callSettle    = "vm-settle"
	callStateFile = "vm-state-file"
)

// NewServer returns the server of a machine (package remote), whose files stay open until its Close.
func (d *Driver) NewServer(m vmm.Machine) privsep.Server {
	s := remote.NewServer(func(context.Context) (started remote.Started[*spawned], err error) {
		p, e, err := d.spawn(m)
		if err != nil {
			return started, err
		}
		defer e.close()
		files, err := remote.Files(e.monitor, e.channel)
		if err != nil {
			return started, errors.Join(err, p.Remove())
		}
		return remote.Started[*spawned]{Process: p, Result: remote.Empty{}, Files: files}, nil
	})
	remote.Add(s, callSettle, func(_ context.Context, p *spawned, _ remote.Empty) (any, []*os.File, error) {
		p.Settle()
		return remote.Empty{}, nil, nil
	})
	remote.Add(s, callStateFile, func(ctx context.Context, p *spawned, _ remote.Empty) (any, []*os.File, error) {
		r, w, err := p.StateFile(ctx)
		if err != nil {
			return nil, nil, err
		}
		return remote.Empty{}, []*os.File{r, w}, nil
	})
	return s
}

// Remote is a vmm.Driver for the machine of a server at the other end of a connection. It starts one machine.
type Remote struct {
	Driver // names the tier
	conn   *privsep.Conn
}

// NewRemote returns the driver of a server. kvm must be that of the server's driver.
func NewRemote(c *privsep.Conn, kvm bool) *Remote { return &Remote{Driver{kvm: kvm}, c} }

// Start implements vmm.Driver. Of m it uses the amount of memory and the state to restore, which must be those of the server's
// machine; all else is with the server.
func (r *Remote) Start(ctx context.Context, m vmm.Machine) (vmm.VM, error) {
	p, files, err := remote.Start(ctx, r.conn, nil, 2)
	if err != nil {
		return nil, err
	}
	var e ends
	if err := remote.Sockets(files, &e.monitor, &e.channel); err != nil {
		e.close()
		return nil, err
	}
	return connect(ctx, remoteProcess{p}, e, m)
}

// remoteProcess is the process of a server's machine.
type remoteProcess struct{ *remote.Machine }

// Settle implements qemuProcess. If the connection has ended, so has QEMU.
func (p remoteProcess) Settle() {
	_, _ = p.Call(context.Background(), callSettle, remote.Empty{}, nil, 0)
}

// StateFile implements qemuProcess.
func (p remoteProcess) StateFile(ctx context.Context) (r, w *os.File, err error) {
	files, err := p.Call(ctx, callStateFile, remote.Empty{}, nil, 2)
	if err != nil {
		return nil, nil, err
	}
	return files[0], files[1], nil
}
