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

// monitor is a client of QMP, QEMU's control protocol: JSON lines over a socket, with one
// reply for each command, in order, and events in between
// (https://www.qemu.org/docs/master/interop/qmp-spec.html).
// The peer is treated as hostile: the length of a line is limited, and a line that does not
// parse ends the connection.
type monitor struct {
	conn   *net.UnixConn
	events func(event)

	call sync.Mutex // one command at a time

	done    chan struct{} // closed when the reader has ended
	err     error         // why it ended; set before done is closed
	replies chan reply    // replies, from the reader to the caller
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

// newMonitor starts the session: it leaves capabilities negotiation mode. events is called
// from the reader for each event and must not block.
func newMonitor(ctx context.Context, conn *net.UnixConn, events func(event)) (*monitor, error) {
	m := &monitor{conn: conn, events: events, done: make(chan struct{}), replies: make(chan reply, 1)}
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
			case m.replies <- msg.reply:
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

// run executes one command and discards its result. If fd is not nil, it is sent with the command (SCM_RIGHTS).
func (m *monitor) run(ctx context.Context, name string, args any, fd *int) error {
	_, err := m.query(ctx, name, args, fd)
	return err
}

// query executes one command and returns its result. fd is as in run.
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
	case r := <-m.replies:
		if r.Error != nil {
			return nil, fmt.Errorf("qmp %s: %s: %s", name, r.Error.Class, r.Error.Desc)
		}
		return r.Return, nil
	case <-m.done:
		return nil, fmt.Errorf("qmp %s: %w", name, m.err)
	case <-ctx.Done():
		m.conn.Close() // the next reply would be taken for that of another command
		return nil, fmt.Errorf("qmp %s: %w", name, ctx.Err())
	}
}
