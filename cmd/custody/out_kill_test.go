package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestOutKilled: after a kill -9 in the middle of --out, the record that the next command closes lists every file that has its name.
func TestOutKilled(t *testing.T) {
	d := newDoor(t)
	const files = 700
	for _, wanted := range []int{1, 300} { // so many have their names when it dies
		out := t.TempDir()
		cmd := d.command("run", "-q", "--out", out, "--", "sh", "-c", "mkdir d; seq 700 | while read i; do echo $i >d/$i; done")
		d.start(cmd)
		named := func() (names []string) {
			entries, err := os.ReadDir(filepath.Join(out, "d"))
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			for _, e := range entries {
				if !strings.HasPrefix(e.Name(), ".custody-") && e.Type() != fs.ModeDir {
					names = append(names, "d/"+e.Name())
				}
			}
			return names
		}
		for began := time.Now(); len(named()) < wanted; time.Sleep(time.Millisecond) {
			if time.Since(began) > 2*time.Minute {
				t.Fatal("nothing came out")
			}
		}
		cmd.Process.Kill()
		cmd.Wait()
		there := named()
		d.must(0, "runs") // closes the record
		listed := map[string]bool{}
		for _, r := range d.records("last", "copy") {
			for _, f := range r.Copy.Files {
				listed[string(f.Path)] = true
			}
		}
		for _, name := range there {
			if !listed[name] {
				t.Errorf("%s has its name and is not in the record", name)
			}
		}
		t.Logf("%d of %d files had their names, %d were listed", len(there), files, len(listed))
		if len(there) < wanted || len(there) == files {
			t.Errorf("it was not killed in the middle: %d files", len(there))
		}
		d.verified("last")
	}
}
