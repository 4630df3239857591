package host_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/store/storetest"
)

// TestStoreBlocked: if its store cannot be written, a run ends within a bounded time, complete in its log, with a warning
// that names the reason. Once the store can be written, Ship ships the run.
func TestStoreBlocked(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("tests run as root: this one mounts file systems")
	}
	moved := func(t *testing.T, path string) func(*testing.T) {
		must(t, os.Rename(path, path+".away"))
		return func(t *testing.T) { must(t, errors.Join(os.RemoveAll(path), os.Rename(path+".away", path))) }
	}
	mounted := func(t *testing.T, args ...string) func(*testing.T) {
		if out, err := exec.Command("mount", args...).CombinedOutput(); err != nil {
			t.Fatalf("mount: %v: %s", err, out)
		}
		at := args[len(args)-1]
		unmount := func() error { return unix.Unmount(at, unix.MNT_DETACH) }
		t.Cleanup(func() { unmount() })
		return func(t *testing.T) { must(t, unmount()) }
	}
	for name, c := range map[string]struct {
		put  func(t *testing.T, path string) (away func(*testing.T))
		want string
	}{
		"read-only": {func(t *testing.T, path string) func(*testing.T) {
			away := mounted(t, "--bind", path, path)
			mounted(t, "-o", "remount,ro,bind", path)
			return away
		}, "readonly database"},
		"locked": {func(t *testing.T, path string) func(*testing.T) {
			db, err := sql.Open("sqlite", path)
			must(t, err)
			conn, err := db.Conn(t.Context())
			must(t, err)
			_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
			must(t, err)
			return func(t *testing.T) { must(t, errors.Join(conn.Close(), db.Close())) }
		}, "locked"},
		"full": {func(t *testing.T, path string) func(*testing.T) {
			small := filepath.Join(filepath.Dir(path), "small")
			must(t, os.Mkdir(small, 0o700))
			mounted(t, "-t", "tmpfs", "-o", "size=512k", "none", small)
			content, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(filepath.Join(small, "store.db"), content, 0o600))
			must(t, errors.Join(os.Remove(path), os.Symlink(filepath.Join(small, "store.db"), path)))
			filler := filepath.Join(small, "filler")
			if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
				t.Fatalf("the disk is not full: %v", err)
			}
			return func(t *testing.T) { must(t, os.Remove(filler)) }
		}, "disk"},
		"directory": {func(t *testing.T, path string) func(*testing.T) {
			away := moved(t, path)
			must(t, os.Mkdir(path, 0o700))
			return away
		}, "it is a directory"},
		"FIFO": {func(t *testing.T, path string) func(*testing.T) {
			away := moved(t, path)
			must(t, unix.Mkfifo(path, 0o600))
			return away
		}, "it is a named pipe"},
		"device": {func(t *testing.T, path string) func(*testing.T) {
			away := moved(t, path)
			must(t, unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5)))) // like /dev/zero
			return away
		}, "it is a device"},
		"dangling link": {func(t *testing.T, path string) func(*testing.T) {
			away := moved(t, path)
			must(t, os.Symlink(path+".nothing", path))
			return away
		}, "leads to no file"},
		"link to itself": {func(t *testing.T, path string) func(*testing.T) {
			away := moved(t, path)
			must(t, os.Symlink(path, path))
			return away
		}, "leads to no file"},
		"FIFO for its log": {func(t *testing.T, path string) func(*testing.T) {
			must(t, os.RemoveAll(path+"-wal"))
			must(t, unix.Mkfifo(path+"-wal", 0o600))
			return func(t *testing.T) { must(t, os.Remove(path+"-wal")) }
		}, "it is a named pipe"},
		"damaged": {func(t *testing.T, path string) func(*testing.T) {
			away := moved(t, path)
			must(t, os.WriteFile(path, []byte(strings.Repeat("no database ", 1000)), 0o600))
			return away
		}, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, err := host.Open(t.TempDir())
			must(t, err)
			shipped(t, h)
			path := filepath.Join(h.Dir, "custody.db")
			away := c.put(t, path)
			id := host.NewRunID(storetest.Start())
			run, err := h.Begin(t.Context(), host.RunOptions{ID: id, Mode: wal.Strict, Facts: statement.Facts{Tier: "none"}, Redactor: redact.New(make([]byte, 32))})
			must(t, err)
			run.Ship(t.Context())
			events := storetest.Events(40)
			for _, e := range events {
				_, err := run.Record(t.Context(), e)
				must(t, err)
			}
			ended := make(chan [2]error, 1)
			go func() {
				record, stored := run.Close(context.WithoutCancel(t.Context()), wal.Sealed)
				ended <- [2]error{record, stored}
			}()
			begun := time.Now()
			select {
			case errs := <-ended:
				t.Logf("after %v: %v", time.Since(begun), errs[1])
				must(t, errs[0])
				if errs[1] == nil || !strings.Contains(errs[1].Error(), c.want) {
					t.Errorf("error %v, want %q", errs[1], c.want)
				}
			case <-time.After(2 * time.Minute):
				t.Fatal("the end of the run still waits for the store")
			}
			if h.RunLogs().HasWhole(id) {
				t.Error("the run counts as stored")
			}
			away(t)
			must(t, h.Shipping().Ship(t.Context(), false, func(string) {}))
			st, err := h.Store(t.Context())
			must(t, err)
			defer st.Close()
			if got, err := st.Run(t.Context(), "", id); err != nil || got.Events != uint64(len(events)) {
				t.Errorf("the store has %d records of %d: %v", got.Events, len(events), err)
			}
		})
	}
}
