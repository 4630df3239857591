package wal

import (
	"fmt"
	"time"
)

// active is the segment being written. Only the writer touches it.
type active struct {
	dir         directory
	index       uint64
	first, last uint64
	count       uint64
	size        int64 // durable bytes
	leaves      [][32]byte
	losses      Losses
	born        time.Time // when its first record became durable
	file        File
	suspect     bool // a write or fsync failed: whatever is behind size is unknown
	unnamed     bool // the directory has not been fsynced since file got its name
	cut         bool // recovery cut its tail, and the gap record that declares that belongs into it, however full it is
}

// add takes over the frames in chunk, which have become durable.
func (a *active) add(chunk []byte, now time.Time) {
	if a.count == 0 {
		a.born = now
	}
	for len(chunk) > 0 {
		n := frameSize(chunk)
		a.take(chunk[:n])
		chunk = chunk[n:]
	}
}

func (a *active) take(frame []byte) {
	f := Frame{Bytes: frame[recordAt:], body: frame[bodyAt:]}
	_, f.Seq, _ = parseHead(f.Bytes)
	a.takeFrame(f)
}

func (a *active) takeFrame(f Frame) {
	if a.count == 0 {
		a.first = f.Seq
		a.losses = Losses{}
	}
	a.last = f.Seq
	a.count++
	a.size += f.Size()
	a.leaves = append(a.leaves, f.Leaf())
	a.losses.Add(f.Bytes) // cannot fail: Seal encoded the record as an audit.Event
}

// next turns a into the segment after it.
func (a *active) next() {
	*a = active{dir: a.dir, index: a.index + 1, leaves: a.leaves[:0]}
}

// put makes chunk durable behind the durable bytes of the segment. It
// can be repeated after any failure: the same bytes go to the same place.
func (a *active) put(chunk []byte) error {
	if err := a.ready(chunk); err != nil {
		return err
	}
	a.suspect = true
	if err := writeAt(a.file, chunk, a.size); err != nil {
		return err
	}
	if err := a.file.Sync(); err != nil {
		return err
	}
	a.suspect = false
	return nil
}

// ready has the segment's file open, named durably and free of doubtful bytes.
func (a *active) ready(chunk []byte) error {
	switch {
	case a.file == nil:
		if err := a.open(chunk); err != nil {
			return err
		}
	case a.suspect && a.repair() != nil:
		if err := a.replace(); err != nil {
			return err
		}
	}
	if !a.unnamed {
		return nil
	}
	err := a.dir.fs.SyncDir(a.dir.path)
	a.unnamed = err != nil
	return err
}

func (a *active) path() string {
	return a.dir.file(FileName(a.first, SegmentSuffix))
}

func (a *active) open(chunk []byte) error {
	_, a.first, _ = parseHead(chunk[recordAt:frameSize(chunk)])
	file, err := a.dir.fs.Create(a.path())
	if err != nil {
		return err
	}
	a.file, a.unnamed = file, true
	return nil
}

// repair cuts the file back to its durable bytes. A failed fsync may have
// dropped pages and called them clean (fsyncgate), so nothing behind is trusted.
func (a *active) repair() error {
	if err := a.file.Truncate(a.size); err != nil {
		return err
	}
	if err := a.file.Sync(); err != nil {
		return err
	}
	a.suspect = false
	return nil
}

// replace moves the durable bytes to a new file, for when the old one cannot be
// cut back or its descriptor has gone bad.
func (a *active) replace() error {
	bytes, err := a.dir.fs.ReadFile(a.path())
	if err != nil {
		return err
	}
	if int64(len(bytes)) < a.size {
		return fmt.Errorf("%s: %d durable bytes, found %d", a.path(), a.size, len(bytes))
	}
	file, err := a.dir.writeTemp(a.path(), bytes[:a.size])
	if err != nil {
		return err
	}
	if err := a.dir.fs.Rename(a.path()+tempSuffix, a.path()); err != nil {
		file.Close()
		return err
	}
	a.file.Close() // from here on its file has no name
	a.file, a.suspect, a.unnamed = file, false, true
	return nil
}
