package wal

import (
	"encoding/json"
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/custody-project/custody/audit"
)

// beginStall lets callers know that writing fails.
func (l *Log) beginStall(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stalled = err
	if l.opt.Mode == Degrade {
		close(l.stall)
		l.makeRoom() // callers that wait for it are to drop their events
	}
	l.told.stalled(err)
}

// endStall declares what was dropped, behind what the buffer held.
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

// gapBody is the only event that does not come through the redactor: it is
// made of numbers and words of our own.
func gapBody(g audit.Gap) []byte {
	body, err := json.Marshal(audit.Event{
		Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindGap, Gap: &g,
	})
	if err != nil {
		panic(err) // no field of a gap can fail to encode
	}
	return body
}

// cause gives the kernel's words for the error, without any path.
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

// passing reports whether err is one that a disk can recover from.
func passing(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, io.ErrShortWrite} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
