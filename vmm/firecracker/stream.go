package firecracker

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/custody-project/custody/guest/channel"
)

const (
	// connectEvery is the pause before the guest is connected again, if it does not listen yet.
	connectEvery = 10 * time.Millisecond
	// connectTimeout bounds an attempt to connect. Firecracker gives up after 2 s.
	connectTimeout = 10 * time.Second
	// maxOK is the longest line with which Firecracker confirms a connection: "OK PORT\n".
	maxOK = 32
)

// stream is the channel to the guest: a connection to Firecracker's socket that Firecracker forwards to the guest's
// listener. The first Read or Write connects it and waits for that: a guest that boots listens late, and a frozen guest
// does not answer.
type stream struct {
	socket dialer
	gone   <-chan struct{} // closed when the machine has ended

	dial   sync.Once
	dialed chan struct{} // closed when conn or err is set
	conn   net.Conn
	err    error
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup
}

func newStream(socket dialer, gone <-chan struct{}) *stream {
	s := &stream{socket: socket, gone: gone, dialed: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Read implements io.Reader.
func (s *stream) Read(b []byte) (int, error) {
	if err := s.connected(); err != nil {
		return 0, err
	}
	return s.conn.Read(b)
}

// Write implements io.Writer.
func (s *stream) Write(b []byte) (int, error) {
	if err := s.connected(); err != nil {
		return 0, err
	}
	return s.conn.Write(b)
}

// Close implements io.Closer. Calls of Read and Write return an error.
func (s *stream) Close() error {
	s.cancel()
	s.dial.Do(func() { s.err = net.ErrClosed; close(s.dialed) })
	s.work.Wait()
	if s.conn == nil {
		return nil
	}
	return s.conn.Close()
}

func (s *stream) connected() error {
	s.dial.Do(func() {
		s.work.Go(func() {
			defer close(s.dialed)
			s.conn, s.err = s.connect()
		})
	})
	<-s.dialed
	return s.err
}

// connect tries until the guest accepts the connection or the stream is closed.
func (s *stream) connect() (net.Conn, error) {
	var last error
	for {
		conn, err := s.try()
		if err == nil {
			return conn, nil
		}
		if last == nil || s.ctx.Err() == nil { // not that Close cancelled an attempt
			last = err
		}
		select {
		case <-s.ctx.Done():
			return nil, fmt.Errorf("connect to the guest: %w", last)
		case <-s.gone:
			return nil, fmt.Errorf("connect to the guest: %w", last)
		case <-time.After(connectEvery):
		}
	}
}

func (s *stream) try() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.ctx, connectTimeout)
	defer cancel()
	conn, err := s.socket(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	_, err = fmt.Fprintf(conn, "CONNECT %d\n", channel.VsockPort)
	if err == nil {
		err = readOK(conn)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// readOK reads the line with which Firecracker confirms a connection, and no byte after it.
func readOK(r io.Reader) error {
	var line []byte
	for b := make([]byte, 1); len(line) < maxOK; line = append(line, b[0]) {
		if _, err := io.ReadFull(r, b); err != nil {
			return err
		}
		if b[0] != '\n' {
			continue
		}
		port, ok := strings.CutPrefix(string(line), "OK ")
		if _, err := strconv.ParseUint(port, 10, 32); !ok || err != nil {
			return fmt.Errorf("firecracker answered %q", line)
		}
		return nil
	}
	return fmt.Errorf("firecracker answered with a line of more than %d bytes", maxOK)
}
