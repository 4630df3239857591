package wal

import (
	"encoding/json"
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/custody-project/custody/audit"
)

// beginStall notifies callers that writing fails.
func (l *Log) beginStall(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stalled = err
	if l.opt.Mode == Degrade {
		close(l.stall)
		l.makeRoom() // callers in waitForRoom drop their events
	}
	l.told.stalled(err)
}

// endStall declares what was dropped, after the events that the buffer contained.
func (l *Log) endStall() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropping.last > 0 {
		l.accept(gapBody(audit.Gap{
			Stage: audit.StageWAL, First: l.dropping.first, Last: l.dropping.last,
			Count: l.dropping.last - l.dropping.first + 1, Cause: cause(l.stalled),
		}))
		l.dropped = append(l.dropped, l.dropping)
		l.dropping = span{}
	}
	if l.opt.Mode == Degrade {
		l.stall = make(chan struct{})
	}
	l.stalled = nil
	l.told.resumed()
}

// gapBody encodes the only event that bypasses the redactor: it
// contains only numbers and fixed text.
func gapBody(g audit.Gap) []byte {
	body, err := json.Marshal(audit.Event{
		Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindGap, Gap: &g,
	})
	if err != nil {
		panic(err) // a gap always encodes
	}
	return body
}

// cause returns the kernel's text of the error, without any path.
func cause(err error) string {
	var errno syscall.Errno
	if errors.Is(err, ErrNoRoom) {
		return ErrNoRoom.Error()
	}
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return "the record could not be written"
}

// passing reports whether err can be transient.
func passing(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, io.ErrShortWrite} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
