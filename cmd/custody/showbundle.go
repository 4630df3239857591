//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/term"

	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/command"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/replay/judge"
	"github.com/custody-project/custody/replay/serve"
)

// stdinName is the name of standard input in place of a file name.
const stdinName = "-"

// isFile reports whether a name that may be a run's is that of a file: one that exists, standard input, or one that
// cannot be a run's, so that the error is about the missing file.
func isFile(name string) (bool, error) {
	info, err := os.Stat(name)
	switch {
	case name == stdinName, err == nil && !info.IsDir():
		return true, nil
	case err == nil:
		return false, nil
	case strings.ContainsRune(name, filepath.Separator) || filepath.Ext(name) != "":
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s: there is no such file", name)
		}
		return false, err
	}
	return false, nil
}

// bundleFile returns the path of a bundle's file; for standard input, that of a copy. remove removes the copy.
func (a *app) bundleFile(name string) (path string, remove func(), err error) {
	if name != stdinName {
		return name, func() {}, nil
	}
	if err := a.redirected(); err != nil {
		return "", nil, err
	}
	path, remove, err = regular.Copy(a.ctx, a.stdin)
	if err != nil {
		return "", nil, fmt.Errorf("read standard input: %w", err)
	}
	return path, remove, nil
}

// redirected refuses to read a bundle from a terminal.
func (a *app) redirected() error {
	if term.IsTerminal(int(a.stdin.Fd())) {
		return command.Usage(errors.New("standard input is a terminal: name a file, or redirect a bundle to it"))
	}
	return nil
}

// openBundle verifies a bundle and opens it. It refuses one that does not hold. One that cannot be judged, such as one
// signed by an unknown key, is refused if keys were given, and otherwise opened with a warning.
func (a *app) openBundle(name string, keys []string) (*serve.Bundle, error) {
	trusted, err := (verifyCmd{Key: keys, Within: judge.Within}).trusted(a.ctx)
	if err != nil {
		return nil, err
	}
	trust, err := trusted.Trust(a.knownKeys)
	if err != nil {
		return nil, err
	}
	strict, source := len(keys) > 0, name
	var b *serve.Bundle
	if name == stdinName {
		if err := a.redirected(); err != nil {
			return nil, err
		}
		source = "standard input"
		b, err = serve.ReadBundle(a.ctx, a.stdin, trust, strict)
	} else {
		b, err = serve.OpenBundle(a.ctx, name, trust, strict)
	}
	if refused := new(serve.RefusedError); errors.As(err, &refused) {
		return nil, a.refuse(name, refused.Err)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", source, err)
	}
	return b, nil
}

// refuse reports why a bundle is not shown, and returns the exit code of verify for it.
func (a *app) refuse(name string, err error) error {
	a.Complain(fmt.Errorf("%s is not shown: %w", name, err))
	if errors.Is(err, verdict.ErrDoesNotHold) {
		return exitDoesNotHold
	}
	return exitCannotBeKnown
}
