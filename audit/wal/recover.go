package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

// Errors of Recover.
var (
	ErrFinished = errors.New("the record is already closed: there is nothing to recover")
	ErrDamaged  = errors.New("the record is damaged in a way that a crash cannot cause; verify reports where")
)

// Recovery describes the state of a run whose process died.
type Recovery struct {
	Last     uint64 // seq of the last record that survived, 0 for none
	Sealed   uint64 // segments that were sealed before
	Unsealed uint64 // records in the segment that was not
	CutBytes int64  // length of the torn tail, which a gap record declares
	CutNote  string // path of the file with the torn tail, empty if nothing was cut
}

// Recover opens the record of a run whose process died, for a few last events
// and Close. The frames of the unsealed segment up to the first invalid one
// survive; the torn tail after them is moved to a separate file and declared by a gap
// record. It returns ErrLocked for a live run and ErrFinished for a closed one, and
// completes an interrupted Erase in either. A failed Recover can be repeated. ctx bounds the wait for a process that
// erases.
func Recover(ctx context.Context, dir string, o Options) (*Log, Recovery, error) {
	l, err := newLog(o)
	if err != nil {
		return nil, Recovery{}, err
	}
	r := recoverer{log: l, writer: newWriter(l, dir)}
	if r.writer.lock, err = r.writer.dir.lock(); err != nil {
		return nil, Recovery{}, fmt.Errorf("recover %s: %w", dir, err)
	}
	if err := r.run(ctx); err != nil {
		r.writer.close()
		return nil, r.found, fmt.Errorf("recover %s: %w", dir, err)
	}
	l.start(r.writer)
	return l, r.found, nil
}

// recoverer restores the state of a log and its writer, which has the lock, from the files of the run. No other goroutine
// uses them during recovery.
type recoverer struct {
	log    *Log
	writer *writer
	names  []string // of the files in the directory
	found  Recovery
}

func (r *recoverer) run(ctx context.Context) (err error) {
	dir := r.writer.dir
	if r.names, err = dir.fs.ReadDir(dir.path); err != nil {
		return err
	}
	if slices.ContainsFunc(r.names, leftOfErase) {
		if err := CompleteErase(ctx, dir.path); err != nil {
			return err
		}
	}
	for _, name := range r.names {
		if strings.HasSuffix(name, TempSuffix) {
			err = dir.fs.Remove(dir.file(name))
		}
		if first, ok := ParseName(name, ManifestSuffix); ok && err == nil {
			err = r.manifest(name, first)
		}
		if err != nil {
			return err
		}
	}
	open, err := r.unsealed()
	if err != nil || open == "" {
		return err
	}
	return r.segment(open)
}

// manifest continues the chain after a sealed segment.
func (r *recoverer) manifest(name string, first uint64) error {
	l, w := r.log, r.writer
	text, err := w.dir.fs.ReadFile(w.dir.file(name))
	if err != nil {
		return err
	}
	s, err := l.opt.Sealer.Parse(text)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
	case s.Closing != Open:
		return ErrFinished
	case s.Run != l.opt.Run, s.First != first, s.Index != w.seg.index, s.First < l.next:
		return fmt.Errorf("%w: %s is not the manifest of segment %d of %s", ErrDamaged, name, w.seg.index, l.opt.Run)
	}
	w.prev = text
	w.seg.index = s.Index + 1
	l.next, l.durable = s.Last+1, s.Last
	r.found.Sealed, r.found.Last = w.seg.index, s.Last
	return nil
}

// unsealed returns the name of the one segment after the last manifest, if any.
func (r *recoverer) unsealed() (string, error) {
	var open string
	for _, name := range r.names {
		first, ok := ParseName(name, SegmentSuffix)
		if !ok || first < r.log.next {
			continue
		}
		if open != "" {
			return "", fmt.Errorf("%w: %s and %s have no manifest", ErrDamaged, open, name)
		}
		open = name
	}
	return open, nil
}

// segment makes the unsealed segment active.
func (r *recoverer) segment(name string) error {
	dir, seg := r.writer.dir, &r.writer.seg
	data, err := dir.fs.ReadFile(dir.file(name))
	if err != nil {
		return err
	}
	first, _ := ParseName(name, SegmentSuffix)
	whole := r.replay(data, first)
	hole := r.skipTo(first)
	r.found.Unsealed, r.found.Last = seg.count, max(r.found.Last, seg.last)
	torn := data[whole:]
	if len(torn) > 0 {
		// The note is durable before the tail is cut, so that recovery cuts again after a crash in between.
		if err := dir.writeFile(tornName(first, whole), torn); err != nil {
			return err
		}
	}
	if seg.file, err = dir.fs.Open(dir.file(name)); err != nil {
		return err
	}
	if err := seg.repair(); err != nil {
		return err
	}
	seg.unnamed = true
	return r.declareCut(tornName(first, whole), torn, hole)
}

// skipTo skips the seqs before an empty segment's first: they were dropped in degrade mode, and the gap record
// that would declare them was torn.
func (r *recoverer) skipTo(first uint64) (hole span) {
	l := r.log
	if r.writer.seg.count > 0 || first == l.next {
		return span{}
	}
	hole = span{l.next, first - 1}
	l.next, l.durable = first, first-1
	return hole
}

// replay adds the frames of data up to the first that this log cannot have
// written, and returns their length in bytes.
func (r *recoverer) replay(data []byte, first uint64) int64 {
	l, seg := r.log, &r.writer.seg
	seg.first = first
	frames := NewReader("", bytes.NewReader(data))
	for {
		f, err := frames.Next()
		switch {
		case err != nil, f.Run != l.opt.Run, f.Seq < l.next, seg.count == 0 && f.Seq != first:
			return seg.size
		}
		if seg.count == 0 {
			seg.born = time.Now()
		}
		seg.takeFrame(f)
		l.next, l.durable = f.Seq+1, f.Seq
	}
}

// declareCut adds the gap record for a cut tail. A note whose offset is the end
// of the frames is one whose gap record was not written before another crash.
func (r *recoverer) declareCut(note string, torn []byte, hole span) error {
	dir := r.writer.dir
	if len(torn) == 0 && slices.Contains(r.names, note) {
		var err error
		if torn, err = dir.fs.ReadFile(dir.file(note)); err != nil {
			return err
		}
	}
	gap := audit.Gap{
		Stage: audit.StageWAL, What: "torn tail", First: hole.first, Last: hole.last, Bytes: int64(len(torn)),
		Cause: "the process died while writing; recovery cut what was not whole",
	}
	if hole.last > 0 {
		gap.Count = hole.last - hole.first + 1
	}
	if len(torn) > 0 {
		r.found.CutBytes, r.found.CutNote = gap.Bytes, dir.file(note)
	}
	if len(torn) > 0 || hole.last > 0 {
		r.writer.seg.cut = true
		r.log.accept(gapBody(gap))
	}
	return nil
}

func tornName(first uint64, offset int64) string {
	return FileName(first, fmt.Sprintf(".%d%s", offset, tornSuffix))
}
