package docs_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/proof/verdict"
)

// TestRedoLimits: all checkers accept a file of the maximum length in verify.md, and refuse a longer one.
func TestRedoLimits(t *testing.T) {
	t.Parallel()
	s, others := newScene(t), newCheckers(t)
	limits := map[string]int{}
	units := map[string]int{"KiB": 1 << 10, "MiB": 1 << 20}
	for _, row := range regexp.MustCompile(`(?m)^\| bytes in ([^|]+?) \| (\d+) (KiB|MiB)( and 1 KiB)?(?: each)? \|$`).FindAllStringSubmatch(page(t, "verify.md"), -1) {
		var n int
		fmt.Sscan(row[2], &n)
		n = n*units[row[3]] + len(row[4])/len(" and 1 KiB")<<10
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			limits[strings.Replace(name[1], "N", "00000000000000000001", 1)] = n
		}
		if row[1] == "an attached file" {
			limits["report/x"] = n
		}
		if row[1] == "any other file" {
			for _, name := range []string{"README.txt", "host.pub", "checkpoint", "checkpoint.tsr", "since", "selection", "attachments", "trailer"} {
				limits[name] = n
			}
			for _, suffix := range []string{"manifest", "erasure", "rotation", "host", "witnessed.tsr"} {
				limits["00000000000000000001."+suffix] = n
			}
		}
	}
	if len(limits) != 21 {
		t.Fatalf("the table has limits of %d files: %v", len(limits), limits)
	}
	trust := proof.Trust{Keys: note.VerifierList(must(s.key.Verifier()))}
	for name, most := range limits {
		for _, size := range []int{most, most + 1} {
			f := maps.Clone(s.truth)
			if name == "since" || name == "consistency" {
				f["since"], f["consistency"] = s.truth["since"], s.truth["consistency"]
			}
			f[name] = bytes.Repeat([]byte("x"), size)
			if name != "trailer" {
				f = prooftest.Bundle(f).Seal(t, s.key)
			}
			bundle := write(t, f)
			got, err := ours(t, bundle, trust)
			if errors.Is(err, verdict.ErrBundleSize) != (size > most) {
				t.Errorf("%s of %d bytes: %v", name, size, err)
			}
			others.agree(fmt.Sprintf("%s of %d bytes", name, size), got, err, bundle, "--key", s.key.Public)
		}
	}
}

// TestRedoTotals: the script limits the number of files and their total size. Package proof tests these limits of verify.
func TestRedoTotals(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	bundle := write(t, s.truth)
	bytes := 0
	for _, b := range s.truth {
		bytes += len(b)
	}
	for limit, want := range map[string]int{
		fmt.Sprintf("FILES = %d", len(s.truth)): 0, fmt.Sprintf("FILES = %d", len(s.truth)-1): 1,
		fmt.Sprintf("BYTES = %d", bytes): 0, fmt.Sprintf("BYTES = %d", bytes-1): 1,
	} {
		program := "import sys, verify; verify." + limit + "; sys.argv = ['verify.py'] + sys.argv[1:]; verify.run()"
		c := exec.Command("python3", "-B", "-c", program, bundle, "--key", s.key.Public)
		out, _ := c.CombinedOutput()
		if code := c.ProcessState.ExitCode(); code != want {
			t.Errorf("%s: %d, want %d: %s", limit, code, want, out)
		}
	}
}

// TestRedoUnread: a file that cannot be read is an error, not a finding about the record.
func TestRedoUnread(t *testing.T) {
	t.Parallel()
	s, dir := newScene(t), t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, dir, os.DevNull, filepath.Join(dir, "nothing")} {
		if code, out := theirs(t, path, s.arguments...); code != 2 {
			t.Errorf("%s: %d, %s", path, code, out)
		}
	}
	large := filepath.Join(dir, "large.tar")
	if err := errors.Join(os.WriteFile(large, nil, 0o600), os.Truncate(large, 8<<30)); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("sh", "-c", `ulimit -v 1000000; exec python3 -I verify.py "$@"`, "sh", large, "--key", s.key.Public).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "MemoryError") {
		t.Errorf("without memory: %v: %s", err, out)
	}
}
