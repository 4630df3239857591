package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
)

// container returns what has the layers as its file system.
func (l *layers) container() *spawned { return &spawned{changes: l.changes, scans: newScans()} }

// streamed returns what a worker reads of a scan.
func (l *layers) streamed(s *spawned) (all []*audit.File, err error) {
	l.Helper()
	r, err := s.stream(l.Context(), changedCall{Report: true})
	l.must(err)
	err = readFound(l.Context(), r, func(f *audit.File) error { all = append(all, f); return nil })
	return all, err
}

// fill makes n empty files in the directory.
func (l *layers) fill(dir string, n int) {
	l.Helper()
	l.must(os.MkdirAll(l.in(dir), 0o755))
	for i := range n {
		l.write(fmt.Sprintf("%s/%d", dir, i), "")
	}
}

// TestStreamOfNames: a worker reads each path as it is, whatever it is.
func TestStreamOfNames(t *testing.T) {
	l := newLayers(t)
	names := []string{
		"\n", "a\nb", `"`, `\`, `{"end":true}`, "\n{\"end\":true,\"error\":\"x\"}\n", "\xff", "\xc3\x28", "\u2028", "\x1b[2J", "\x01", " ", "ä", "-", "<&>",
		strings.Repeat("\n", 255), strings.Repeat("\xff", 255), strings.Repeat(`"`, 255),
	}
	for _, name := range names {
		l.write(name, name)
	}
	// Paths that are longer than the kernel takes in one call, and than a message of package privsep.
	l.must(os.Chdir(l.cell))
	defer os.Chdir("/")
	const levels = 400
	long := strings.Repeat("\xfe", 255)
	for range levels {
		l.must(os.Mkdir(long, 0o755))
		l.must(os.Chdir(long))
	}
	all, err := l.streamed(l.container())
	l.must(err)
	got := map[string]*audit.File{}
	for _, f := range all {
		got[string(f.Path)] = f
	}
	for _, name := range names {
		if f := got["/"+name]; f == nil || f.Op != audit.FileWrite || f.SHA256 == "" || f.Size != int64(len(name)) {
			t.Errorf("%q: %+v", name, f)
		}
	}
	if last := strings.Repeat("/"+long, levels); got[last] == nil {
		t.Error("the directory with the longest path is missing")
	}
	if want := len(names) + levels; len(all) != want {
		t.Errorf("%d changes, want %d", len(all), want)
	}
}

// TestStreamOfManyFiles: the number of files has no effect on messages, and a worker gets the same as a driver in its own process.
func TestStreamOfManyFiles(t *testing.T) {
	l := newLayers(t)
	const n = 100_000
	l.fill("many", n)
	before := l.changes.seen
	streamed, err := l.streamed(l.container())
	l.must(err)
	l.changes.seen = before
	list, err := l.changes.scan(t.Context())
	l.must(err)
	if direct := l.files(t.Context(), list, 0); len(streamed) != n+1 || !reflect.DeepEqual(streamed, direct) {
		t.Errorf("%d changes, in one process %d", len(streamed), len(direct))
	}
}

// TestScanIsBounded: a scan that reaches a limit returns an error, and does not report as deleted what it did not reach.
func TestScanIsBounded(t *testing.T) {
	for name, limits := range map[string]limits{"files": {100, 1 << 20}, "bytes": {1 << 20, 1000}} {
		t.Run(name, func(t *testing.T) {
			l := newLayers(t)
			l.fill("many", 300)
			if _, err := l.changes.scan(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.changes.limits = limits
			list, err := l.changes.scan(t.Context())
			if err == nil || !strings.Contains(err.Error(), limits.err().Error()) || len(l.changes.seen) > 200 {
				t.Errorf("%d files are kept, %v", len(l.changes.seen), err)
			}
			if len(list) > 0 {
				t.Errorf("%d changes, although nothing has changed: %+v", len(list), list[0])
			}
		})
	}
}

// TestStreamIsNotRead: a worker that does not read has only its own scans wait, and the removal ends them.
func TestStreamIsNotRead(t *testing.T) {
	l := newLayers(t)
	l.fill("many", 5000)
	s := l.container()
	r, err := s.stream(t.Context(), changedCall{Report: true})
	l.must(err)
	defer r.Close()
	limited, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.stream(limited, changedCall{Report: true}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second scan: %v", err)
	}
	s.scans.end()
	if err := readFound(t.Context(), r, func(*audit.File) error { return nil }); err == nil {
		t.Error("a scan that was ended has no error")
	}
	if _, err := s.stream(t.Context(), changedCall{Report: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("a scan after the removal: %v", err)
	}
}

// TestStreamIsGivenUp: a scan ends when its reader does.
func TestStreamIsGivenUp(t *testing.T) {
	l := newLayers(t)
	l.fill("many", 5000)
	s := l.container()
	stopped := errors.New("stopped")
	r, err := s.stream(t.Context(), changedCall{Report: true})
	l.must(err)
	if err := readFound(t.Context(), r, func(*audit.File) error { return stopped }); err != stopped {
		t.Error(err)
	}
	if _, err := l.streamed(s); err != nil { // it waits for the first
		t.Error(err)
	}
}

// TestReadFound: what is no result of a scan is an error.
func TestReadFound(t *testing.T) {
	for in, want := range map[string]string{
		"":                                    "EOF",
		`{"end":true}`:                        "",
		`{"end":true,"error":"no"}`:           "no",
		`{}`:                                  "no file",
		`{"file":{"op":"write","path":"/a"}}`: "EOF",
		`{"more":1}`:                          "unknown field",
		"\x00":                                "invalid character",
	} {
		path := filepath.Join(t.TempDir(), "in")
		if err := os.WriteFile(path, []byte(in), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		err = readFound(t.Context(), f, func(*audit.File) error { return nil })
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", in, err, want)
		}
	}
}
