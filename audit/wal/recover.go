package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

// Errors of Recover.
var (
	ErrFinished = errors.New("the record is closed already: there is nothing to recover")
	ErrDamaged  = errors.New("the record is damaged beyond what a crash can do; verify says where")
)

// Recovery describes what was found of a run whose process died.
type Recovery struct {
	Last     uint64 // seq of the last record that survived, 0 for none
	Sealed   uint64 // segments that were sealed before
	Unsealed uint64 // records in the segment that was not
	CutBytes int64  // of the torn tail, which a gap record declares
	CutNote  string // path of the file that holds them, empty when nothing was cut
}

// Recover opens the record of a run whose process died, for a few last events
// and Close. Whatever stands in the unsealed segment up to the first invalid frame
// survives; the torn tail behind it goes to a side file and is declared by a gap
// record. It returns ErrLocked for a live run and ErrFinished for a closed one, and
// completes an Erase that was cut off in either. A failed Recover can be repeated. ctx bounds the wait for a process that erases.
func Recover(ctx context.Context, dir string, o Options) (*Log, Recovery, error) {
	l, err := newLog(dir, o)
	if err != nil {
		return nil, Recovery{}, err
	}
	if l.lock, err = l.opt.FS.Lock(filepath.Join(dir, lockName)); err != nil {
		return nil, Recovery{}, fmt.Errorf("recover %s: %w", dir, err)
	}
	rec, err := l.recover(ctx)
	if err != nil {
		l.dropHandles()
		return nil, rec, fmt.Errorf("recover %s: %w", dir, err)
	}
	l.start()
	return l, rec, nil
}

func (l *Log) recover(ctx context.Context) (Recovery, error) {
	names, err := l.opt.FS.ReadDir(l.dir)
	if err != nil {
		return Recovery{}, err
	}
	if slices.ContainsFunc(names, leftOfErase) {
		if err := CompleteErase(ctx, l.dir); err != nil {
			return Recovery{}, err
		}
	}
	var rec Recovery
	for _, name := range names {
		if strings.HasSuffix(name, tempSuffix) {
			err = l.opt.FS.Remove(filepath.Join(l.dir, name))
		}
		if first, ok := ParseName(name, ManifestSuffix); ok && err == nil {
			err = l.recoverManifest(name, first, &rec)
		}
		if err != nil {
			return rec, err
		}
	}
	open, err := l.unsealed(names)
	if err != nil || open == "" {
		return rec, err
	}
	return rec, l.recoverSegment(open, names, &rec)
}

// recoverManifest continues the chain behind a sealed segment.
func (l *Log) recoverManifest(name string, first uint64, rec *Recovery) error {
	text, err := l.opt.FS.ReadFile(filepath.Join(l.dir, name))
	if err != nil {
		return err
	}
	s, err := l.opt.Sealer.Parse(text)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
	case s.Closing != Open:
		return ErrFinished
	case s.Run != l.opt.Run, s.First != first, s.Index != l.seg.index, s.First < l.next:
		return fmt.Errorf("%w: %s is not the manifest of segment %d of %s", ErrDamaged, name, l.seg.index, l.opt.Run)
	}
	l.prev = text
	l.seg.index = s.Index + 1
	l.next, l.durable = s.Last+1, s.Last
	rec.Sealed, rec.Last = l.seg.index, s.Last
	return nil
}

// unsealed returns the name of the one segment behind the last manifest, if any.
func (l *Log) unsealed(names []string) (string, error) {
	var open string
	for _, name := range names {
		first, ok := ParseName(name, SegmentSuffix)
		if !ok || first < l.next {
			continue
		}
		if open != "" {
			return "", fmt.Errorf("%w: %s and %s have no manifest", ErrDamaged, open, name)
		}
		open = name
	}
	return open, nil
}

// recoverSegment makes the unsealed segment the active one.
func (l *Log) recoverSegment(name string, names []string, rec *Recovery) error {
	path := filepath.Join(l.dir, name)
	data, err := l.opt.FS.ReadFile(path)
	if err != nil {
		return err
	}
	first, _ := ParseName(name, SegmentSuffix)
	whole := l.replay(data, first)
	hole := l.skipTo(first)
	rec.Unsealed, rec.Last = l.seg.count, max(rec.Last, l.seg.last)
	torn := data[whole:]
	if len(torn) > 0 {
		// The note is durable before the tail is cut, so that a crash in between cuts again.
		if err := l.writeFile(tornName(first, whole), torn); err != nil {
			return err
		}
	}
	if l.seg.file, err = l.opt.FS.Open(path); err != nil {
		return err
	}
	if err := l.repair(); err != nil {
		return err
	}
	l.seg.unnamed = true
	return l.declareCut(tornName(first, whole), torn, hole, names, rec)
}

// skipTo leaves out the seqs before an empty segment's first: they were dropped in degrade mode, and the gap record
// that should declare them was torn.
func (l *Log) skipTo(first uint64) (hole span) {
	if l.seg.count > 0 || first == l.next {
		return span{}
	}
	hole = span{l.next, first - 1}
	l.next, l.durable = first, first-1
	return hole
}

// replay takes over the frames of data up to the first that cannot have been
// written by this log, and returns how many bytes those are.
func (l *Log) replay(data []byte, first uint64) int64 {
	l.seg.first = first
	r := NewReader("", bytes.NewReader(data))
	for {
		f, err := r.Next()
		switch {
		case err != nil, f.Run != l.opt.Run, f.Seq < l.next, l.seg.count == 0 && f.Seq != first:
			return l.seg.size
		}
		if l.seg.count == 0 {
			l.seg.born = time.Now()
		}
		l.seg.takeFrame(f)
		l.next, l.durable = f.Seq+1, f.Seq
	}
}

// declareCut adds the gap record for a cut tail. A note that stands at the very
// end of the frames is one whose gap did not get written before another crash.
func (l *Log) declareCut(note string, torn []byte, hole span, names []string, rec *Recovery) error {
	if len(torn) == 0 && slices.Contains(names, note) {
		var err error
		if torn, err = l.opt.FS.ReadFile(filepath.Join(l.dir, note)); err != nil {
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
		rec.CutBytes, rec.CutNote = gap.Bytes, filepath.Join(l.dir, note)
	}
	if len(torn) > 0 || hole.last > 0 {
		l.seg.cut = true
		l.accept(gapBody(gap))
	}
	return nil
}

func tornName(first uint64, offset int64) string {
	return FileName(first, fmt.Sprintf(".%d%s", offset, tornSuffix))
}
