// Package scratch makes scratch disks, the only disks that sandboxes can write to. A scratch disk is a sparse
// file without a name, which the kernel removes when the last process that has it open ends.
package scratch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// New returns an empty ext4 file system of size bytes, in a file in dir that has no name.
// The file system is made once for each size; the directory blanks contains them.
func New(ctx context.Context, dir, blanks string, size int64) (*os.File, error) {
	blank, err := blankDisk(ctx, blanks, size)
	if err != nil {
		return nil, fmt.Errorf("scratch disk: %w", err)
	}
	defer blank.Close()
	return Clone(dir, blank)
}

// Clone returns a copy of a disk, in a file in dir that has no name. Blocks of
// zeros become holes.
func Clone(dir string, disk *os.File) (*os.File, error) {
	info, err := disk.Stat()
	if err != nil {
		return nil, fmt.Errorf("scratch disk: %w", err)
	}
	f, err := os.OpenFile(dir, unix.O_TMPFILE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("scratch disk: %w", err)
	}
	if err := errors.Join(f.Truncate(info.Size()), Copy(f, disk)); err != nil {
		f.Close()
		return nil, fmt.Errorf("scratch disk: %w", err)
	}
	return f, nil
}

// Wipe overwrites the data of a disk with zeros, frees its space and closes it. No process may
// use the disk any longer.
func Wipe(f *os.File) error {
	zeros := make([]byte, 1<<20)
	err := Extents(f, func(off, n int64) error {
		for n > 0 {
			part := min(n, int64(len(zeros)))
			if _, err := f.WriteAt(zeros[:part], off); err != nil {
				return err
			}
			off, n = off+part, n-part
		}
		return nil
	})
	return errors.Join(err, f.Truncate(0), f.Close())
}

// blankDisk returns an empty file system of this size, and makes it if it does not exist.
func blankDisk(ctx context.Context, dir string, size int64) (*os.File, error) {
	path := filepath.Join(dir, fmt.Sprintf("%d.ext4", size))
	if f, err := os.Open(path); err == nil {
		return f, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	tmp, err := os.CreateTemp(dir, "new-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if err := tmp.Truncate(size); err != nil {
		return nil, err
	}
	// A small journal: without one, ext4 searches all recently deleted inodes for each new file.
	mkfs := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096",
		"-O", "^resize_inode,^metadata_csum", "-J", "size=8", "-E", "lazy_itable_init=1,nodiscard,root_owner=0:0", tmp.Name())
	mkfs.Env = []string{"PATH=/usr/sbin:/sbin:/usr/bin:/bin"}
	if out, err := mkfs.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "No space left on device") { // the caller can wait for room
			err = unix.ENOSPC
		}
		return nil, fmt.Errorf("mkfs.ext4 (package e2fsprogs): %w: %s", err, strings.TrimSpace(string(out)))
	}
	// mkfs writes megabytes of zeros, which every run would copy: make holes of them.
	slim, err := os.CreateTemp(dir, "new-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(slim.Name())
	if err := errors.Join(slim.Truncate(size), Copy(slim, tmp), slim.Close()); err != nil {
		return nil, err
	}
	if err := os.Rename(slim.Name(), path); err != nil {
		return nil, err
	}
	return os.Open(path)
}

const blockSize = 4096

// Copy copies the data of a sparse file to an empty one, block by block, and leaves holes for blocks of zeros.
func Copy(to, from *os.File) error {
	block, zero := make([]byte, blockSize), make([]byte, blockSize)
	return Extents(from, func(off, n int64) error {
		for end := off + n; off < end; off += blockSize {
			part := block[:min(blockSize, end-off)]
			if _, err := from.ReadAt(part, off); err != nil {
				return err
			}
			if bytes.Equal(part, zero[:len(part)]) {
				continue
			}
			if _, err := to.WriteAt(part, off); err != nil {
				return err
			}
		}
		return nil
	})
}

// Extents calls f with the offset and length, in bytes, of each part of a file that is not a hole.
func Extents(file *os.File, f func(off, n int64) error) error {
	fd, off := int(file.Fd()), int64(0)
	for {
		start, err := unix.Seek(fd, off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // only a hole up to the end
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(fd, start, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if err := f(start, end-start); err != nil {
			return err
		}
		off = end
	}
}
