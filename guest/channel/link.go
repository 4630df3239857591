package channel

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// link is the connection below a session, which can end before its connection does.
//
//	joined --leave--> leaving: Close ends a Read --the session has ended--> left: Close does nothing
type link struct {
	io.ReadWriteCloser
	mu    sync.Mutex // guards state, and is held while the deadline is set
	state linkState
}

type linkState int

const (
	joined linkState = iota
	leaving
	left
)

// Close implements io.Closer.
func (l *link) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.state {
	case leaving:
		return l.setReadDeadline(past())
	case left:
		return nil
	}
	return l.ReadWriteCloser.Close()
}

// leave ends a session whose ends are both silent, and keeps the connection.
func (l *link) leave(s *yamux.Session) error {
	if err := l.set(leaving); err != nil {
		return err
	}
	s.Close() // returns when nothing reads any more
	return l.set(left)
}

// set changes the state and makes reads possible.
func (l *link) set(s linkState) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.setReadDeadline(time.Time{}); err != nil {
		return err
	}
	l.state = s
	return nil
}

func (l *link) setReadDeadline(t time.Time) error {
	d, ok := l.ReadWriteCloser.(interface{ SetReadDeadline(time.Time) error })
	if !ok {
		return errors.New("reading from the channel cannot be interrupted")
	}
	if err := d.SetReadDeadline(t); err != nil {
		return fmt.Errorf("interrupt the channel: %w", err)
	}
	return nil
}
