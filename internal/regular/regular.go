// Package regular opens regular files and refuses all else. The open of a FIFO or of a device that stands in the
// place of a file could wait forever, or do something.
package regular

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// TypeError is a file of another type in the place of a regular one.
type TypeError struct {
	Path string
	Type fs.FileMode // its type bits
}

// Error implements error.
func (e *TypeError) Error() string {
	return fmt.Sprintf("%s is not a regular file: %s", e.Path, kind(e.Type))
}

// Hint returns what to do about it.
func (e *TypeError) Hint() string { return "find out who put it there, and move it away" }

// Is has a file of another type count as one that cannot be valid (fs.ErrInvalid).
func (e *TypeError) Is(target error) bool { return target == fs.ErrInvalid }

func kind(t fs.FileMode) string {
	switch {
	case t&fs.ModeDir != 0:
		return "it is a directory"
	case t&fs.ModeNamedPipe != 0:
		return "it is a named pipe"
	case t&fs.ModeSocket != 0:
		return "it is a socket"
	case t&fs.ModeDevice != 0:
		return "it is a device"
	case t&fs.ModeSymlink != 0:
		return "it is a link that leads to no file"
	}
	return "it is something else"
}

// Open opens a regular file to read it. Symbolic links are followed.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY, 0) }

// OpenFile is os.OpenFile for regular files. What stands at path and is none is not opened,
// or if it appears just then, without waiting and without reading or writing.
func OpenFile(path string, flag int, perm fs.FileMode) (*os.File, error) {
	if err := Check(path); err != nil {
		return nil, err
	}
	return checked(path)(os.OpenFile(path, flag|unix.O_NONBLOCK, perm))
}

// Check returns a TypeError if something stands at path that is not a regular file, such as a link to nothing, or an
// endless one. Nothing at all is no error, and nothing is opened.
func Check(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return &TypeError{path, info.Mode().Type()}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ELOOP):
		if link, err := os.Lstat(path); err == nil && link.Mode().Type() == fs.ModeSymlink {
			return &TypeError{path, fs.ModeSymlink}
		}
	}
	return nil
}

// ReadFile reads a whole regular file.
func ReadFile(path string) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// WriteFile is os.WriteFile for regular files.
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	f, err := OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// FS is the file system of a root in which only regular files and directories can be opened.
func FS(root *os.Root) fs.FS { return rootFS{root, root.FS()} }

type rootFS struct {
	root *os.Root
	fs.FS
}

// Open implements fs.FS.
func (r rootFS) Open(name string) (fs.File, error) {
	info, err := r.root.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return r.FS.Open(name)
	case !info.Mode().IsRegular():
		return nil, &TypeError{name, info.Mode().Type()}
	}
	f, err := checked(name)(r.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0))
	if err != nil {
		return nil, err
	}
	return f, nil
}

// ReadDir implements fs.ReadDirFS.
func (r rootFS) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(r.FS, name) }

// checked returns what looks at an opened file, which may be another than the one before.
func checked(name string) func(*os.File, error) (*os.File, error) {
	return func(f *os.File, err error) (*os.File, error) {
		if errors.Is(err, unix.ENXIO) { // a FIFO that no one reads
			return nil, &TypeError{name, fs.ModeNamedPipe}
		}
		if err != nil {
			return nil, err
		}
		info, err := f.Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = &TypeError{name, info.Mode().Type()}
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		return f, nil
	}
}

// DatabaseFiles are the paths that SQLite opens for a database: itself, its write-ahead log with the index of that, and
// the journal of other modes, which SQLite looks for in each mode.
func DatabaseFiles(path string) []string {
	return []string{path, path + "-wal", path + "-shm", path + "-journal"}
}

// CheckDatabase is Check for each of DatabaseFiles. SQLite would wait for a writer of a FIFO.
func CheckDatabase(path string) error {
	for _, file := range DatabaseFiles(path) {
		if err := Check(file); err != nil {
			return err
		}
	}
	return nil
}
