package caller

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/custody-project/custody/project"
)

// Source is where a run's project comes from.
type Source struct {
	Project *string // the registered project that the run is of; nil: the one that the file names, if that is registered
	File    string  // path of the project's file
	Text    []byte  // its contents; nil: there is no file
	Unused  bool    // there is a custody.yaml that is not used
}

// ReadSource reads the project's file at path. If path is empty, that is none for a registered project, else custody.yaml here, if it exists.
func ReadSource(ctx context.Context, name *string, path string) (s Source, err error) {
	s = Source{Project: name, File: path}
	if path == "" && name != nil {
		_, err := os.Lstat(project.Name)
		s.Unused = err == nil
		return s, nil
	}
	if path == "" {
		s.File = project.Name
	}
	s.Text, err = project.ReadFile(ctx, s.File)
	if errors.Is(err, fs.ErrNotExist) && path == "" {
		return s, nil
	}
	if s.Text == nil {
		s.Text = []byte{}
	}
	return s, err
}
