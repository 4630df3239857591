package service

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/service/remote"
)

// maxPath bounds a path in a request, in bytes.
const maxPath = 4096

// readRequest returns the request in the only file of a call.
func readRequest(files []*os.File) (r remote.Request, err error) {
	if len(files) != 1 {
		for _, f := range files {
			f.Close()
		}
		return r, fmt.Errorf("the call has %d descriptors", len(files))
	}
	if err := privsep.FromMemoryUpTo(remote.MaxRequest, files[0], &r); err != nil {
		return r, fmt.Errorf("the request: %w", err)
	}
	return r, check(r)
}

// check returns an error for what no client sends.
func check(r remote.Request) error {
	if p := r.Source.Project; p != nil && !project.ValidName(*p) {
		return fmt.Errorf("%.80q cannot be the name of a project", *p)
	}
	if err := checkPath(r.Source.File); err != nil && (r.Source.Text != nil || r.Source.File != "") {
		return fmt.Errorf("the project's file: %w", err)
	}
	for _, dir := range []string{r.Workdir, r.Out} {
		if dir != "" && (len(dir) > maxPath || strings.ContainsRune(dir, 0)) {
			return fmt.Errorf("%.80q is no path", dir)
		}
	}
	for _, list := range [][]string{r.Command, r.Secrets} {
		if slices.ContainsFunc(list, func(s string) bool { return strings.ContainsRune(s, 0) }) {
			return errors.New("an argument has a NUL")
		}
	}
	return nil
}

func checkPath(path string) error {
	if !filepath.IsAbs(path) || len(path) > maxPath || console.Clean(path) != path {
		return fmt.Errorf("%.80q is no absolute path without control characters", path)
	}
	return nil
}

// variables returns the plain variables, which are checked again.
func variables(r remote.Request) ([]project.Variable, error) {
	return project.ParseVariables(r.Env, func(string) (string, bool) { return "", false })
}
