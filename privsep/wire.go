package privsep

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// send sends a message with descriptors.
func (c *Conn) send(m message, files []*os.File) error {
	b, err := json.Marshal(m)
	switch {
	case err != nil:
		return err
	case len(b) > MaxMessage:
		return fmt.Errorf("a message of %d bytes; the limit is %d", len(b), MaxMessage)
	case len(files) > MaxFiles:
		return fmt.Errorf("a message with %d descriptors; the limit is %d", len(files), MaxFiles)
	}
	var fds []int
	for _, f := range files {
		raw, err := f.SyscallConn() // Fd would make the descriptor block
		if err != nil {
			return err
		}
		if err := raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) }); err != nil {
			return err
		}
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	_, _, err = c.conn.WriteMsgUnix(b, rights, nil)
	if errors.Is(err, net.ErrClosed) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return ErrClosed
	}
	return err
}

// reader reads messages. Only one goroutine uses it.
type reader struct {
	conn   *net.UnixConn
	buf    []byte
	rights []byte
}

func newReader(c *net.UnixConn) *reader {
	return &reader{conn: c, buf: make([]byte, MaxMessage), rights: make([]byte, unix.CmsgSpace(MaxFiles*4))}
}

// next returns the next message with its descriptors, which the caller owns. After an error there are none.
func (r *reader) next() (message, []*os.File, error) {
	n, oobn, flags, _, err := r.conn.ReadMsgUnix(r.buf, r.rights)
	if err != nil {
		return message{}, nil, err
	}
	files, err := parseRights(r.rights[:oobn])
	var m message
	switch {
	case err != nil:
	case flags&unix.MSG_CTRUNC != 0:
		err = fmt.Errorf("it has more than %d descriptors", MaxFiles)
	case flags&unix.MSG_TRUNC != 0:
		err = fmt.Errorf("it has more than %d bytes", MaxMessage)
	default:
		m, err = parse(r.buf[:n])
	}
	if err != nil {
		closeAll(files)
		return message{}, nil, err
	}
	return m, files, nil
}

// parse parses a message. An empty one is the end of the stream.
func parse(b []byte) (m message, err error) {
	if len(b) == 0 {
		return m, net.ErrClosed
	}
	if err := Decode(b, &m); err != nil {
		return m, err
	}
	m.Body = append(json.RawMessage(nil), m.Body...) // the buffer is used again
	switch {
	case m.ID == 0:
		return m, errors.New("it has no id")
	case m.Call != "" && m.Error != "":
		return m, errors.New("it is both a call and a failure")
	case m.Error == "" && (m.Hint != "" || m.Kind != ""):
		return m, errors.New("it has a hint or a kind, and no failure")
	case m.Error == "" && len(m.Body) == 0:
		return m, errors.New("it has no body")
	}
	return m, nil
}

// parseRights returns the descriptors of a message.
func parseRights(b []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			closeAll(files)
			return nil, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
