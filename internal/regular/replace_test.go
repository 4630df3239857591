package regular_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/regular"
)

// TestReplace: a link that someone has put where a file is written leads to nothing else.
func TestReplace(t *testing.T) {
	for what, links := range map[string]map[string]string{
		"nothing there":                     {},
		"a link in the file's place":        {"out": "../victim"},
		"a link as the unfinished file":     {"out.part": "../victim"},
		"a dangling link":                   {"out": "../new", "out.part": "../new"},
		"an absolute link in its place":     {"out": "VICTIM"},
		"an absolute link as unfinished":    {"out.part": "VICTIM"},
		"links to each other":               {"out": "out.part", "out.part": "out"},
		"a link to a directory in its part": {"out.part": "."},
	} {
		t.Run(what, func(t *testing.T) {
			top := t.TempDir()
			dir, victim := filepath.Join(top, "dir"), filepath.Join(top, "victim")
			must(t, os.Mkdir(dir, 0o777))
			must(t, os.WriteFile(victim, []byte("safe"), 0o640))
			for name, to := range links {
				if to == "VICTIM" {
					to = victim
				}
				must(t, os.Symlink(to, filepath.Join(dir, name)))
			}
			must(t, regular.Replace(filepath.Join(dir, "out"), func(w io.Writer) error { _, err := io.WriteString(w, "new"); return err }))
			info, err := os.Lstat(filepath.Join(dir, "out"))
			must(t, err)
			if b, err := os.ReadFile(filepath.Join(dir, "out")); err != nil || string(b) != "new" || info.Mode() != 0o600 {
				t.Errorf("out is %q, %v, %v", b, info.Mode(), err)
			}
			info, err = os.Lstat(victim)
			must(t, err)
			if b, err := os.ReadFile(victim); err != nil || string(b) != "safe" || info.Mode() != 0o640 {
				t.Errorf("the other file is %q, %v, %v", b, info.Mode(), err)
			}
			if list, err := os.ReadDir(top); err != nil || len(list) != 2 {
				t.Errorf("outside there are %d entries, %v", len(list), err)
			}
		})
	}
}

// TestReplaceFails: a file that could not be written whole leaves the old one, and nothing else.
func TestReplaceFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	must(t, os.WriteFile(path, []byte("old"), 0o600))
	broken := errors.New("broken")
	if err := regular.Replace(path, func(w io.Writer) error { io.WriteString(w, "half"); return broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	list, err := os.ReadDir(dir)
	must(t, err)
	if b, err := os.ReadFile(path); err != nil || string(b) != "old" || len(list) != 1 {
		t.Errorf("%q, %d files, %v", b, len(list), err)
	}
	if err := regular.Replace(filepath.Join(dir, "none", "out"), func(io.Writer) error { return nil }); err == nil {
		t.Error("a file in no directory was written")
	}
}

// TestReplaceOverOthers: what is no file stays as it is, be it a device, a pipe, or a link to what a process has open.
func TestReplaceOverOthers(t *testing.T) {
	for kind, put := range map[string]func(path string) error{
		"directory":       func(path string) error { return os.Mkdir(path, 0o700) },
		"FIFO":            func(path string) error { return unix.Mkfifo(path, 0o600) },
		"socket":          func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
		"standard output": func(path string) error { return os.Symlink("/proc/self/fd/1", path) },
	} {
		path := filepath.Join(t.TempDir(), "out")
		must(t, put(path))
		before, err := os.Lstat(path)
		must(t, err)
		err = regular.Replace(path, func(w io.Writer) error { _, err := io.WriteString(w, "new"); return err })
		var other *regular.TypeError
		if !errors.As(err, &other) || other.Path != path {
			t.Errorf("%s: %v", kind, err)
		}
		after, err := os.Lstat(path)
		if err != nil || !os.SameFile(before, after) {
			t.Errorf("%s: something else is there now: %v, %v", kind, after, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
