package template

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/vmm/scratch"
)

const sparseBlock = 64 << 10

// makeSparse replaces blocks of zeros in a file with holes, and returns the file's digest. The
// guest's kernel zeroes all free memory once (init_on_free), and so writes to most of a memory
// file; with holes, free memory occupies no disk space.
func makeSparse(ctx context.Context, path string) (string, error) {
	f, err := regular.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return sparseDigest(ctx, f, func(at, n int64) error {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, n)
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) { // without holes the file only occupies more space
			return fmt.Errorf("make holes in %s: %w", path, err)
		}
		return nil
	})
}

// hashSparse returns the digest of a file that may have holes.
func hashSparse(ctx context.Context, path string) (string, error) {
	f, err := regular.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return sparseDigest(ctx, f, func(int64, int64) error { return nil })
}

// sparseDigest returns the SHA-256 over the offset, length (64 bits each, big endian) and bytes of each block that
// is not all zeros, followed by the file's size. The digest depends only on the bytes, not on
// where the holes are, and holes are not read. sparseDigest calls zeros for each block of zeros outside of holes.
func sparseDigest(ctx context.Context, f *os.File, zeros func(at, n int64) error) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	block, zero := make([]byte, sparseBlock), make([]byte, sparseBlock)
	done := int64(0) // where the next block begins
	err = scratch.Extents(f, func(off, n int64) error {
		for at := max(done, off-off%sparseBlock); at < off+n; at += sparseBlock {
			if err := ctx.Err(); err != nil {
				return err
			}
			part := block[:min(sparseBlock, info.Size()-at)]
			if _, err := f.ReadAt(part, at); err != nil {
				return err
			}
			done = at + sparseBlock
			if bytes.Equal(part, zero[:len(part)]) {
				if err := zeros(at, int64(len(part))); err != nil {
					return err
				}
				continue
			}
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(at)))
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
			h.Write(part)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(info.Size())))
	return hex.EncodeToString(h.Sum(nil)), nil
}
