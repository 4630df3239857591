package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/privsep"
)

// FS is the file system of a log whose directory is a Server's. Paths are below Dir. It is safe for concurrent use.
type FS struct{ conn *privsep.Conn }

var _ wal.FS = FS{}

// Dir is the path of the log's directory in an FS.
const Dir = "/log"

// New returns the file system of the log whose Server is at the other end of the connection.
func New(c *privsep.Conn) FS { return FS{c} }

// call makes a call that returns n files. It ends with the connection.
func (f FS) call(name string, args, result any, n int) ([]*os.File, error) {
	files, err := f.conn.Call(context.Background(), name, args, result)
	if err == nil && len(files) != n {
		err = fmt.Errorf("call %s returned %d descriptors in place of %d", name, len(files), n)
	}
	if err != nil {
		for _, file := range files {
			file.Close()
		}
		return nil, remoteError(err)
	}
	return files, nil
}

// remoteError returns an error of the server as the error that a local FS returns for it.
func remoteError(err error) error {
	e := new(privsep.RemoteError)
	if !errors.As(err, &e) {
		return err
	}
	for _, known := range []error{wal.ErrLocked, fs.ErrNotExist, unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EIO} {
		if strings.HasSuffix(e.Text, known.Error()) || known == fs.ErrNotExist && strings.HasSuffix(e.Text, unix.ENOENT.Error()) {
			return fmt.Errorf("%s%w", strings.TrimSuffix(strings.TrimSuffix(e.Text, known.Error()), unix.ENOENT.Error()), known)
		}
	}
	return err
}

// MkdirAll implements wal.FS.
func (f FS) MkdirAll(string) error {
	_, err := f.call(callMake, none{}, nil, 0)
	return err
}

// SyncDir implements wal.FS.
func (f FS) SyncDir(dir string) error {
	_, err := f.call(callSync, syncCall{Parent: dir != Dir}, nil, 0)
	return err
}

// ReadDir implements wal.FS.
func (f FS) ReadDir(string) (all []string, err error) {
	after := ""
	for {
		var some []string
		if _, err := f.call(callNames, namesCall{after}, &some, 0); err != nil {
			return nil, err
		}
		if all = append(all, some...); len(some) < maxNames {
			return all, nil
		}
		after = some[len(some)-1]
	}
}

// ReadFile implements wal.FS.
func (f FS) ReadFile(path string) ([]byte, error) {
	file, err := f.open(path, read)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}

func (f FS) open(path string, h how) (*os.File, error) {
	files, err := f.call(callOpen, openCall{filepath.Base(path), h}, nil, 1)
	if err != nil {
		return nil, err
	}
	return files[0], nil
}

// Create implements wal.FS.
func (f FS) Create(path string) (wal.File, error) { return f.file(path, replace) }

// Open implements wal.FS.
func (f FS) Open(path string) (wal.File, error) { return f.file(path, extend) }

// file returns a nil wal.File, not a nil *os.File, with an error.
func (f FS) file(path string, h how) (wal.File, error) {
	file, err := f.open(path, h)
	if err != nil {
		return nil, err
	}
	return file, nil
}

// Rename implements wal.FS. A log renames only temporary files to their final names.
func (f FS) Rename(from, to string) error {
	if from != to+wal.TempSuffix {
		return fmt.Errorf("rename %s to %s: %w", from, to, errors.ErrUnsupported)
	}
	_, err := f.call(callRename, renameCall{filepath.Base(to)}, nil, 0)
	return err
}

// Remove implements wal.FS.
func (f FS) Remove(path string) error {
	_, err := f.call(callRemove, nameCall{filepath.Base(path)}, nil, 0)
	return err
}

// Lock implements wal.FS. The server holds the lock.
func (f FS) Lock(string) (io.Closer, error) {
	if _, err := f.call(callLock, none{}, nil, 0); err != nil {
		return nil, err
	}
	return unlock(f), nil
}

// unlock releases the lock.
type unlock FS

// Close implements io.Closer.
func (u unlock) Close() error {
	_, err := FS(u).call(callUnlock, none{}, nil, 0)
	return err
}

// Frames yields the frames of the log, in order.
func (f FS) Frames() iter.Seq2[wal.Frame, error] { return wal.Frames(f, Dir) }
