package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/custody-project/custody/internal/sampleruns"
)

// TestServeBundleKilled: the temporary directory of a killed serve of a bundle goes with the next command that reads a bundle; that of a
// live one stays.
func TestServeBundleKilled(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	run := sampleruns.Record(t, d.home, sampleruns.Large(100))
	bundle := filepath.Join(d.dir, "run.bundle")
	d.must(0, "bundle", run, "-o", bundle)
	temp := t.TempDir()
	d.env = append(d.env, "TMPDIR="+temp)
	left := func() int {
		t.Helper()
		dirs, err := filepath.Glob(filepath.Join(temp, "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(dirs)
	}
	var err error
	if d.stdin, err = os.Open(bundle); err != nil {
		t.Fatal(err)
	}
	defer d.stdin.Close()
	killed, live := d.serving("-"), d.serving(bundle)
	if left() != 2 {
		t.Fatalf("%d directories of two servers", left())
	}
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed.cmd.Wait()
	if left() != 2 {
		t.Fatalf("%d directories after the kill", left())
	}
	d.must(0, "timeline", bundle)
	if left() != 1 {
		t.Errorf("%d directories after the next command: want that of the live server", left())
	}
	live.stop()
	if left() != 0 {
		t.Errorf("%d directories after the live server's end", left())
	}
}
