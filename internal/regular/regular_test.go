package regular

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOthersAreRefused: nothing but a regular file is opened, and nothing is waited for.
func TestOthersAreRefused(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(at("file"), []byte("content"), 0o600))
	must(os.Mkdir(at("dir"), 0o700))
	must(unix.Mkfifo(at("fifo"), 0o600))
	must(os.Symlink("fifo", at("toFifo")))
	must(os.Symlink("file", at("toFile")))
	must(os.Symlink("/dev/zero", at("toDevice")))
	l, err := net.Listen("unix", at("socket"))
	must(err)
	defer l.Close()
	root, err := os.OpenRoot(dir)
	must(err)
	defer root.Close()
	files := FS(root)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, name := range []string{"fifo", "toFifo", "toDevice", "socket", "dir"} {
			for how, open := range map[string]func() error{
				"read":        func() error { _, err := ReadFile(at(name)); return err },
				"write":       func() error { _, err := OpenFile(at(name), os.O_WRONLY|os.O_CREATE, 0o600); return err },
				"both":        func() error { _, err := OpenFile(at(name), os.O_RDWR, 0); return err },
				"of the root": func() error { _, err := files.Open(name); return err },
			} {
				if how == "of the root" && (name == "dir" || name == "toDevice") { // which leads out of it
					continue
				}
				other := (*TypeError)(nil)
				if err := open(); !errors.As(err, &other) || !errors.Is(err, fs.ErrInvalid) || other.Hint() == "" {
					t.Errorf("%s, %s: %v", name, how, err)
				}
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("something is waited for")
	}
	for _, name := range []string{"file", "toFile"} {
		if b, err := ReadFile(at(name)); err != nil || string(b) != "content" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
		if b, err := fs.ReadFile(files, name); err != nil || string(b) != "content" {
			t.Errorf("%s of the root: %q, %v", name, b, err)
		}
	}
	if _, err := Open(at("nothing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
	if f, err := OpenFile(at("new"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	if entries, err := fs.ReadDir(files, "."); err != nil || len(entries) != 8 {
		t.Errorf("the directory: %v, %v", entries, err)
	}
}
