package state

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/vmm/scratch"
)

// span is a range of bytes of a file, in whole pages.
type span struct{ at, end int64 }

// dataSpans returns the pages below size that are outside of the holes of at least one of the files. A file can be nil.
func dataSpans(size int64, files ...*os.File) ([]span, error) {
	var all []span
	for _, f := range files {
		if f == nil {
			continue
		}
		err := scratch.Extents(f, func(at, n int64) error {
			s := span{at - at%PageSize, min((at+n+PageSize-1)/PageSize*PageSize, size)}
			if s.at < s.end {
				all = append(all, s)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.at, b.at) })
	merged := all[:0]
	for _, s := range all {
		if last := len(merged) - 1; last >= 0 && s.at <= merged[last].end {
			merged[last].end = max(merged[last].end, s.end)
		} else {
			merged = append(merged, s)
		}
	}
	return merged, nil
}

// fill makes an empty file a sparse copy of the first size bytes of base, and shares their blocks where the file system can.
func fill(ctx context.Context, to, base *os.File, size int64) error {
	info, err := base.Stat()
	if err != nil {
		return err
	}
	if info.Size() <= size && unix.IoctlFileClone(int(to.Fd()), int(base.Fd())) == nil {
		return to.Truncate(size)
	}
	if err := to.Truncate(size); err != nil {
		return err
	}
	spans, err := dataSpans(min(size, info.Size()), base)
	for _, s := range spans {
		for at := s.at; at < s.end && err == nil; at += chunkData {
			err = errors.Join(ctx.Err(), copyRange(to, base, at, min(chunkData, s.end-at)))
		}
	}
	return err
}

// copyRange copies bytes of base to the same place, in the kernel if the file systems can.
func copyRange(to, base *os.File, at, n int64) error {
	for n > 0 {
		from, dest := at, at
		copied, err := unix.CopyFileRange(int(base.Fd()), &from, int(to.Fd()), &dest, int(n), 0)
		if err != nil || copied == 0 {
			break
		}
		at, n = at+int64(copied), n-int64(copied)
	}
	if n == 0 {
		return nil
	}
	_, err := io.Copy(io.NewOffsetWriter(to, at), io.NewSectionReader(base, at, n))
	return err
}
