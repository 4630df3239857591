package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// OwnerError reports a file or directory that is not used because other users can change it.
type OwnerError struct {
	Path string // what others can change
	Why  string
}

// Error implements error.
func (e *OwnerError) Error() string { return e.Path + " " + e.Why }

// Caller returns the user for whom the program acts: for root, the user who called sudo.
func Caller() int {
	uid := os.Geteuid()
	if sudo, err := strconv.Atoi(os.Getenv("SUDO_UID")); err == nil && uid == 0 {
		return sudo
	}
	return uid
}

// CallerName returns the name of Caller, or the number if there is no name.
func CallerName() string {
	uid := strconv.Itoa(Caller())
	if u, err := user.LookupId(uid); err == nil {
		return u.Username
	}
	return "uid " + uid
}

// UserName returns the name and the number of a user. A name can be given to another user later.
func UserName(uid int) string {
	number := strconv.Itoa(uid)
	if u, err := user.LookupId(number); err == nil {
		return fmt.Sprintf("%s (uid %s)", u.Username, number)
	}
	return "uid " + number
}

// maxLinks bounds the symbolic links on a path, as in the kernel.
const maxLinks = 40

// CheckOwner returns an *OwnerError unless the file at path, and every directory and link that leads to it, belongs to
// root or to Caller, and others cannot write to it: no group or other users to the file itself; not all users to a
// directory above it, unless only owners can remove files there (sticky). A missing file is fine.
func CheckOwner(path string, writers fs.FileMode) error {
	caller := Caller()
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	rest, at := parts(path), "/"
	for links := 0; ; {
		info, err := os.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if uid := int(info.Sys().(*syscall.Stat_t).Uid); uid != 0 && uid != caller {
			return &OwnerError{at, fmt.Sprintf("belongs to user %d, not to you", uid)}
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			if err := keptFromOthers(at, info.Mode(), writers, len(rest) == 0); err != nil || len(rest) == 0 {
				return err
			}
		} else {
			if links++; links > maxLinks {
				return &os.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
			}
			target, err := os.Readlink(at)
			if err != nil {
				return err
			}
			at = filepath.Dir(at)
			if filepath.IsAbs(target) {
				at = "/"
			}
			if rest = append(parts(target), rest...); len(rest) == 0 {
				rest = []string{"."}
			}
		}
		at, rest = filepath.Join(at, rest[0]), rest[1:] // at is no link: ".." is its parent
	}
}

// parts returns the elements of a path.
func parts(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == filepath.Separator })
}

func keptFromOthers(path string, mode, writers fs.FileMode, last bool) error {
	if last && mode.Perm()&writers == 0 || !last && (mode.Perm()&0o002 == 0 || mode&fs.ModeSticky != 0) {
		return nil
	}
	return &OwnerError{path, fmt.Sprintf("can be written by others (mode %04o)", mode.Perm())}
}
