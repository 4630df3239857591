package wal

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Mode is what happens when the record cannot be written.
type Mode string

// The modes of a log.
const (
	Strict  Mode = "strict"  // Append and Sync wait; nothing is lost
	Degrade Mode = "degrade" // events beyond the buffer are dropped and declared
)

// Errors of a Log.
var (
	ErrClosed    = errors.New("the log is closed")
	ErrAborted   = errors.New("the log was given up before all of it was durable")
	ErrStalled   = errors.New("the log is stalled: the record cannot be written just now")
	ErrDropped   = errors.New("the event was dropped while the log was stalled; a gap record declares it")
	ErrTooLarge  = fmt.Errorf("the record is longer than %d bytes", MaxRecord)
	ErrNotSealed = errors.New("not a sealed JSON object")
	ErrExists    = errors.New("the directory already holds a record")
	ErrNoRoom    = errors.New("there is no room for the record")
)

// Options of a Log. Run and Sealer are required.
type Options struct {
	Run    string // letters, digits, '-', '_', '.'; at most 128
	Sealer Sealer
	Mode   Mode // default Strict

	SegmentBytes int64         // a segment is sealed before it grows beyond; default 4 MiB, at most MaxSegment
	SegmentAge   time.Duration // and when its first record is this old; default 1 s
	// BufferBytes bounds the frames that are accepted and not yet durable; default 4 MiB.
	// When it is full, Append waits. A single record may always pass.
	BufferBytes int
	// Linger is how long the writer gathers more records while no one waits in Sync; default 2 ms. Sync ends it
	// immediately.
	Linger time.Duration
	Retry  time.Duration // pause between attempts while stalled; default 100 ms

	// OnStall is called when writing begins to fail and OnResume when it works
	// again, in turn, from a goroutine of the log's own. They may use the log, but not Close it.
	OnStall  func(error)
	OnResume func()

	// Room is called before records are written, up to a thousand times a second. Its error is a stall, like a full
	// disk: strict waits, degrade drops and declares. The segment that is being written is sealed first, so that it can
	// be shipped and make space. Room does not use the log.
	Room func() error
	// OnCommit is called with each group of records that has become durable: their number, their bytes in the segment,
	// and how long the write with its fsync took. Like Room it blocks the writer.
	OnCommit func(records, bytes int, took time.Duration)
	// OnSeal is called after each segment's manifest has become durable. Like Room it blocks the writer.
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
