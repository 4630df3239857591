package gvisor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
)

// hashLimit bounds the time in which the files of one step are hashed. A sparse file takes no space on the
// disk, and its size has no bound.
const hashLimit = 30 * time.Second

// events calls emit with a description of each change, in their order. Files larger than hashOver bytes are hashed, smaller ones
// first, so that one of enormous size leaves only itself without a hash.
func (c *changes) events(ctx context.Context, list []change, hashOver int64, emit func(*audit.File) error) error {
	limited, cancel := context.WithTimeoutCause(ctx, hashLimit, fmt.Errorf("the files of the step were not hashed within %s", hashLimit))
	defer cancel()
	var hashed []int
	for i, ch := range list {
		if ch.op == audit.FileWrite && (hashOver <= 0 || ch.stamp.size > hashOver) {
			hashed = append(hashed, i)
		}
	}
	slices.SortStableFunc(hashed, func(a, b int) int { return cmp.Compare(list[a].stamp.size, list[b].stamp.size) })
	type result struct {
		sum string
		err error
	}
	hashes := make(map[int]result, len(hashed))
	for _, i := range hashed {
		sum, err := c.hash(limited, list[i])
		hashes[i] = result{sum, err}
	}
	for i, ch := range list {
		f := describe(ch)
		h := hashes[i]
		if f.SHA256 = h.sum; h.err != nil {
			f.Unhashed = h.err.Error()
		}
		if err := emit(f); err != nil {
			return err
		}
	}
	return nil
}

func describe(ch change) *audit.File {
	f := &audit.File{Op: ch.op, Path: audit.Text("/" + ch.path)}
	if ch.op == audit.FileDelete {
		return f
	}
	f.Device = fmt.Sprintf("%d:%d", unix.Major(ch.dev), unix.Minor(ch.dev))
	f.Inode = strconv.FormatUint(ch.stamp.inode, 10)
	if ch.op == audit.FileWrite {
		f.Size = ch.stamp.size
	}
	return f
}

// hash reads the file that was found, and no other. A step's processes have ended.
func (c *changes) hash(ctx context.Context, ch change) (string, error) {
	fd, err := openBeneath(c.upper, ch.path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOATIME)
	if err != nil {
		return "", fmt.Errorf("open: %w", err)
	}
	file := os.NewFile(uintptr(fd), ch.path)
	defer file.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", fmt.Errorf("stat: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Ino != ch.stamp.inode {
		return "", errors.New("another file is at its path")
	}
	h := sha256.New()
	if _, err := io.Copy(h, untilDone{ctx, file}); err != nil {
		return "", fmt.Errorf("read: %w", err)
	}
	after := st
	if err := unix.Fstat(fd, &after); err != nil {
		return "", fmt.Errorf("stat: %w", err)
	}
	if after.Mtim != st.Mtim || after.Ctim != st.Ctim || after.Size != st.Size {
		return "", errors.New("it changed while it was read")
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// untilDone is a reader that fails once ctx is done.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(b []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(b)
}
