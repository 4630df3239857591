package file

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/exporttest"
)

func open(t *testing.T, o Options) *Sink {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func send(t *testing.T, s export.Sink, items []export.Item) {
	t.Helper()
	for len(items) > 0 {
		n := min(10, len(items))
		if err := s.Send(t.Context(), items[:n]); err != nil {
			t.Fatal(err)
		}
		items = items[n:]
	}
}

func lines(items []export.Item) string {
	var b strings.Builder
	for _, i := range items {
		b.Write(append(i.Data, '\n'))
	}
	return b.String()
}

// read returns the contents of all files, oldest first.
func read(t *testing.T, s *Sink) string {
	t.Helper()
	files, err := s.aside()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, path := range append(files, s.o.Path) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, ".gz") {
			z, err := gzip.NewReader(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			if b, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		all.Write(b)
	}
	return all.String()
}

func TestTornLineIsCut(t *testing.T) {
	items := exporttest.Items("r-1", 20)
	whole := lines(items[:5])
	for name, torn := range map[string]string{"nothing": "", "a byte": "{", "a long one": `{"` + strings.Repeat("x", 200<<10)} {
		path := filepath.Join(t.TempDir(), "events.ndjson")
		if err := os.WriteFile(path, []byte(whole+torn), 0o644); err != nil {
			t.Fatal(err)
		}
		s := open(t, Options{Path: path})
		send(t, s, items[5:])
		if read(t, s) != lines(items) {
			t.Errorf("%s: the file is not what was sent", name)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if n, err := wholeLines(torn(t, "no newline at all"), 17); n != 0 || err != nil {
		t.Error(n, err)
	}
}

func torn(t *testing.T, text string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestRotation(t *testing.T) {
	items := exporttest.Items("r-1", 300)
	for name, o := range map[string]Options{"plain": {Bytes: 8 << 10}, "gzip": {Bytes: 8 << 10, Gzip: true}, "age": {Age: time.Nanosecond}} {
		o.Path = filepath.Join(t.TempDir(), "below", "events.ndjson")
		s := open(t, o)
		send(t, s, items)
		if read(t, s) != lines(items) {
			t.Errorf("%s: the files are not what was sent", name)
		}
		files, err := s.aside()
		if err != nil || len(files) < 3 || strings.HasSuffix(files[0], ".gz") != o.Gzip {
			t.Errorf("%s: %q, %v", name, files, err)
		}
	}
	s := open(t, Options{Path: filepath.Join(t.TempDir(), "events.ndjson"), Bytes: 8 << 10, Keep: 2})
	send(t, s, items)
	if files, err := s.aside(); err != nil || len(files) != 2 || !strings.HasSuffix(lines(items), read(t, s)) {
		t.Errorf("%q, %v", files, err)
	}
}

// TestCompressFollowsNoLink: compression of a rotated file does not follow a link to another file.
func TestCompressFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, "events-20260102T150405.000000000Z.ndjson")
	for name, text := range map[string]string{victim: "safe", path: "{}\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(victim, path+".gz.new"); err != nil {
		t.Fatal(err)
	}
	if err := compress(path); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != "safe" {
		t.Errorf("the other file holds %q, %v", b, err)
	}
	if err := os.Symlink(victim, path); err != nil {
		t.Fatal(err)
	}
	if err := compress(path); err == nil {
		t.Error("what a link leads to was set aside")
	}
}

// TestMovedAway: after logrotate has moved a file, the sink leaves it alone and creates a new one.
func TestMovedAway(t *testing.T) {
	items := exporttest.Items("r-1", 20)
	s := open(t, Options{Path: filepath.Join(t.TempDir(), "events.ndjson")})
	send(t, s, items[:10])
	if err := os.Rename(s.o.Path, s.o.Path+".1"); err != nil {
		t.Fatal(err)
	}
	send(t, s, items[10:])
	old, err := os.ReadFile(s.o.Path + ".1")
	if err != nil || string(old)+read(t, s) != lines(items) {
		t.Error("the files are not what was sent", err)
	}
}

func TestRefusedFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "events.ndjson")
	open(t, Options{Path: path})
	if _, err := New(Options{Path: path}); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("two at one file: %v", err)
	}
	if err := os.Symlink(path, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "fifo", "."} {
		if _, err := New(Options{Path: filepath.Join(dir, name)}); err == nil {
			t.Errorf("%s was opened", name)
		}
	}
}

// TestFullDisk: a write that fails in the middle leaves complete lines, and the retry succeeds.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16k"); err != nil {
		t.Fatalf("mount: %v (tests run as root)", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	items := exporttest.Items("r-1", 200)
	s := open(t, Options{Path: filepath.Join(dir, "events.ndjson")})
	n := 0
	var err error
	for ; n < len(items); n += 10 {
		if err = s.Send(t.Context(), items[n:n+10]); err != nil {
			break
		}
	}
	if !errors.Is(err, unix.ENOSPC) || read(t, s) != lines(items[:n]) {
		t.Fatalf("behind %d events: %v", n, err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=1m"); err != nil {
		t.Fatal(err)
	}
	send(t, s, items[n:])
	if read(t, s) != lines(items) {
		t.Error("the file is not what was sent")
	}
	s.Close()
}
