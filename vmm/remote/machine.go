package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/vmm"
)

// Machine is the process of the machine of a Server at the other end of a connection. It implements Process.
type Machine struct {
	conn   *privsep.Conn
	waited chan struct{} // closed when the process, or the connection, has ended
	ended  ended         // set before waited is closed
}

// Start has the Server start its machine, and decodes the result of its start into result. The caller owns the files, of which
// there must be n, or Any number.
func Start(ctx context.Context, c *privsep.Conn, result any, n int) (*Machine, []*os.File, error) {
	m := &Machine{conn: c, waited: make(chan struct{})}
	files, err := m.Call(ctx, callStart, Empty{}, result, n)
	if err != nil {
		return nil, nil, known(err, vmm.ErrDied)
	}
	go m.wait() // ends with the machine or the connection
	return m, files, nil
}

// Any is the number of files of a call whose caller checks it.
const Any = -1

// Call makes a call of the machine's driver that returns n files.
func (m *Machine) Call(ctx context.Context, name string, args, result any, n int) ([]*os.File, error) {
	files, err := m.conn.Call(ctx, name, args, result)
	if err == nil && n != Any && len(files) != n {
		CloseAll(files)
		return nil, fmt.Errorf("call %s returned %d descriptors in place of %d", name, len(files), n)
	}
	return files, err
}

// wait waits for the end, until the machine is removed or the connection ends.
func (m *Machine) wait() {
	defer close(m.waited)
	if _, err := m.Call(context.Background(), callWait, Empty{}, &m.ended, 0); err != nil {
		m.ended.State = err.Error()
	}
}

// Kill implements Process. If the connection has ended, so has the process.
func (m *Machine) Kill() { _, _ = m.Call(context.Background(), callKill, Empty{}, nil, 0) }

// Waited implements Process.
func (m *Machine) Waited() <-chan struct{} { return m.waited }

// End implements Process.
func (m *Machine) End() string { return m.ended.State }

// Quote implements Process.
func (m *Machine) Quote() (text string) {
	select {
	case <-m.waited:
		return m.ended.Quote
	default:
		_, _ = m.Call(context.Background(), callQuote, Empty{}, &text, 0) // an error leaves the suffix empty
		return text
	}
}

// Remove implements Process.
func (m *Machine) Remove() error {
	_, err := m.Call(context.Background(), callRemove, Empty{}, nil, 0)
	return known(err, ErrStuck)
}

// known returns an error of the Server that also wraps is, if its text states is: only text crosses the connection.
func known(err, is error) error {
	if e := new(privsep.RemoteError); errors.As(err, &e) && strings.Contains(e.Text, is.Error()) {
		return knownError{err, is}
	}
	return err
}

// knownError is an error of the Server, and the error of this process that its text states.
type knownError struct {
	error
	is error
}

// Unwrap returns both errors.
func (e knownError) Unwrap() []error { return []error{e.error, e.is} }

// Sockets returns connections for unix sockets, and closes the files.
func Sockets(files []*os.File, into ...**net.UnixConn) (err error) {
	defer CloseAll(files)
	for i, to := range into {
		c, err := net.FileConn(files[i])
		if err != nil {
			return err
		}
		u, ok := c.(*net.UnixConn)
		if !ok {
			return errors.Join(fmt.Errorf("a descriptor is a socket of kind %s in place of a unix socket", c.LocalAddr().Network()), c.Close())
		}
		*to = u
	}
	return nil
}

// Files returns files for unix sockets, for Started. The sockets stay open.
func Files(conns ...*net.UnixConn) (files []*os.File, err error) {
	for _, c := range conns {
		f, err := c.File()
		if err != nil {
			CloseAll(files)
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// CloseAll closes files of which nothing is needed any more.
func CloseAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
