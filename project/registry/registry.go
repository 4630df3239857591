// Package registry keeps the project files that an admin has registered on a host, in all their versions.
//
// Each project has a directory. Its version N is N.yaml, the file's exact bytes, and N.json, which describes them;
// N.withdrawn, if it exists, names who withdrew the version. N.json is written last and atomically: a version without it does
// not exist. The newest version is in force unless it was withdrawn. Versions are not changed or removed.
//
//	none --Apply--> 1 in force --Apply--> 2 in force --Withdraw--> 2 withdrawn --Apply--> 3 in force
//
// One process at a time writes, under a lock of the registry's directory. Readers take no lock.
package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/project"
)

// Registry is the directory of a host's registered projects. The directory above it must exist.
type Registry struct{ Dir string }

// Change is who changed the registry, and when.
type Change struct {
	Author string    `json:"author"`
	UID    int       `json:"uid"`
	Time   time.Time `json:"time"`
}

// Version describes a version of a registered project.
type Version struct {
	Project string `json:"project"`
	Number  uint64 `json:"version"`
	Digest  string `json:"digest"` // of the file's bytes: sha256- and hexadecimal digits
	Change
	Withdrawn *Change `json:"withdrawn,omitempty"` // nil: it was not
}

// Registered is a version with its file.
type Registered struct {
	Version
	Path string // where its bytes are
	Text []byte
	File project.File
}

// ErrUnknown reports that no project of a name is registered.
var ErrUnknown = errors.New("no such project is registered")

// WithdrawnError reports that a project was withdrawn, so that no run can begin under its name.
type WithdrawnError struct{ Version Version }

// Error implements error.
func (e *WithdrawnError) Error() string {
	w := e.Version.Withdrawn
	return fmt.Sprintf("the project %s was withdrawn by %s at %s", e.Version.Project, w.Author, w.Time.Format(time.RFC3339))
}

// Hint returns what to do about it.
func (e *WithdrawnError) Hint() string {
	return "no run can begin under its name until an admin registers it again: custody project apply FILE"
}

// DamagedError is a part of the registry that cannot be trusted or read.
type DamagedError struct {
	Path string
	Err  error
}

// Error implements error.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("the registered projects cannot be used: %s: %v", e.Path, e.Err)
}

// Unwrap returns what is wrong with it.
func (e *DamagedError) Unwrap() error { return e.Err }

// Name is the name of the problem in custody fsck.
func (e *DamagedError) Name() string { return "project-damaged" }

// Hint returns what to do about it.
func (e *DamagedError) Hint() string {
	return "find out who changed it; the access log (custody runs --access) has the digest of each registered version"
}

// The endings of a version's files.
const (
	textEnd      = ".yaml"
	versionEnd   = ".json"
	withdrawnEnd = ".withdrawn"
	tempEnd      = ".tmp" // see durable.Replace
)

// Current returns the version of a project that is in force. The error is ErrUnknown if the project is not registered, and
// a WithdrawnError if it was withdrawn.
func (r Registry) Current(name string) (Registered, error) {
	list, err := r.History(name)
	if err != nil {
		return Registered{}, err
	}
	if last := list[len(list)-1]; last.Withdrawn != nil {
		return Registered{}, &WithdrawnError{last}
	}
	return r.read(list[len(list)-1])
}

// Read returns a version of a project, which may be withdrawn.
func (r Registry) Read(name string, number uint64) (Registered, error) {
	list, err := r.History(name)
	if err != nil {
		return Registered{}, err
	}
	if number < 1 || number > uint64(len(list)) {
		return Registered{}, fmt.Errorf("the project %s has no version %d: its newest is %d", name, number, len(list))
	}
	return r.read(list[number-1])
}

func (r Registry) read(v Version) (Registered, error) {
	path := r.file(v.Project, v.Number, textEnd)
	text, err := r.text(v, path)
	if err != nil {
		return Registered{}, err
	}
	f, err := project.Parse(path, text)
	if err != nil {
		return Registered{}, err
	}
	return Registered{Version: v, Path: path, Text: text, File: f}, nil
}

// text returns the bytes of a version, which are at path.
func (r Registry) text(v Version, path string) ([]byte, error) {
	err := r.checkOwner(path, 0)
	var text []byte
	if err == nil {
		text, err = regular.ReadFile(path)
	}
	if err == nil && digest(text) != v.Digest {
		err = errors.New("its bytes are not those that were registered")
	}
	if err != nil {
		return nil, &DamagedError{path, err}
	}
	return text, nil
}

// Projects returns the newest version of each project, in the order of their names.
func (r Registry) Projects() ([]Version, error) {
	entries, err := os.ReadDir(r.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Version
	for _, e := range entries {
		list, err := r.History(e.Name())
		switch {
		case errors.Is(err, ErrUnknown):
		case err != nil:
			return nil, err
		default:
			all = append(all, list[len(list)-1])
		}
	}
	return all, nil
}

// History returns all versions of a project, oldest first. The error is ErrUnknown if there is none.
func (r Registry) History(name string) ([]Version, error) {
	unknown := fmt.Errorf("%.80q: %w", name, ErrUnknown)
	if !project.ValidName(name) {
		return nil, unknown
	}
	dir := filepath.Join(r.Dir, name)
	for _, path := range []string{r.Dir, dir} {
		if err := r.checkOwner(path, fs.ModeDir); errors.Is(err, fs.ErrNotExist) {
			return nil, unknown
		} else if err != nil {
			return nil, &DamagedError{path, err}
		}
	}
	numbers, err := numbersIn(dir)
	if err != nil {
		return nil, &DamagedError{dir, err}
	}
	var list []Version
	for i, n := range numbers {
		v, err := r.version(name, n)
		if err == nil && n != uint64(i+1) {
			err = fmt.Errorf("version %d is missing", i+1)
		}
		if err != nil {
			return nil, &DamagedError{r.file(name, n, versionEnd), err}
		}
		list = append(list, v)
	}
	if len(list) == 0 {
		return nil, unknown
	}
	return list, nil
}

// numbersIn returns the numbers of the versions in a directory, in order.
func numbersIn(dir string) (numbers []uint64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		text, is := strings.CutSuffix(e.Name(), versionEnd)
		if !is {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil || n == 0 || strconv.FormatUint(n, 10) != text {
			return nil, fmt.Errorf("%q is not the name of a version", e.Name())
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers, nil
}

func (r Registry) version(name string, n uint64) (v Version, err error) {
	if err := r.load(r.file(name, n, versionEnd), &v); err != nil {
		return v, err
	}
	if v.Project != name || v.Number != n {
		return v, fmt.Errorf("it describes version %d of %.80q", v.Number, v.Project)
	}
	v.Withdrawn = new(Change)
	err = r.load(r.file(name, n, withdrawnEnd), v.Withdrawn)
	if errors.Is(err, fs.ErrNotExist) {
		v.Withdrawn, err = nil, nil
	}
	return v, err
}

func (r Registry) load(path string, to any) error {
	if err := r.checkOwner(path, 0); err != nil {
		return err
	}
	text, err := regular.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

func (r Registry) file(name string, n uint64, end string) string {
	return filepath.Join(r.Dir, name, strconv.FormatUint(n, 10)+end)
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256-" + hex.EncodeToString(sum[:])
}

// checkOwner returns an error unless path is of this type, a directory or a regular file, belongs to root or to the owner of the directory
// above the registry's, and cannot be written by others.
func (r Registry) checkOwner(path string, want fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	home, err := os.Stat(filepath.Dir(r.Dir))
	if err != nil {
		return err
	}
	uid, owner := info.Sys().(*syscall.Stat_t).Uid, home.Sys().(*syscall.Stat_t).Uid
	switch {
	case info.Mode().Type() != want && want == fs.ModeDir:
		return errors.New("it is not a directory")
	case info.Mode().Type() != want:
		return &regular.TypeError{Path: path, Type: info.Mode().Type()}
	case uid != 0 && uid != owner:
		return fmt.Errorf("it belongs to user %d", uid)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("it can be written by others (mode %04o)", info.Mode().Perm())
	}
	return nil
}
