package registry

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/custody-project/custody/project"
)

// Check reads the whole registry. It returns all versions of the projects that could be read, and what is wrong with others: a file that
// someone else than root, or the owner of the registry, can change or has changed; a version that is incomplete; a file in force that is
// not valid.
func (r Registry) Check() (all []Version, problems []error) {
	entries, err := os.ReadDir(r.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, []error{&DamagedError{r.Dir, err}}
	}
	if err := r.checkOwner(r.Dir, fs.ModeDir); err != nil {
		return nil, []error{&DamagedError{r.Dir, err}}
	}
	for _, e := range entries {
		list, err := r.History(e.Name())
		if err != nil && !errors.Is(err, ErrUnknown) {
			problems = append(problems, err)
		}
		for i, v := range list {
			if err := r.check(v, i == len(list)-1); err != nil {
				problems = append(problems, err)
			}
		}
		all = append(all, list...)
	}
	return all, problems
}

// check checks a version. Only the newest must be valid for this version of Custody.
func (r Registry) check(v Version, newest bool) error {
	path := r.file(v.Project, v.Number, textEnd)
	text, err := r.text(v, path)
	switch {
	case err != nil:
		return err
	case v.Author == "" || v.Time.IsZero() || v.Withdrawn != nil && (v.Withdrawn.Author == "" || v.Withdrawn.Time.IsZero()):
		return &DamagedError{r.file(v.Project, v.Number, versionEnd), errors.New("it does not say who changed the project, and when")}
	case !newest || v.Withdrawn != nil:
		return nil
	}
	f, err := project.Parse(path, text)
	if err == nil && f.Project != v.Project {
		err = &DamagedError{path, errors.New("it is of the project " + f.Project)}
	}
	return err
}

// Path returns the file that describes a version.
func (r Registry) Path(v Version) string {
	end := versionEnd
	if v.Withdrawn != nil {
		end = withdrawnEnd
	}
	return filepath.Clean(r.file(v.Project, v.Number, end))
}
