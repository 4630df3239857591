package qemu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/vmm"
)

// A machine can be controlled from another process than the one that has started QEMU. These are the calls between the two (package
// privsep). The process that starts QEMU chooses the machine; the other one, which parses what QEMU and the guest send, can
// start, end and remove it, and nothing else.
const (
	callStart  = "vm-start"
	callKill   = "vm-kill"
	callWait   = "vm-wait"
	callQuote  = "vm-quote"
	callSettle = "vm-settle"
	callRemove = "vm-remove"
)

type emptyMessage struct{}

// ended states how QEMU ended.
type ended struct{ State, Quote string }

// Server starts one machine for another process. It is safe for concurrent use.
//
//	NewServer --> idle --vm-start--> running --vm-remove, Close--> removed
type Server struct {
	driver  *Driver
	machine vmm.Machine

	mu      sync.Mutex // guards started and process
	started bool       // or closed: there is no further start
	process *spawned   // nil before the start
}

// NewServer returns the Server of a machine, whose files stay open until Close.
func (d *Driver) NewServer(m vmm.Machine) privsep.Server { return &Server{driver: d, machine: m} }

// Handlers returns the calls of a Remote.
func (s *Server) Handlers() map[string]privsep.Handler {
	return map[string]privsep.Handler{
		callStart: privsep.Handle(func(context.Context, emptyMessage) (any, []*os.File, error) { return s.start() }),
		callKill:  s.running(func(_ context.Context, p *spawned) (any, error) { p.Kill(); return emptyMessage{}, nil }),
		callWait: s.running(func(ctx context.Context, p *spawned) (any, error) {
			select {
			case <-p.Waited():
				return ended{p.End(), p.Quote()}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}),
		callQuote:  s.running(func(_ context.Context, p *spawned) (any, error) { return p.Quote(), nil }),
		callSettle: s.running(func(_ context.Context, p *spawned) (any, error) { p.Settle(); return emptyMessage{}, nil }),
		callRemove: s.running(func(context.Context, *spawned) (any, error) { return emptyMessage{}, s.Close() }),
	}
}

// running returns the handler of a call that needs the started machine.
func (s *Server) running(do func(context.Context, *spawned) (any, error)) privsep.Handler {
	return privsep.Handle(func(ctx context.Context, _ emptyMessage) (any, []*os.File, error) {
		s.mu.Lock()
		p := s.process
		s.mu.Unlock()
		if p == nil {
			return nil, nil, errors.New("the machine has not been started, or was removed")
		}
		result, err := do(ctx, p)
		return result, nil, err
	})
}

// start starts the machine, and returns the ends of its monitor and channel.
func (s *Server) start() (any, []*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return nil, nil, errors.New("the machine was started already")
	}
	s.started = true
	p, e, err := s.driver.spawn(s.machine)
	if err != nil {
		return nil, nil, err
	}
	s.process = p
	defer e.close()
	var files []*os.File
	for _, c := range []*net.UnixConn{e.monitor, e.channel} {
		f, err := c.File()
		if err != nil {
			return nil, files, err
		}
		files = append(files, f)
	}
	return emptyMessage{}, files, nil
}

// Close ends the machine, if it was started, and removes what it used.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.process
	s.started, s.process = true, nil
	if p == nil {
		return nil
	}
	return p.Remove()
}

// Remote is a vmm.Driver for the machine of a Server at the other end of a connection. It starts one machine.
type Remote struct {
	Driver // names the tier
	conn   *privsep.Conn
}

// NewRemote returns the driver of a Server. kvm must be that of the Server's driver.
func NewRemote(c *privsep.Conn, kvm bool) *Remote { return &Remote{Driver{kvm: kvm}, c} }

// Start implements vmm.Driver. Of m it uses the amount of memory and the state to restore, which must be those of the Server's
// machine; all else is with the Server.
func (r *Remote) Start(ctx context.Context, m vmm.Machine) (vmm.VM, error) {
	files, err := r.conn.Call(ctx, callStart, emptyMessage{}, nil)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if len(files) != 2 {
		return nil, fmt.Errorf("call %s returned %d descriptors", callStart, len(files))
	}
	var e ends
	for i, c := range []**net.UnixConn{&e.monitor, &e.channel} {
		conn, err := net.FileConn(files[i])
		if err != nil {
			e.close()
			return nil, err
		}
		*c = conn.(*net.UnixConn)
	}
	p := &remoteProcess{conn: r.conn, waited: make(chan struct{})}
	go p.wait()
	return connect(ctx, p, e, m)
}

// remoteProcess is the process of a Server's machine.
type remoteProcess struct {
	conn   *privsep.Conn
	waited chan struct{} // closed when QEMU, or the connection, has ended
	ended  ended         // set before waited is closed
}

// wait waits for the end, until the machine is removed or the connection ends.
func (p *remoteProcess) wait() {
	defer close(p.waited)
	if _, err := p.conn.Call(context.Background(), callWait, emptyMessage{}, &p.ended); err != nil {
		p.ended.State = err.Error()
	}
}

func (p *remoteProcess) call(name string, result any) error {
	_, err := p.conn.Call(context.Background(), name, emptyMessage{}, result) // ends with the connection
	return err
}

// Kill implements qemuProcess. If the connection has ended, so has QEMU.
func (p *remoteProcess) Kill() { _ = p.call(callKill, nil) }

// Waited implements qemuProcess.
func (p *remoteProcess) Waited() <-chan struct{} { return p.waited }

// End implements qemuProcess.
func (p *remoteProcess) End() string { return p.ended.State }

// Quote implements qemuProcess.
func (p *remoteProcess) Quote() (text string) {
	select {
	case <-p.waited:
		return p.ended.Quote
	default:
		_ = p.call(callQuote, &text) // an error leaves the suffix empty
		return text
	}
}

// Settle implements qemuProcess.
func (p *remoteProcess) Settle() { _ = p.call(callSettle, nil) }

// Remove implements qemuProcess.
func (p *remoteProcess) Remove() error {
	err := p.call(callRemove, nil)
	if e := new(privsep.RemoteError); errors.As(err, &e) && strings.Contains(e.Text, errStuck.Error()) {
		return fmt.Errorf("%w (%w)", errStuck, err)
	}
	return err
}
