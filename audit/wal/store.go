package wal

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// put makes chunk durable behind the durable bytes of the active segment. It
// can be repeated after any failure: the same bytes go to the same place.
func (l *Log) put(chunk []byte) error {
	if err := l.ready(chunk); err != nil {
		return err
	}
	l.seg.suspect = true
	if err := writeAt(l.seg.file, chunk, l.seg.size); err != nil {
		return err
	}
	if err := l.seg.file.Sync(); err != nil {
		return err
	}
	l.seg.suspect = false
	return nil
}

// ready has the active segment's file open, named durably and free of doubtful bytes.
func (l *Log) ready(chunk []byte) error {
	switch {
	case l.seg.file == nil:
		if err := l.openSegment(chunk); err != nil {
			return err
		}
	case l.seg.suspect && l.repair() != nil:
		if err := l.replace(); err != nil {
			return err
		}
	}
	if !l.seg.unnamed {
		return nil
	}
	err := l.opt.FS.SyncDir(l.dir)
	l.seg.unnamed = err != nil
	return err
}

func (l *Log) segmentPath() string {
	return filepath.Join(l.dir, FileName(l.seg.first, SegmentSuffix))
}

func (l *Log) openSegment(chunk []byte) error {
	_, l.seg.first, _ = parseHead(chunk[recordAt:frameSize(chunk)])
	file, err := l.opt.FS.Create(l.segmentPath())
	if err != nil {
		return err
	}
	l.seg.file, l.seg.unnamed = file, true
	return nil
}

// repair cuts the file back to its durable bytes. A failed fsync may have
// dropped pages and called them clean (fsyncgate), so nothing behind is trusted.
func (l *Log) repair() error {
	if err := l.seg.file.Truncate(l.seg.size); err != nil {
		return err
	}
	if err := l.seg.file.Sync(); err != nil {
		return err
	}
	l.seg.suspect = false
	return nil
}

// replace moves the durable bytes to a new file, for when the old one cannot be
// cut back or its descriptor has gone bad.
func (l *Log) replace() error {
	bytes, err := l.opt.FS.ReadFile(l.segmentPath())
	if err != nil {
		return err
	}
	if int64(len(bytes)) < l.seg.size {
		return fmt.Errorf("%s: %d durable bytes, found %d", l.segmentPath(), l.seg.size, len(bytes))
	}
	file, err := l.writeTemp(l.segmentPath(), bytes[:l.seg.size])
	if err != nil {
		return err
	}
	if err := l.opt.FS.Rename(l.segmentPath()+tempSuffix, l.segmentPath()); err != nil {
		file.Close()
		return err
	}
	l.seg.file.Close() // from here on its file has no name
	l.seg.file, l.seg.suspect, l.seg.unnamed = file, false, true
	return nil
}

// sealSegment writes leaves and manifest of the active segment, in that order,
// and begins the next one. Its records are durable already.
func (l *Log) sealSegment(closing Closing) error {
	s := Segment{
		Run: l.opt.Run, Index: l.seg.index, First: l.seg.first, Last: l.seg.last, Count: l.seg.count,
		Bytes: l.seg.size, Leaves: l.seg.leaves, Losses: l.seg.losses,
		Time: time.Now().UTC(), Closing: closing, Prev: l.prev,
	}
	if s.Count == 0 {
		s.First, s.Last = l.durable+1, l.durable
	}
	var leaves, manifest []byte
	err := l.insist(func() (err error) { // the key may be elsewhere, and away
		leaves, manifest, err = l.opt.Sealer.Seal(s)
		return err
	})
	if err != nil {
		return fmt.Errorf("seal segment %d: %w", s.Index, err)
	}
	if err := l.storeSeal(s, leaves, manifest); err != nil {
		return err
	}
	if l.seg.file != nil {
		l.seg.file.Close() // fsynced after its last write
	}
	l.prev = manifest
	l.seg.next()
	if l.opt.OnSeal != nil {
		l.opt.OnSeal()
	}
	return nil
}

func (l *Log) storeSeal(s Segment, leaves, manifest []byte) error {
	if s.Count > 0 {
		err := l.insist(func() error { return l.writeFile(FileName(s.First, LeavesSuffix), leaves) })
		if err != nil {
			return err
		}
	}
	return l.insist(func() error { return l.writeFile(FileName(s.First, ManifestSuffix), manifest) })
}

// writeFile puts a whole file in place, durable when it returns. It can be repeated.
func (l *Log) writeFile(name string, data []byte) error {
	path := filepath.Join(l.dir, name)
	file, err := l.writeTemp(path, data)
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := l.opt.FS.Rename(path+tempSuffix, path); err != nil {
		return err
	}
	return l.opt.FS.SyncDir(l.dir)
}

func (l *Log) writeTemp(path string, data []byte) (File, error) {
	file, err := l.opt.FS.Create(path + tempSuffix)
	if err != nil {
		return nil, err
	}
	if err = writeAt(file, data, 0); err == nil {
		err = file.Sync()
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func writeAt(file File, data []byte, offset int64) error {
	n, err := file.WriteAt(data, offset)
	if err == nil && n < len(data) {
		err = &os.PathError{Op: "write", Err: io.ErrShortWrite}
	}
	return err
}
