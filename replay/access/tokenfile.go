package access

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/flock"
	"github.com/custody-project/custody/internal/regular"
)

// UnsafeFileError is a file of tokens that others than its directory's owner could have read or written.
type UnsafeFileError struct {
	Path string
	Mode fs.FileMode
	UID  uint32 // of its owner
}

// Error implements error.
func (e *UnsafeFileError) Error() string {
	return fmt.Sprintf("%s has the mode %v and belongs to the user %d: others could have made themselves tokens", e.Path, e.Mode, e.UID)
}

// Hint returns what to do about it.
func (e *UnsafeFileError) Hint() string {
	return "it must be a file of mode 600, owned by the owner of its directory; find out who changed it, and chmod or remove it"
}

func readTokens(path string) (tokenFile, stamp, error) {
	file, err := regular.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return tokenFile{}, stamp{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return tokenFile{}, stamp{}, err
	}
	st := stampFrom(info)
	owner := ownerOf(info)
	if info.Mode().Perm()&0o077 != 0 || !info.Mode().IsRegular() || !mayOwn(owner, filepath.Dir(path)) {
		return tokenFile{}, st, &UnsafeFileError{path, info.Mode(), owner}
	}
	var data bytes.Buffer
	if _, err := data.ReadFrom(file); err != nil {
		return tokenFile{}, st, fmt.Errorf("read tokens: %w", err)
	}
	f, err := parseTokens(data.Bytes())
	if err != nil {
		err = fmt.Errorf("read %s: %w", path, err)
	}
	return f, st, err
}

// mayOwn reports whether a user's file of tokens is to be believed: root's, this process's user's, and
// that of who owns the directory, who could put any file there.
func mayOwn(uid uint32, dir string) bool {
	info, err := os.Stat(dir)
	return uid == 0 || uid == uint32(os.Geteuid()) || err == nil && uid == ownerOf(info)
}

func ownerOf(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

// parseTokens reads what change wrote. All of it must be right: half of a file of tokens is none.
func parseTokens(data []byte) (tokenFile, error) {
	var f tokenFile
	if err := strictJSON(bytes.NewReader(data), &f); err != nil {
		return tokenFile{}, err
	}
	if f.Version != 1 || len(f.Tokens) > maxTokens {
		return tokenFile{}, fmt.Errorf("version %d with %d tokens: want version 1, and at most %d", f.Version, len(f.Tokens), maxTokens)
	}
	ids := map[string]bool{}
	for i := range f.Tokens {
		k := &f.Tokens[i]
		if err := k.check(); err != nil {
			return tokenFile{}, fmt.Errorf("token %.20q: %w", k.ID, err)
		}
		if ids[k.ID] {
			return tokenFile{}, fmt.Errorf("duplicate token %.20q", k.ID)
		}
		ids[k.ID] = true
	}
	return f, nil
}

func (k *kept) check() error {
	sum, err := hex.DecodeString(k.SHA256)
	if err != nil || len(sum) != len(k.sum) {
		return errors.New("sha256 is not one")
	}
	k.sum = digest(sum)
	if k.ID == "" || !validName(k.Name) || k.Expires.IsZero() {
		return errors.New("id, name or expiry is missing")
	}
	return Grant{k.Tenant, k.Role}.check()
}

func stampOf(path string) (stamp, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return stamp{}, err
	}
	return stampFrom(info), nil
}

// statThrough is stampOf of what a symbolic link leads to: that is how some put certificates into place.
func statThrough(path string) (stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}, err
	}
	return stampFrom(info), nil
}

func stampFrom(info fs.FileInfo) stamp {
	s := info.Sys().(*syscall.Stat_t)
	return stamp{s.Ino, s.Size, unix.Timespec(s.Mtim), unix.Timespec(s.Ctim)}
}

// lockFile takes the lock that processes share. The kernel releases it when its holder dies.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := regular.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock.Lock(ctx, f, unix.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// stamp tells one version of a file from another. A version is a file of its own: see durable.Replace.
type stamp struct {
	ino          uint64
	size         int64
	mtime, ctime unix.Timespec
}
