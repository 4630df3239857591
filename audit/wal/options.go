package wal

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Mode is the behavior while the record cannot be written.
type Mode string

// The modes of a log.
const (
	Strict  Mode = "strict"  // Append and Sync wait; nothing is lost
	Degrade Mode = "degrade" // events beyond the buffer are dropped and declared
)

// Errors of a Log.
var (
	ErrClosed    = errors.New("the log is closed")
	ErrAborted   = errors.New("the log was closed before all of it was durable")
	ErrStalled   = errors.New("the log is stalled: the record cannot be written at the moment")
	ErrDropped   = errors.New("the event was dropped while the log was stalled; a gap record declares it")
	ErrTooLarge  = fmt.Errorf("the record is longer than %d bytes", MaxRecord)
	ErrNotSealed = errors.New("not a sealed JSON object")
	ErrExists    = errors.New("the directory already has a record")
	ErrNoRoom    = errors.New("there is no room for the record")
)

// Options of a Log. Run and Sealer are required.
type Options struct {
	Run    string // letters, digits, '-', '_', '.'; at most 128
	Sealer Sealer
	Mode   Mode // default Strict

	SegmentBytes int64         // a segment is sealed before it grows beyond this; default 4 MiB, at most MaxSegment
	SegmentAge   time.Duration // a segment is sealed when its first record is this old; default 1 s
	// BufferBytes bounds the frames that are accepted and not yet durable; default 4 MiB.
	// If it is full, Append waits. A single record always fits.
	BufferBytes int
	// Linger is how long the writer collects more records while no caller waits in Sync; default 2 ms. Sync ends the
	// wait.
	Linger time.Duration
	Retry  time.Duration // pause between attempts while stalled; default 100 ms

	// OnStall is called when writing begins to fail and OnResume when it works
	// again, alternately, from a separate goroutine. They may use the log, but must not close it.
	OnStall  func(error)
	OnResume func()

	// Room is called before records are written, up to a thousand times a second. Its error causes a stall, like a full
	// disk: strict waits, degrade drops and declares. The log seals the active segment first, so that it can
	// be shipped and removed to free space. Room must not use the log.
	Room func() error
	// OnCommit is called for each group of records that has become durable, with the number of records, their bytes in the
	// segment, and the duration of the write and its fsync. Like Room it blocks the writer.
	OnCommit func(records, bytes int, took time.Duration)
	// OnSeal is called when a segment's manifest has become durable. Like Room it blocks the writer.
	OnSeal func()

	FS FS // default Disk
}

func (o *Options) fill() error {
	if !validRun(o.Run) {
		return fmt.Errorf("run id %q: want 1 to 128 letters, digits, '-', '_' or '.'", o.Run)
	}
	if o.Sealer == nil {
		return errors.New("wal options: no Sealer")
	}
	o.Mode = cmp.Or(o.Mode, Strict)
	if o.Mode != Strict && o.Mode != Degrade {
		return fmt.Errorf("record mode %q: want %q or %q", o.Mode, Strict, Degrade)
	}
	o.SegmentBytes = cmp.Or(o.SegmentBytes, 4<<20)
	o.SegmentAge = cmp.Or(o.SegmentAge, time.Second)
	if o.SegmentBytes < 0 || o.SegmentBytes > MaxSegment {
		return fmt.Errorf("segment size %d: want at most %d bytes", o.SegmentBytes, MaxSegment)
	}
	o.BufferBytes = cmp.Or(o.BufferBytes, 4<<20)
	o.Linger = cmp.Or(o.Linger, 2*time.Millisecond)
	o.Retry = cmp.Or(o.Retry, 100*time.Millisecond)
	if o.FS == nil {
		o.FS = Disk{}
	}
	return nil
}
