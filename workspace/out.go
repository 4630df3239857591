package workspace

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// OutError means that files cannot be copied out to a directory.
type OutError struct {
	Dir  string
	Why  string
	hint string
}

// Error implements error.
func (e *OutError) Error() string { return "--out " + e.Dir + ": " + e.Why }

// Hint returns what to do about it.
func (e *OutError) Hint() string { return e.hint }

// CheckOut returns an error if files cannot or must not be copied out to dir. It tries to write there. home is $CUSTODY_HOME.
func CheckOut(dir, home string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &OutError{dir, "there is no such directory", "make it first: mkdir -p " + dir}
	case err != nil:
		return &OutError{dir, err.Error(), "give a directory that can be reached"}
	case !info.IsDir():
		return &OutError{dir, "it is not a directory", "give the directory that files are to be written to"}
	case len(below(home, dir)) > 0:
		return &OutError{dir, "it is in CUSTODY_HOME, whose files Custody trusts", "give another directory"}
	}
	if err := tryWriting(dir); err != nil {
		return &OutError{dir, fmt.Sprintf("nothing can be written there: %v", err), "give a writable directory, or free space"}
	}
	return nil
}

func tryWriting(dir string) error {
	f, err := os.OpenFile(dir, unix.O_TMPFILE|os.O_WRONLY, 0o600)
	if err != nil { // the file system may not support O_TMPFILE
		if f, err = os.OpenFile(filepath.Join(dir, ".custody-"+rand.Text()), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err != nil {
			return err
		}
		defer os.Remove(f.Name())
	}
	_, err = f.Write([]byte{0})
	return errors.Join(err, f.Close())
}
