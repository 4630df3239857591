package fleet

import (
	"context"
	"errors"
	"sync"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/worker"
)

// ErrNotListening means that nothing listens on a port.
var ErrNotListening = channel.ErrNotListening

// Ports are the TCP ports of a sandbox.
type Ports struct{ sandbox *Sandbox }

// PortsOf returns the TCP ports of a sandbox.
func PortsOf(s *Sandbox) Ports { return Ports{s} }

// List returns those on which processes of the sandbox listen, in ascending order. A sandbox that is only promised has none.
func (p Ports) List(ctx context.Context) ([]int, error) {
	s := p.sandbox
	defer s.Call()()
	if s.Info().State == Promised {
		return nil, nil
	}
	leave, err := pausing{s}.use(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	ports, err := s.session.Ports(ctx)
	return ports, p.failed(err)
}

// Tunnel is a connection to a port of a sandbox. While it is open, the sandbox is not idle.
type Tunnel struct {
	*worker.Tunnel
	done func()
	once sync.Once
}

// Close ends the connection in both directions.
func (t *Tunnel) Close() error {
	err := t.Tunnel.Close()
	t.once.Do(t.done)
	return err
}

// Dial connects to a port, and starts the sandbox if it is only promised. who is the caller, for the record, and via how
// the connection is made; see audit.Inbound. The error is ErrNotListening if nothing listens on the port. ctx bounds only the dial.
func (p Ports) Dial(ctx context.Context, port int, who, via string) (*Tunnel, error) {
	s := p.sandbox
	if port < 1 || port > 65535 {
		return nil, invalid("there is no port %d: ports are 1 to 65535", port)
	}
	done := s.Call()
	leave, err := pausing{s}.use(ctx)
	if err != nil {
		done()
		return nil, err
	}
	defer leave()
	conn, err := s.session.Dial(ctx, worker.Connection{Port: port, Who: who, Via: via})
	if err != nil {
		done()
		return nil, p.failed(err)
	}
	return &Tunnel{Tunnel: conn, done: done}, nil
}

// failed returns the error of a call about ports.
func (p Ports) failed(err error) error {
	if errors.Is(err, worker.ErrManyConnections) {
		return conflict("%v", err)
	}
	return lost(p.sandbox, err)
}
