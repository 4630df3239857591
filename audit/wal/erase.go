package wal

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/internal/flock"
	"github.com/custody-project/custody/internal/regular"
)

// Errors of Erase.
var (
	ErrNoRecord = errors.New("the log has no record with that seq")
	ErrUnsealed = errors.New("the record's segment is not sealed yet: erase it when it is, or when the run is recovered")
	ErrKept     = errors.New("the record declares what the log lost: without it the run would not verify")
)

// Erase permanently removes the contents of the record seq in the run's directory. Its
// frame, its length and its leaf stay, so that the segment's root, its manifest
// and all offsets remain valid. The record must be in a sealed segment; the run may
// be live. Erasing a record again is not an error. After an error the record is unchanged, or
// erased with an old copy not yet overwritten; another call of Erase or CompleteErase
// completes the erasure.
//
//	N.seg (old) --> N.erased written, fsynced
//	            --> N.erasing = second name of the old file
//	            --> N.erased renamed to N.seg       <- from here on the record is erased
//	            --> the frame overwritten in N.erasing, fsynced, N.erasing removed
//
// Each step is durable before the next. A crash leaves either the old or the new
// segment, never a mixture. Overwriting the old file is
// all that a program can do about its blocks: a copy-on-write file system,
// a snapshot, a backup and the spare cells of an SSD keep the old bytes, and so do
// shipped segments and bundles. ctx bounds the wait for another process that erases.
func Erase(ctx context.Context, dir string, seq uint64) error {
	err := exclusive(ctx, dir, func() error {
		if err := completeErase(dir); err != nil {
			return err
		}
		return erase(dir, seq)
	})
	if err != nil {
		return fmt.Errorf("erase seq %d: %w", seq, err)
	}
	return nil
}

// CompleteErase completes the Erase of a process that died. If there is none, it
// only lists the directory.
func CompleteErase(ctx context.Context, dir string) error {
	err := exclusive(ctx, dir, func() error { return completeErase(dir) })
	if err != nil {
		return fmt.Errorf("complete erasure in %s: %w", dir, err)
	}
	return nil
}

// exclusive runs f while no other process erases in dir. The lock is on the
// directory itself: the one in it belongs to the process that writes the run.
func exclusive(ctx context.Context, dir string, f func() error) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := flock.Lock(ctx, d, unix.LOCK_EX); err != nil {
		return err
	}
	return f()
}

func erase(dir string, seq uint64) error {
	first, err := segmentOf(dir, seq)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, FileName(first, SegmentSuffix))
	data, err := regular.ReadFile(path)
	if err != nil {
		return err
	}
	leaves, err := regular.ReadFile(filepath.Join(dir, FileName(first, LeavesSuffix)))
	if err != nil {
		return err
	}
	f, err := find(path, data, leaves, seq)
	if err != nil || f.Erased {
		return err
	}
	putErased(data[f.Offset:f.Offset+f.Size()], f)
	return replaceSegment(dir, first, data)
}

// segmentOf returns the first seq of the sealed segment in which seq can be.
func segmentOf(dir string, seq uint64) (first uint64, err error) {
	names, err := Disk{}.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, name := range names { // sorted, and so are the seqs in them
		if n, ok := ParseName(name, SegmentSuffix); ok && n <= seq {
			first = n
		}
	}
	if first == 0 {
		return 0, ErrNoRecord
	}
	if !slices.Contains(names, FileName(first, ManifestSuffix)) {
		return 0, ErrUnsealed
	}
	return first, nil
}

// find returns the frame of seq in a segment that is complete and matches its leaves.
func find(path string, data, leaves []byte, seq uint64) (found Frame, err error) {
	r := NewReader(filepath.Base(path), bytes.NewReader(data))
	for i := 0; r.Offset() < int64(len(data)); i++ {
		f, err := r.Next()
		if err != nil {
			return Frame{}, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if leaf := f.Leaf(); len(leaves) < 32*(i+1) || !bytes.Equal(leaves[32*i:32*(i+1)], leaf[:]) {
			return Frame{}, fmt.Errorf("%w: seq %d in %s does not match the sealed leaf", ErrDamaged, f.Seq, filepath.Base(path))
		}
		if f.Seq == seq {
			found = f
		}
	}
	switch {
	case found.Seq == 0:
		return Frame{}, ErrNoRecord
	case declaresLoss(found.Bytes):
		return Frame{}, ErrKept
	}
	return found, nil
}

// declaresLoss reports whether record is a gap of the host's. The guest chooses a guest gap's contents, so it must be
// possible to erase that.
func declaresLoss(record []byte) bool {
	var r audit.Record
	return json.Unmarshal(record, &r) == nil && r.Kind == audit.KindGap && r.Observer == audit.Host
}

// replaceSegment replaces a segment by data of the same length.
func replaceSegment(dir string, first uint64, data []byte) error {
	path := filepath.Join(dir, FileName(first, SegmentSuffix))
	fresh, old := filepath.Join(dir, FileName(first, erasedSuffix)), filepath.Join(dir, FileName(first, erasingSuffix))
	if err := writeLike(path, fresh, data); err != nil {
		return err
	}
	// Without hard links the old file is overwritten too, but not after a crash.
	last, err := regular.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer last.Close()
	if err := os.Link(path, old); err != nil && !linkless(err) {
		return err
	}
	if err := (Disk{}).SyncDir(dir); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	if err := (Disk{}).SyncDir(dir); err != nil {
		return err
	}
	if err := overwrite(last, data); err != nil {
		return err
	}
	return forget(dir, old)
}

func linkless(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
}

// writeLike writes data durably to a new file with mode and owner of another.
func writeLike(like, path string, data []byte) error {
	info, err := os.Stat(like)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if st, ok := info.Sys().(*syscall.Stat_t); ok && err == nil {
		err = f.Chown(int(st.Uid), int(st.Gid))
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// overwrite gives the old file the new bytes, so that processes that still read it find frames.
func overwrite(old *os.File, data []byte) error {
	if _, err := old.WriteAt(data, 0); err != nil {
		return err
	}
	return old.Sync()
}

// leftOfErase reports whether name is that of a file which Erase removes before it returns.
func leftOfErase(name string) bool {
	return strings.HasSuffix(name, erasedSuffix) || strings.HasSuffix(name, erasingSuffix)
}

// completeErase completes or undoes an interrupted Erase. The caller holds the lock.
func completeErase(dir string) error {
	names, err := Disk{}.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if _, ok := ParseName(name, erasedSuffix); ok {
			err = forget(dir, path) // it was not renamed into place
		}
		if first, ok := ParseName(name, erasingSuffix); ok && err == nil {
			err = completeOne(dir, first, path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// completeOne overwrites the old file if the new one is in its place, and
// removes its second name.
func completeOne(dir string, first uint64, old string) error {
	path := filepath.Join(dir, FileName(first, SegmentSuffix))
	is, err := os.Stat(old)
	if err != nil {
		return err
	}
	segment, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist): // retention has removed the segment since
		if err := zero(old, is.Size()); err != nil {
			return err
		}
	case err != nil:
		return err
	case os.SameFile(is, segment): // the rename did not happen
	default:
		// The rename may not be durable yet, and the next step overwrites the old file.
		if err := (Disk{}).SyncDir(dir); err != nil {
			return err
		}
		if err := overwriteWith(old, path); err != nil {
			return err
		}
	}
	return forget(dir, old)
}

func overwriteWith(old, path string) error {
	data, err := regular.ReadFile(path)
	if err != nil {
		return err
	}
	f, err := regular.OpenFile(old, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(overwrite(f, data), f.Close())
}

func zero(path string, size int64) error {
	f, err := regular.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(overwrite(f, make([]byte, size)), f.Close())
}

// forget durably removes a name.
func forget(dir, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return Disk{}.SyncDir(dir)
}

// putErased writes the frame of an erased record to dst. dst is as long as f.
func putErased(dst []byte, f Frame) {
	leaf := f.Leaf()
	clear(dst[bodyAt:])
	copy(dst, erasedMark)
	body := dst[bodyAt:]
	copy(body, leaf[:])
	binary.LittleEndian.PutUint64(body[32:], f.Seq)
	body[40] = byte(len(f.Run))
	copy(body[41:], f.Run) // fits: the record's head alone is longer
	binary.LittleEndian.PutUint32(dst[8:], checksum(dst))
}

// parseErased is the inverse of putErased for a frame's body.
func parseErased(body []byte) (run []byte, seq uint64, leaf [32]byte, ok bool) {
	if len(body) < 41 || len(body) < 41+int(body[40]) {
		return nil, 0, leaf, false
	}
	copy(leaf[:], body)
	seq = binary.LittleEndian.Uint64(body[32:])
	run, rest := body[41:41+int(body[40])], body[41+int(body[40]):]
	blank := bytes.Count(rest, []byte{0}) == len(rest)
	return run, seq, leaf, seq > 0 && validRun(string(run)) && blank
}
