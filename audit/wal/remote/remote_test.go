package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/privsep/privseptest"
	"github.com/custody-project/custody/redact"
)

const testRun = "r-01m7xwjm28tv7cnff0wa831wp1"

// connect returns the file system of the log in dir.
func connect(t testing.TB, dir string) (FS, *Server) {
	t.Helper()
	s := NewServer(dir)
	c := privseptest.Connect(t, s.Handlers())
	t.Cleanup(func() { s.Close() })
	return New(c), s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newSealer returns a sealer with a new key.
func newSealer(t *testing.T) wal.Sealer {
	t.Helper()
	skey, _, err := note.GenerateKey(rand.Reader, "custody-test")
	must(t, err)
	key, err := note.NewSigner(skey)
	must(t, err)
	return statement.NewSealer(key, statement.Facts{})
}

// fill writes segments of five records each.
func fill(t *testing.T, l *wal.Log, segments int) {
	t.Helper()
	red := redact.New([]byte("0123456789abcdef0123456789abcdef"))
	for i := range segments {
		for j := range 5 {
			sealed, err := red.Seal(&audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindOutput,
				Output: &audit.Output{Stream: "stdout", Text: audit.Text(fmt.Sprintf("line %d of segment %d\n", j, i))}})
			must(t, err)
			_, err = l.Append(t.Context(), sealed)
			must(t, err)
		}
		must(t, l.Rotate(t.Context()))
	}
}

// TestLog: a log that is written over a connection is the same as a local one, and its lock is held meanwhile.
func TestLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), testRun)
	files, _ := connect(t, dir)
	l, err := wal.Create(Dir, wal.Options{Run: testRun, Sealer: newSealer(t), FS: files})
	must(t, err)
	fill(t, l, 3)
	if !wal.Locked(dir) {
		t.Error("the log is not locked")
	}
	if _, err := wal.Create(Dir, wal.Options{Run: testRun, Sealer: newSealer(t), FS: files}); !errors.Is(err, wal.ErrLocked) {
		t.Errorf("a second writer: %v", err)
	}
	must(t, l.Close(t.Context(), wal.Sealed))
	if wal.Locked(dir) {
		t.Error("the log is still locked")
	}
	var here, there []string
	for f, err := range wal.Frames(wal.Disk{}, dir) {
		must(t, err)
		here = append(here, string(f.Bytes))
	}
	for f, err := range files.Frames() {
		must(t, err)
		there = append(there, string(f.Bytes))
	}
	if len(here) != 15 || !slices.Equal(here, there) {
		t.Errorf("%d records, %d over the connection", len(here), len(there))
	}
}

// TestRecover: a log whose writer died is continued over a connection.
func TestRecover(t *testing.T) {
	dir := filepath.Join(t.TempDir(), testRun)
	files, server := connect(t, dir)
	l, err := wal.Create(Dir, wal.Options{Run: testRun, Sealer: newSealer(t), FS: files, SegmentAge: time.Hour})
	must(t, err)
	fill(t, l, 2)
	server.Unlock() // as if the writer had ended
	must(t, os.WriteFile(filepath.Join(dir, wal.FileName(99, wal.LeavesSuffix)+wal.TempSuffix), []byte("torn"), 0o600))
	again, found, err := wal.Recover(t.Context(), Dir, wal.Options{Run: testRun, Sealer: newSealer(t), FS: files})
	must(t, err)
	if found.Last != 10 || found.Sealed != 2 {
		t.Errorf("%+v", found)
	}
	must(t, again.Close(t.Context(), wal.Interrupted))
}

// TestManyFiles: a directory whose names exceed a message is listed whole.
func TestManyFiles(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for i := range 2*maxNames + 7 {
		name := wal.FileName(uint64(i+1), wal.SegmentSuffix)
		want = append(want, name)
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	files, _ := connect(t, dir)
	got, err := files.ReadDir(Dir)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%d names of %d, %v", len(got), len(want), err)
	}
}

// TestHostile: a worker that was taken over reaches no file but those of its run's log, and no sealed segment.
func TestHostile(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, testRun)
	must(t, os.Mkdir(dir, 0o700))
	victim := filepath.Join(parent, "victim")
	must(t, os.WriteFile(victim, []byte("safe"), 0o600))
	name := func(first uint64, suffix string) string { return wal.FileName(first, suffix) }
	for file, link := range map[string]string{name(1, wal.SegmentSuffix): victim, name(2, wal.LeavesSuffix) + wal.TempSuffix: victim} {
		must(t, os.Symlink(link, filepath.Join(dir, file)))
	}
	must(t, unix.Mkfifo(filepath.Join(dir, name(3, wal.SegmentSuffix)), 0o600))
	for _, sealed := range []string{name(4, wal.SegmentSuffix), name(4, wal.ManifestSuffix), "stored", "shipped", "control"} {
		must(t, os.WriteFile(filepath.Join(dir, sealed), []byte("safe"), 0o600))
	}
	files, _ := connect(t, dir)
	type call struct {
		name string
		args any
	}
	var calls []call
	for _, bad := range []string{"", ".", "..", "../victim", victim, "stored", "shipped", "control", wal.LockName, "x.seg", name(1, ".seg\x00"), name(1, "/../../victim"), name(1, ".torn"), name(1, ".x.torn"), name(1, ".../victim.torn")} {
		for _, h := range []how{read, extend, replace} {
			calls = append(calls, call{callOpen, openCall{bad, h}})
		}
		calls = append(calls, call{callRename, renameCall{bad}}, call{callRemove, nameCall{bad}})
	}
	for _, h := range []how{read, extend, replace} {
		calls = append(calls, call{callOpen, openCall{name(1, wal.SegmentSuffix), h}}, call{callOpen, openCall{name(3, wal.SegmentSuffix), h}})
	}
	calls = append(calls,
		call{callOpen, openCall{name(2, wal.LeavesSuffix) + wal.TempSuffix, replace}},
		call{callOpen, openCall{name(4, wal.SegmentSuffix), replace}}, call{callOpen, openCall{name(4, wal.ManifestSuffix), replace}},
		call{callOpen, openCall{name(4, wal.SegmentSuffix), "append"}}, call{callRemove, nameCall{name(4, wal.SegmentSuffix)}},
		call{callOpen, map[string]string{"Path": victim}},
	)
	for _, c := range calls {
		got, err := files.conn.Call(context.Background(), c.name, c.args, nil)
		if err == nil {
			t.Errorf("%s %+v succeeded with %d descriptors", c.name, c.args, len(got))
		}
	}
	for _, file := range []string{victim, filepath.Join(dir, name(4, wal.SegmentSuffix)), filepath.Join(dir, "stored")} {
		if b, err := os.ReadFile(file); err != nil || string(b) != "safe" {
			t.Errorf("%s is %q, %v", file, b, err)
		}
	}
}

// TestErrors: errors that a log tells apart are the same over a connection.
func TestErrors(t *testing.T) {
	for _, want := range []error{os.ErrNotExist, unix.ENOSPC, wal.ErrLocked} {
		text := fmt.Errorf("open x: %w", want).Error()
		if err := remoteError(&privsep.RemoteError{Call: "x", Text: text}); !errors.Is(err, want) || !strings.Contains(err.Error(), "open x") {
			t.Errorf("%v became %v", want, err)
		}
	}
}

// FuzzOpen: no name reaches a file outside the directory.
func FuzzOpen(f *testing.F) {
	dir := f.TempDir()
	s := NewServer(filepath.Join(dir, "log"))
	must(f, os.Mkdir(s.dir, 0o700))
	for _, seed := range []string{"../x", "00000000000000000001.seg", "00000000000000000001.5.torn", "lock"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		path, err := s.path(name)
		if err == nil && filepath.Dir(path) != s.dir {
			t.Errorf("%q is %s", name, path)
		}
	})
}
