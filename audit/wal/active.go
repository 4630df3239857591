package wal

import (
	"fmt"
	"time"
)

// active is the segment being written. Only the writer goroutine uses it.
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
	suspect     bool // a write or fsync failed: the bytes after size are unknown
	unnamed     bool // the directory has not been fsynced since file got its name
	cut         bool // recovery cut its tail: the gap record that declares the loss belongs in this segment, even if it is full
}

// add accounts for the frames in chunk, which are durable.
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

// next turns a into the following segment.
func (a *active) next() {
	*a = active{dir: a.dir, index: a.index + 1, leaves: a.leaves[:0]}
}

// put makes chunk durable after the durable bytes of the segment. It
// can be repeated after any failure: it writes the same bytes at the same offset.
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

// ready opens the segment's file, makes its name durable and removes bytes of unknown state.
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

// repair truncates the file to its durable bytes. After a failed fsync the kernel may have
// dropped dirty pages and marked them clean (fsyncgate), so the bytes after them are not trusted.
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

// replace copies the durable bytes to a new file, if the old one cannot be
// truncated or its descriptor fails.
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
	if err := a.dir.fs.Rename(a.path()+TempSuffix, a.path()); err != nil {
		file.Close()
		return err
	}
	a.file.Close() // its file no longer has a name
	a.file, a.suspect, a.unnamed = file, false, true
	return nil
}
