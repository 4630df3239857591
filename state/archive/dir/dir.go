// Package dir keeps the objects of an archive as files in a directory, which can be on a file system that several hosts share.
package dir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/state/archive"
)

// The name of a file that is being written is tempPrefix, the name that it will get, tempMark and random text. Its process has a flock on it.
const (
	tempPrefix = ".part-"
	tempMark   = "~"
)

// Dir is the path of a directory. The name of an object is the path of its file.
type Dir string

var _ archive.Objects = Dir("")

// New returns the objects in a directory, which it creates.
func New(dir string) (Dir, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	info, err := os.Stat(dir)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = fmt.Errorf("%s has mode %#o, and other users can enter it: chmod 700 it", dir, info.Mode().Perm())
	}
	return Dir(dir), err
}

func (d Dir) path(name string) (string, error) {
	if !filepath.IsLocal(name) || filepath.Clean(name) != name || strings.HasPrefix(filepath.Base(name), ".") || strings.ContainsAny(name, "*?[~\\") {
		return "", fmt.Errorf("%.200q is not the name of an object", name)
	}
	return filepath.Join(string(d), name), nil
}

// Put implements archive.Objects. The file gets its name when it is complete and synced.
func (d Dir) Put(ctx context.Context, name string, r io.Reader) error {
	path, err := d.path(name)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := d.makeDir(dir); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, tempPrefix+filepath.Base(path)+tempMark+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	defer os.Remove(f.Name())
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err // a process that cleans has it, and removes it
	}
	if _, err := io.Copy(f, untilDone{ctx, r}); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return archive.ErrExists
		}
		return err
	}
	return durable.SyncDir(dir)
}

// makeDir creates the directory of an object durably.
func (d Dir) makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for ; len(dir) > len(d); dir = filepath.Dir(dir) {
		if err := durable.SyncDir(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	return nil
}

// Get implements archive.Objects.
func (d Dir) Get(_ context.Context, name string) (io.ReadCloser, int64, error) {
	path, err := d.path(name)
	if err != nil {
		return nil, 0, err
	}
	f, err := regular.Open(path)
	if err != nil {
		return nil, 0, notFound(err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// Stat implements archive.Objects.
func (d Dir) Stat(_ context.Context, name string) (archive.Object, error) {
	path, err := d.path(name)
	if err != nil {
		return archive.Object{}, err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return archive.Object{}, notFound(err)
	}
	return archive.Object{Name: name, Size: info.Size(), Stored: info.ModTime()}, nil
}

func notFound(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return archive.ErrNotFound
	}
	return err
}

// List implements archive.Objects. prefix ends with a slash.
func (d Dir) List(ctx context.Context, prefix string, f func(archive.Object) error) error {
	path, err := d.path(strings.TrimSuffix(prefix, "/"))
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || !e.Type().IsRegular() {
			continue
		}
		o, err := d.Stat(ctx, prefix+e.Name())
		if err == nil {
			err = errors.Join(ctx.Err(), f(o))
		}
		if err != nil && !errors.Is(err, archive.ErrNotFound) { // it was removed meanwhile
			return err
		}
	}
	return nil
}

// Delete implements archive.Objects.
func (d Dir) Delete(_ context.Context, name string) error {
	path, err := d.path(name)
	if err != nil {
		return err
	}
	err = ignoreGone(os.Remove(path))
	for _, temp := range temps(path) {
		err = errors.Join(err, ignoreGone(cleanTemp(temp)))
	}
	return errors.Join(err, ignoreGone(durable.SyncDir(filepath.Dir(path))))
}

// temps lists the files that will get this path.
func temps(path string) []string {
	list, _ := filepath.Glob(filepath.Join(filepath.Dir(path), tempPrefix+filepath.Base(path)+tempMark+"*")) // the pattern is valid
	return list
}

// Rest implements archive.Objects.
func (d Dir) Rest(ctx context.Context, name string) (rest []string, err error) {
	path, err := d.path(name)
	if err != nil {
		return nil, err
	}
	switch _, err = os.Lstat(path); {
	case err == nil:
		rest = append(rest, "file "+path)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	for _, temp := range temps(path) {
		rest = append(rest, "file "+temp+", which a process writes")
	}
	return rest, nil
}

// Clean implements archive.Objects. The flock of a file shows that its process lives, so its age does not matter.
func (d Dir) Clean(ctx context.Context, _ time.Time) error {
	var temps []string
	err := filepath.WalkDir(string(d), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && strings.HasPrefix(e.Name(), tempPrefix) {
			temps = append(temps, path)
		}
		return errors.Join(ignoreGone(err), ctx.Err())
	})
	for _, path := range temps {
		err = errors.Join(err, ignoreGone(cleanTemp(path)))
	}
	return err
}

// cleanTemp removes a file that no process writes.
func cleanTemp(path string) error {
	f, err := regular.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil
		}
		return err
	}
	return os.Remove(path)
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// untilDone reads until ctx ends.
type untilDone struct {
	ctx context.Context
	io.Reader
}

// Read implements io.Reader.
func (u untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.Reader.Read(p)
}
