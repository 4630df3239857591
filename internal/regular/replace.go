package regular

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Replace writes a file whole or not at all. Links in the path of its directory are followed, as the
// user named it; a link in the file's own place is replaced. A device, a pipe or a directory in its place is not, nor a
// link to what a process has open, such as /dev/stdout: the error is a *TypeError.
func Replace(path string, write func(io.Writer) error) error {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return ReplaceIn(dir, filepath.Base(path), write)
}

// ReplaceIn writes a file in dir whole or not at all. Others may be able to make links there: none is followed.
// The file has no name until it is whole, so that a kill leaves nothing; where the file system
// knows no such files, it has another name.
func ReplaceIn(dir *os.Root, name string, write func(io.Writer) error) error {
	if err := replaceable(dir, name); err != nil {
		return err
	}
	part := name + "." + rand.Text() + ".part"
	f, err := dir.OpenFile(".", unix.O_TMPFILE|os.O_WRONLY, 0o600)
	unnamed := err == nil
	if !unnamed {
		f, err = dir.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	}
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Sync())
	if err == nil && unnamed {
		err = giveName(dir, f, part)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = dir.Rename(part, name)
	}
	if err != nil {
		dir.Remove(part) // an error: it has no name
	}
	return err
}

// replaceable reports whether what has the name, if there is anything, may be replaced by a file.
func replaceable(dir *os.Root, name string) error {
	info, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	kind := info.Mode().Type()
	if kind == fs.ModeSymlink {
		if to, err := dir.Readlink(name); err != nil || !strings.HasPrefix(to, "/proc/") {
			return err
		}
	}
	if kind != 0 {
		return &TypeError{Path: filepath.Join(dir.Name(), name), Type: kind}
	}
	return nil
}

// giveName names an open file that has none.
func giveName(dir *os.Root, f *os.File, name string) error {
	at, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer at.Close()
	err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), int(at.Fd()), name, unix.AT_SYMLINK_FOLLOW)
	return os.NewSyscallError("link", err)
}
