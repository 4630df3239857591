package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/internal/flock"
	"github.com/custody-project/custody/project"
)

// Apply registers text, the contents of a project's file, as the next version of the project that it names. If the version
// in force has the same bytes, Apply returns that one, and changed is false. Otherwise it calls record with the version
// before the version is in force; an error of record prevents it.
func (r Registry) Apply(ctx context.Context, text []byte, by Change, record func(Version) error) (v Version, changed bool, err error) {
	f, err := project.Parse(project.Name, text)
	if err != nil {
		return v, false, err
	}
	unlock, err := r.lock(ctx)
	if err != nil {
		return v, false, err
	}
	defer unlock()
	list, err := r.History(f.Project)
	if err != nil && !errors.Is(err, ErrUnknown) {
		return v, false, err
	}
	v = Version{Project: f.Project, Number: uint64(len(list) + 1), Digest: digest(text), Change: by}
	if len(list) > 0 {
		if last := list[len(list)-1]; last.Withdrawn == nil && last.Digest == v.Digest {
			return last, false, nil
		}
	}
	if err := r.makeDir(f.Project); err != nil {
		return v, false, err
	}
	if err := record(v); err != nil {
		return v, false, err
	}
	return v, true, r.store(v, text)
}

func (r Registry) store(v Version, text []byte) error {
	described, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := durable.Replace(r.file(v.Project, v.Number, textEnd), text, 0o644); err != nil {
		return err
	}
	return durable.Replace(r.file(v.Project, v.Number, versionEnd), append(described, '\n'), 0o644)
}

// Withdraw withdraws the version of a project that is in force, after a call of record.
func (r Registry) Withdraw(ctx context.Context, name string, by Change, record func(Version) error) (Version, error) {
	if _, err := r.History(name); err != nil { // without a directory there is nothing to lock
		return Version{}, err
	}
	unlock, err := r.lock(ctx)
	if err != nil {
		return Version{}, err
	}
	defer unlock()
	list, err := r.History(name)
	if err != nil {
		return Version{}, err
	}
	v := list[len(list)-1]
	if v.Withdrawn != nil {
		return v, &WithdrawnError{v}
	}
	if err := record(v); err != nil {
		return v, err
	}
	text, err := json.Marshal(by)
	if err != nil {
		return v, err
	}
	v.Withdrawn = &by
	return v, durable.Replace(r.file(name, v.Number, withdrawnEnd), append(text, '\n'), 0o644)
}

// lock makes the registry's directory, if needed, locks it, and removes what a killed process left.
func (r Registry) lock(ctx context.Context) (unlock func(), err error) {
	err = os.Mkdir(r.Dir, 0o755)
	if err == nil {
		err = durable.SyncDir(filepath.Dir(r.Dir))
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("the directory of registered projects: %w", err)
	}
	if err := r.checkOwner(r.Dir, fs.ModeDir); err != nil {
		return nil, &DamagedError{r.Dir, err}
	}
	dir, err := os.Open(r.Dir)
	if err != nil {
		return nil, err
	}
	err = flock.Lock(ctx, dir, unix.LOCK_EX)
	if err == nil {
		err = r.clean()
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return func() { dir.Close() }, nil
}

func (r Registry) makeDir(name string) error {
	if err := os.Mkdir(filepath.Join(r.Dir, name), 0o755); errors.Is(err, fs.ErrExist) {
		return nil
	} else if err != nil {
		return err
	}
	return durable.SyncDir(r.Dir)
}

// Tidy removes what killed processes left, unless another process writes to the registry now.
func (r Registry) Tidy() error {
	dir, err := os.Open(r.Dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	if r.checkOwner(r.Dir, fs.ModeDir) != nil || unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}
	return r.clean()
}

// clean removes temporary files, files of versions that were not completed, and empty directories. It leaves directories
// alone that it must not trust.
func (r Registry) clean() error {
	entries, err := os.ReadDir(r.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		dir := filepath.Join(r.Dir, e.Name())
		if !project.ValidName(e.Name()) || r.checkOwner(dir, fs.ModeDir) != nil {
			continue
		}
		files, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, f := range files {
			path := filepath.Join(dir, f.Name())
			text, isText := strings.CutSuffix(path, textEnd)
			left := strings.HasSuffix(path, tempEnd)
			if _, err := os.Lstat(text + versionEnd); isText && errors.Is(err, fs.ErrNotExist) {
				left = true
			}
			if left && f.Type().IsRegular() {
				if err := os.Remove(path); err != nil {
					return err
				}
			}
		}
		os.Remove(dir) // fails if it has files
	}
	return nil
}
