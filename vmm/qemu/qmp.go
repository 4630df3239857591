package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// monitor speaks QMP, QEMU's control protocol: JSON lines over a socket, one
// reply a command, in order, with events in between
// (https://www.qemu.org/docs/master/interop/qmp-spec.html).
// The peer is treated as hostile: a line is bounded, and a reply that does not
// parse ends the connection.
type monitor struct {
	conn   *net.UnixConn
	events func(event)

	call sync.Mutex // one command at a time

	done chan struct{} // closed when the reader has ended
	err  error         // why; set before done is closed
	repl chan reply    // replies, from the reader to the caller
}

type event struct {
	Name string          `json:"event"`
	Data json.RawMessage `json:"data"`
}

type reply struct {
	ID     uint64          `json:"id"`
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
}

const maxLine = 1 << 20

// newMonitor reads the greeting and leaves negotiation mode. events is called
// from the reader for each event and must not block.
func newMonitor(ctx context.Context, conn *net.UnixConn, events func(event)) (*monitor, error) {
	m := &monitor{conn: conn, events: events, done: make(chan struct{}), repl: make(chan reply, 1)}
	go m.read()
	if err := m.run(ctx, "qmp_capabilities", nil, nil); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *monitor) close() {
	m.conn.Close()
	<-m.done
}

func (m *monitor) read() {
	defer close(m.done)
	lines := bufio.NewScanner(m.conn)
	lines.Buffer(make([]byte, 4096), maxLine)
	for lines.Scan() {
		var msg struct {
			event
			reply
			QMP json.RawMessage `json:"QMP"`
		}
		if err := json.Unmarshal(lines.Bytes(), &msg); err != nil {
			m.err = fmt.Errorf("qmp: unreadable line: %w", err)
			m.conn.Close()
			return
		}
		switch {
		case msg.Name != "":
			m.events(msg.event)
		case msg.QMP == nil:
			select {
			case m.repl <- msg.reply:
			default:
				m.err = errors.New("qmp: an unexpected reply")
				m.conn.Close()
				return
			}
		}
	}
	m.err = lines.Err()
	if m.err == nil {
		m.err = errors.New("qmp: connection closed")
	}
}

// run carries out one command. fd, when not nil, travels with it as SCM_RIGHTS.
func (m *monitor) run(ctx context.Context, name string, args any, fd *int) error {
	_, err := m.query(ctx, name, args, fd)
	return err
}

func (m *monitor) query(ctx context.Context, name string, args any, fd *int) (json.RawMessage, error) {
	m.call.Lock()
	defer m.call.Unlock()
	line, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{name, args})
	if err != nil {
		return nil, fmt.Errorf("qmp %s: %w", name, err)
	}
	var oob []byte
	if fd != nil {
		oob = unix.UnixRights(*fd)
	}
	if _, _, err := m.conn.WriteMsgUnix(append(line, '\n'), oob, nil); err != nil {
		return nil, fmt.Errorf("qmp %s: %w", name, err)
	}
	select {
	case r := <-m.repl:
		if r.Error != nil {
			return nil, fmt.Errorf("qmp %s: %s: %s", name, r.Error.Class, r.Error.Desc)
		}
		return r.Return, nil
	case <-m.done:
		return nil, fmt.Errorf("qmp %s: %w", name, m.err)
	case <-ctx.Done():
		m.conn.Close() // the stream is out of step now
		return nil, fmt.Errorf("qmp %s: %w", name, ctx.Err())
	}
}
