package state_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/state"
)

// TestMisuse: wrong arguments are errors, and leave no file.
func TestMisuse(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	for name, m := range map[string]func(*state.Meta){
		"a path as a run":   func(m *state.Meta) { m.Run = "../r-1" },
		"no run":            func(m *state.Meta) { m.Run = "" },
		"a line in a value": func(m *state.Meta) { m.Tenant = "a\nb" },
		"a long value":      func(m *state.Meta) { m.Policy = strings.Repeat("x", 600) },
		"bytes in a value":  func(m *state.Meta) { m.Host = "\xff" },
		"a negative time":   func(m *state.Meta) { m.Keep = -1 },
		"a century":         func(m *state.Meta) { m.Keep = 100 * 365 * 24 * time.Hour },
	} {
		meta := state.Meta{Binding: binding}
		m(&meta)
		if _, err := s.Create(t.Context(), meta); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	broken := errors.New("the device cannot be read")
	for name, f := range map[string]func(w *state.Writer) error{
		"a part twice": func(w *state.Writer) error {
			return errors.Join(w.Part("a", strings.NewReader("")), w.Part("a", strings.NewReader("")))
		},
		"a path as a part": func(w *state.Writer) error { return w.Part("../a", strings.NewReader("")) },
		"half a page":      func(w *state.Writer) error { _, err := w.Pages("a", page/2, nil); return err },
		"a page behind":    func(w *state.Writer) error { return writePage(w, page, page) },
		"a page before":    func(w *state.Writer) error { return writePage(w, -page, page) },
		"a page across":    func(w *state.Writer) error { return writePage(w, 10, page) },
		"a part of a page": func(w *state.Writer) error { return writePage(w, 0, 10) },
		"a broken reader": func(w *state.Writer) error {
			return w.Part("a", io.MultiReader(strings.NewReader("x"), failing{broken}))
		},
		"a cut-off reader": func(w *state.Writer) error { return w.Part("a", failing{io.ErrUnexpectedEOF}) },
		"a broken base": func(w *state.Writer) error {
			p, err := w.Pages("a", page, failing{broken})
			return errors.Join(err, p.Page(0, make([]byte, page)))
		},
		"a cancelled commit": func(w *state.Writer) error {
			ctx, c := context.WithCancel(t.Context())
			c()
			_, err := w.Commit(ctx)
			return err
		},
		"an aborted one": func(w *state.Writer) error { w.Abort(); return w.Part("a", strings.NewReader("")) },
	} {
		w, err := s.Create(t.Context(), state.Meta{Binding: binding})
		must(t, err)
		if err := f(w); err == nil {
			t.Errorf("%s: no error", name)
		}
		if got := p.names(t); len(got) > 0 {
			t.Errorf("%s: it leaves %q", name, got)
		}
		if _, err := w.Commit(t.Context()); err == nil {
			t.Errorf("%s: it can be committed", name)
		}
	}
	if _, err := s.Claim(t.Context(), state.Binding{Run: "../x"}); err == nil {
		t.Error("a path can be claimed")
	}
	if err := errors.Join(s.Delete(t.Context(), "r-1")); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("delete nothing: %v", err)
	}
}

func writePage(w *state.Writer, at int64, n int) error {
	p, err := w.Pages("a", page, nil)
	return errors.Join(err, p.Page(at, make([]byte, n)))
}

type failing struct{ error }

func (f failing) Read([]byte) (int, error)          { return 0, f.error }
func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.error }

// TestFiles: the store refuses directories that others can enter, and symbolic links.
func TestFiles(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	put(t, s, of("r-1"), "text")
	other := filepath.Join(p.home, "other")
	must(t, os.Rename(filepath.Join(p.dir, "r-1.snapshot"), other))
	must(t, os.Symlink(other, filepath.Join(p.dir, "r-1.snapshot")))
	if _, err := s.Claim(t.Context(), of("r-1").Binding); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a symbolic link as a snapshot: %v", err)
	}
	if list, err := s.List(t.Context(), "acme"); err != nil || len(list) > 0 {
		t.Errorf("it is listed: %v, %v", list, err)
	}
	must(t, os.Rename(p.key, other))
	must(t, os.Symlink(other, p.key))
	if _, err := s.Create(t.Context(), of("r-2")); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a symbolic link as a key: %v", err)
	}
	must(t, os.Remove(p.key))
	must(t, os.WriteFile(p.key, nil, 0o644))
	if _, err := s.Create(t.Context(), of("r-2")); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that others can read: %v", err)
	}
	must(t, os.Chmod(p.dir, 0o755))
	if _, err := state.Open(p.dir, p.config); err == nil || !strings.Contains(err.Error(), "chmod 700") {
		t.Errorf("a directory that others can enter: %v", err)
	}
	link := filepath.Join(p.home, "link")
	must(t, os.Symlink(p.dir, link))
	if _, err := state.Open(link, p.config); err == nil {
		t.Error("a symbolic link as the directory is opened")
	}
	if _, err := os.Lstat(filepath.Join(p.home, "keys")); errors.Is(err, fs.ErrNotExist) {
		t.Error("there is no directory of keys")
	}
}
