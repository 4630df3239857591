package firecracker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/remote"
)

// The calls of a Firecracker, in addition to those of every machine.
const (
	callDial   = "vm-dial"
	callMemory = "vm-memory"
	callSaved  = "vm-saved"
)

type (
	dialCall struct{ Socket string }
	dialed   struct{ Listening bool } // with the connection, if it is set
)

// NewServer returns the server of a machine (package remote), whose files stay open until its Close.
func (d *Driver) NewServer(m vmm.Machine) privsep.Server {
	s := remote.NewServer(func(context.Context) (started remote.Started[*spawned], err error) {
		p, err := d.spawn(m)
		if err != nil {
			return started, err
		}
		started = remote.Started[*spawned]{Process: p, Result: shapeOf(m)}
		if m.Scratch != nil {
			disk, err := pathOnly(m.Scratch)
			if err != nil {
				return started, errors.Join(err, p.Remove())
			}
			started.Files = []*os.File{disk}
		}
		return started, nil
	})
	remote.Add(s, callDial, func(ctx context.Context, p *spawned, c dialCall) (any, []*os.File, error) {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		conn, err := p.Dial(ctx, c.Socket)
		if errors.Is(err, errNotListening) {
			return dialed{}, nil, nil
		}
		if err != nil {
			return nil, nil, err
		}
		defer conn.Close()
		files, err := remote.Files(conn.(*net.UnixConn))
		return dialed{Listening: true}, files, err
	})
	remote.Add(s, callMemory, func(ctx context.Context, p *spawned, _ remote.Empty) (any, []*os.File, error) {
		maps, mem, err := p.Memory(ctx)
		if err != nil {
			return nil, nil, err
		}
		return remote.Empty{}, []*os.File{maps, mem}, nil
	})
	remote.Add(s, callSaved, func(ctx context.Context, p *spawned, _ remote.Empty) (any, []*os.File, error) {
		state, err := p.Saved(ctx)
		if err != nil {
			return nil, nil, err
		}
		return remote.Empty{}, []*os.File{state}, nil
	})
	return s
}

// Remote is a vmm.Driver for the machine of a server at the other end of a connection. It starts one machine.
type Remote struct {
	Driver // names the tier
	conn   *privsep.Conn
}

// NewRemote returns the driver of a server.
func NewRemote(c *privsep.Conn) *Remote { return &Remote{conn: c} }

// Start implements vmm.Driver. Of m it uses the ID only; all else is with the server.
func (r *Remote) Start(ctx context.Context, m vmm.Machine) (vmm.VM, error) {
	var s shape
	p, files, err := remote.Start(ctx, r.conn, &s, remote.Any)
	if err != nil {
		return nil, err
	}
	var disk *os.File
	switch {
	case len(files) == 0 && !s.HasScratch:
	case len(files) == 1 && s.HasScratch:
		disk = files[0]
	default:
		remote.CloseAll(files)
		return nil, fmt.Errorf("the machine has %d disks", len(files))
	}
	return connect(ctx, remoteProcess{p}, s, disk, m.ID)
}

// remoteProcess is the Firecracker of a server.
type remoteProcess struct{ *remote.Machine }

// Dial implements fcProcess.
func (p remoteProcess) Dial(ctx context.Context, socket string) (net.Conn, error) {
	var d dialed
	files, err := p.Call(ctx, callDial, dialCall{socket}, &d, remote.Any)
	switch {
	case err != nil:
		return nil, err
	case len(files) == 0 && !d.Listening:
		return nil, errNotListening
	case len(files) != 1:
		remote.CloseAll(files)
		return nil, fmt.Errorf("call %s returned %d descriptors", callDial, len(files))
	}
	var conn *net.UnixConn
	err = remote.Sockets(files, &conn)
	return conn, err
}

// Memory implements fcProcess.
func (p remoteProcess) Memory(ctx context.Context) (maps, mem *os.File, err error) {
	files, err := p.Call(ctx, callMemory, remote.Empty{}, nil, 2)
	if err != nil {
		return nil, nil, err
	}
	return files[0], files[1], nil
}

// Saved implements fcProcess.
func (p remoteProcess) Saved(ctx context.Context) (*os.File, error) {
	files, err := p.Call(ctx, callSaved, remote.Empty{}, nil, 1)
	if err != nil {
		return nil, err
	}
	return files[0], nil
}
