package channel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"

	"github.com/custody-project/custody/internal/splice"
)

// maxPorts bounds the ports of an answer.
const maxPorts = 4096

// ErrNotListening means that no process of the guest listens on a port.
var ErrNotListening = errors.New("nothing listens on the port")

// Ports returns the TCP ports on which processes of the guest listen and that Dial can reach, in ascending order.
func (c *Client) Ports(ctx context.Context) ([]int, error) {
	r, err := c.ask(ctx, hello{Kind: streamPorts})
	if err != nil {
		return nil, err
	}
	ports := r.Ports
	if r.Ports = nil; !r.only(r.Done) || len(ports) > maxPorts {
		return nil, c.failed(ctx, "list the ports", hostile("answer to the question for ports with something else"))
	}
	for i, p := range ports {
		if p < 1 || p > 65535 || i > 0 && p <= ports[i-1] {
			return nil, c.failed(ctx, "list the ports", hostile("port %d in a list of ports", p))
		}
	}
	return ports, nil
}

// Conn is a TCP connection to a port of the guest. It is safe for concurrent use.
//
//	Dial --> open --Close, or the guest has closed both directions--> closed
//
// Each direction ends by itself: CloseWrite ends ours, a read returns io.EOF at the end of the guest's.
type Conn struct {
	ctl, data net.Conn
	over      chan struct{} // closed when the guest has closed both directions, or Close was called
}

// Dial connects to a TCP port on the loopback interface of the guest. The error is ErrNotListening if nothing listens there.
func (c *Client) Dial(ctx context.Context, port int) (*Conn, error) {
	if port < 1 || port > 65535 {
		return nil, fmt.Errorf("there is no port %d: ports are 1 to 65535", port)
	}
	streams, err := c.open(ctx, hello{Kind: streamConnect, Port: port}, 1)
	if err != nil {
		return nil, err
	}
	conn := &Conn{ctl: streams[0], data: streams[1], over: make(chan struct{})}
	if err := c.connected(ctx, conn.ctl); err != nil {
		conn.Close()
		return nil, err
	}
	c.work.Go(func() { conn.watch(c) })
	return conn, nil
}

// connected waits for the guest's report that it has connected.
func (c *Client) connected(ctx context.Context, ctl net.Conn) error {
	stop := context.AfterFunc(ctx, func() { unblock(ctl) })
	var r report
	err := readFrame(ctl, &r, maxReport)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	switch {
	case err != nil:
	case r.only(r.Connected):
		return nil
	case r.Refused:
		return ErrNotListening
	case r.Error != "":
		return fmt.Errorf("guest: %.500q", r.Error)
	default:
		err = hostile("first report of a connection is neither its begin nor an error")
	}
	return c.failed(ctx, "connect to a port of the guest", err)
}

// watch waits until the guest has closed the connection, or Close was called. What is written then can reach nothing.
func (c *Conn) watch(client *Client) {
	defer close(c.over)
	var r report
	if err := readFrame(c.ctl, &r, maxReport); errors.Is(err, ErrHostile) {
		client.end(err)
	}
	c.data.SetWriteDeadline(past())
}

// Over is closed when the connection has ended in both directions. What the guest has sent before can still be read.
func (c *Conn) Over() <-chan struct{} { return c.over }

// Read implements io.Reader.
func (c *Conn) Read(b []byte) (int, error) { return c.data.Read(b) }

// Write implements io.Writer.
func (c *Conn) Write(b []byte) (int, error) { return c.data.Write(b) }

// CloseWrite ends what is sent to the guest.
func (c *Conn) CloseWrite() error { return c.data.Close() }

// Close ends the connection in both directions. The guest closes it, too.
func (c *Conn) Close() error {
	unblock(c.data)
	unblock(c.ctl)
	return errors.Join(c.data.Close(), c.ctl.Close())
}

// connData is the data of a connection in the guest.
type connData struct{ net.Conn }

// CloseWrite implements splice.Conn: yamux closes one direction.
func (s connData) CloseWrite() error { return s.Conn.Close() }

// Close implements splice.Conn.
func (s connData) Close() error {
	unblock(s.Conn)
	return s.Conn.Close()
}

// connect connects the host to a port until both directions have ended, or the host closes ctl.
func (s *Server) connect(ctx context.Context, port int, ctl, data net.Conn) {
	conn, err := s.dial(ctx, port)
	if err != nil {
		data.Close()
		writeFrame(ctl, report{Error: err.Error(), Refused: errors.Is(err, syscall.ECONNREFUSED), Done: true}, maxReport)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	writeFrame(ctl, report{Connected: true}, maxReport)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		var m control
		readFrame(ctl, &m, maxReport) // the host sends none: it closes
		cancel()
	}()
	splice.Join(ctx, conn, connData{data}, 0, &splice.Traffic{})
	ctl.SetReadDeadline(past())
	<-gone
	writeFrame(ctl, report{Done: true}, maxReport)
}

func (s *Server) dial(ctx context.Context, port int) (splice.Conn, error) {
	if s.Dial == nil {
		return nil, errors.New("this guest has no ports")
	}
	return s.Dial(ctx, port)
}

// listening reports the ports that Dial can reach.
func (s *Server) listening() report {
	if s.Ports == nil {
		return report{Done: true}
	}
	ports, err := s.Ports()
	if err != nil {
		return report{Error: err.Error(), Done: true}
	}
	slices.Sort(ports)
	ports = slices.Compact(ports)
	return report{Ports: ports[:min(len(ports), maxPorts)], Done: true}
}
