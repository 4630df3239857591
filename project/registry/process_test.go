package registry

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// applier is set in processes of this program that apply versions of a project until they are killed, or the number of
// versions that CUSTODY_APPLY_COUNT names.
const applier = "CUSTODY_APPLY_DIR"

func TestMain(m *testing.M) {
	dir := os.Getenv(applier)
	if dir == "" {
		os.Exit(m.Run())
	}
	count, err := strconv.Atoi(os.Getenv("CUSTODY_APPLY_COUNT"))
	for i := 0; err == nil && i < count; i++ {
		var v Version
		v, _, err = Registry{dir}.Apply(context.Background(), text("shop", rand.IntN(1<<20)), ann, unrecorded)
		fmt.Println(v.Number)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func applying(t *testing.T, r Registry, count int) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), applier+"="+r.Dir, fmt.Sprintf("CUSTODY_APPLY_COUNT=%d", count))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// whole returns the number of versions of the project after it has read all of them.
func whole(t *testing.T, r Registry) int {
	t.Helper()
	list, err := r.History("shop")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range list {
		if _, err := r.Read("shop", v.Number); err != nil {
			t.Fatal(err)
		}
	}
	return len(list)
}

// TestConcurrent: versions that processes apply concurrently all exist, and no two have the same number.
func TestConcurrent(t *testing.T) {
	const processes, each = 4, 25
	r := newRegistry(t)
	seen := map[string]bool{}
	var cmds []*exec.Cmd
	var outs []*bufio.Scanner
	for range processes {
		cmd, out := applying(t, r, each)
		cmds, outs = append(cmds, cmd), append(outs, out)
	}
	for i, out := range outs {
		for out.Scan() {
			if seen[out.Text()] {
				t.Errorf("version %s was made twice", out.Text())
			}
			seen[out.Text()] = true
		}
		if err := cmds[i].Wait(); err != nil {
			t.Fatal(err)
		}
	}
	if n := whole(t, r); n != processes*each || len(seen) != n {
		t.Errorf("%d versions, %d were reported", n, len(seen))
	}
}

// TestKilled: after kill -9 at any moment, all versions that were reported exist, each version is whole, and the next writer
// removes what was left.
func TestKilled(t *testing.T) {
	const kills = 30
	r := newRegistry(t)
	torn := 0
	for range kills {
		cmd, out := applying(t, r, 1000)
		last := 0
		for range 1 + rand.IntN(3) { // killed soon after a version was reported: while the next one is made
			if !out.Scan() {
				t.Fatal("it ended by itself")
			}
			last, _ = strconv.Atoi(out.Text())
		}
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond) // somewhere within it
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		if n := whole(t, r); n < last {
			t.Fatalf("version %d was reported, and there are %d", last, n)
		}
		if left := leftovers(r); len(left) > 0 {
			torn++
		}
		if err := r.Tidy(); err != nil {
			t.Fatal(err)
		}
		if left := leftovers(r); len(left) > 0 {
			t.Fatalf("left: %v", left)
		}
	}
	t.Logf("%d of %d kills left files of an incomplete version", torn, kills)
}

// leftovers are the files of no version.
func leftovers(r Registry) (left []string) {
	files, _ := filepath.Glob(filepath.Join(r.Dir, "shop", "*"))
	for _, f := range files {
		stem, isText := strings.CutSuffix(f, textEnd)
		if _, err := os.Stat(stem + versionEnd); strings.HasSuffix(f, tempEnd) || isText && err != nil {
			left = append(left, filepath.Base(f))
		}
	}
	return left
}
