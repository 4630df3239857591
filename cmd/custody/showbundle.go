package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/term"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
)

// stdinName names standard input where a file can be named.
const stdinName = "-"

// isFile reports whether a name that may be a run's is that of a file: one that exists, standard input, or one that cannot
// be a run's, whose absence is then the error.
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

// runID matches what is a run's id, or its beginning, and no name of a file.
var runID = regexp.MustCompile(`^[ar]-[0-9a-z]+$`)

// noRun adds to an error of looking for a run that there is no file of that name either.
func noRun(name string, err error) error {
	if errors.Is(err, store.ErrNotFound) && name != store.Last && !runID.MatchString(name) {
		return fmt.Errorf("%s: %w; there is no such file either", name, err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// bundleFile returns the path of a bundle's file; that of standard input is a copy. remove ends the copy.
func (a *app) bundleFile(name string) (path string, remove func(), err error) {
	if name != stdinName {
		return name, func() {}, nil
	}
	if term.IsTerminal(int(a.stdin.Fd())) {
		return "", nil, usageError{errors.New("standard input is a terminal: name a file, or redirect a bundle to it")}
	}
	path, remove, err = unnamedCopy(a.ctx, a.stdin)
	if err != nil {
		return "", nil, fmt.Errorf("read standard input: %w", err)
	}
	return path, remove, nil
}

// ownBundle returns the path of a copy of a bundle, which stays as it is when the file is replaced or written to. What is
// not even an archive is refused before it is copied.
func (a *app) ownBundle(name string) (path string, remove func(), err error) {
	if name == stdinName {
		return a.bundleFile(name)
	}
	e, err := proof.OpenBundle(name)
	if err != nil {
		return "", nil, a.refuse(name, err)
	}
	path, remove, err = unnamedCopy(a.ctx, e.Raw())
	if err = errors.Join(err, e.Close()); err != nil {
		return "", nil, fmt.Errorf("read %s: %w", name, err)
	}
	return path, remove, nil
}

// unnamedCopy copies r to a temporary file without a name, so that a kill leaves nothing.
func unnamedCopy(ctx context.Context, r io.Reader) (path string, remove func(), err error) {
	f, err := os.CreateTemp("", "custody-copy-")
	if err != nil {
		return "", nil, err
	}
	if err = os.Remove(f.Name()); err == nil {
		_, err = io.Copy(f, untilDone{ctx, r})
	}
	if err != nil {
		return "", nil, errors.Join(err, f.Close())
	}
	return fmt.Sprintf("/proc/self/fd/%d", f.Fd()), func() { f.Close() }, nil
}

// untilDone reads until ctx ends.
type untilDone struct {
	ctx context.Context
	io.Reader
}

// Read implements io.Reader.
func (u untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.Reader.Read(p)
}

// shownBundle is a bundle that is read rather than only verified.
type shownBundle struct {
	*host.BundleReader
	path     string
	remove   func() // the copy that path leads to
	evidence *proof.Evidence
	trust    proof.Trust
	report   proof.Report
	doubt    error // why it was not verified; nil if it was
}

// openBundle verifies a bundle and opens it to be read. One that does not hold is refused. One that cannot be judged, such as one
// signed by a key that is not known here, is refused if keys were given, and otherwise opened with its doubt.
func (a *app) openBundle(name string, keys []string) (b *shownBundle, err error) {
	b = &shownBundle{}
	if b.trust, err = (verifyCmd{Key: keys, Within: usualWithin}).trust(a.ctx); err != nil {
		return nil, err
	}
	if b.path, b.remove, err = a.ownBundle(name); err != nil {
		return nil, err
	}
	if err = b.open(a, name, len(keys) > 0); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *shownBundle) open(a *app, name string, keyed bool) (err error) {
	if b.evidence, err = proof.OpenBundle(b.path); err != nil {
		return a.refuse(name, err)
	}
	b.report, b.doubt = proof.Verify(a.ctx, b.evidence, b.trust)
	if b.doubt != nil && (keyed || !errors.Is(b.doubt, proof.ErrCannotBeJudged)) {
		return a.refuse(name, b.doubt)
	}
	if b.BundleReader, err = host.ReadBundle(a.ctx, b.evidence); err != nil {
		return a.refuse(name, err)
	}
	return nil
}

// refuse reports why a bundle is not shown, and returns the exit code that verify has for it.
func (a *app) refuse(name string, err error) error {
	a.complain(fmt.Errorf("%s is not shown: %w", name, err))
	if errors.Is(err, proof.ErrDoesNotHold) {
		return exitDoesNotHold
	}
	return exitCannotBeKnown
}

// Close implements host.Reader.
func (b *shownBundle) Close() error {
	var errs []error
	if b.BundleReader != nil {
		errs = append(errs, b.BundleReader.Close())
	}
	if b.evidence != nil {
		errs = append(errs, b.evidence.Close())
	}
	b.remove()
	return errors.Join(errs...)
}

// verdict is what is known of the bundle, in a sentence.
func (b *shownBundle) verdict() string {
	if b.doubt != nil {
		return fmt.Sprintf("NOT VERIFIED: %v; anyone could have made these records. --key FILE verifies the bundle", b.doubt)
	}
	text := "verified with the key " + b.report.KeyName
	if s := b.report.Selected; s != nil {
		text += fmt.Sprintf("; it shows %d of %d records (%s), chosen by %s", b.report.Shown(), b.report.Records, s.What, s.By)
	}
	return text
}

// options are a's layout, with what is not verified marked.
func (b *shownBundle) options(a *app) replay.Options {
	opt := a.layout()
	opt.Withheld, opt.End = b.Withheld, b.Last
	if b.doubt != nil {
		opt.Mark = func(store.Row) store.Mark {
			return store.Mark{State: store.Unchecked, Text: "the bundle was not verified"}
		}
		opt.MarkRun = func(store.Run) store.Mark { return store.Mark{State: store.Unchecked, Text: b.verdict()} }
	}
	return opt
}
