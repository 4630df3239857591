package wal_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/wal"
)

// The sweep injects a fault into each system call of the log, at the real
// kernel interface. The log runs in a child process (sweepchild_test.go)
// with all its file operations on one thread, to which strace is attached:
//
//	test --------------> child: log -> FS -> one thread --system calls--> kernel
//	  | what was acked <---|                     ^
//	  +----------------> strace -p THREAD -------+ call C: fails with E, or SIGKILL, the Nth time
//
// An injected error means that the kernel did not carry out the call (strace(1), "inject"); half-done calls are in
// shortwrite_test.go and in the tests with memFS.

// swept lists the system calls that are counted and failed.
const swept = "openat,read,pwrite64,write,fsync,fdatasync,rename,renameat,renameat2,close,ftruncate," +
	"fallocate,link,linkat,unlink,unlinkat,mkdir,mkdirat,flock,getdents64,fstat,newfstatat,fchown,lseek"

// sweepEvery is the stride over the runs when CUSTODY_ROUNDS is not set.
const sweepEvery = 23

// task names an operation for the child and its arguments.
type task struct {
	do  string // strict, degrade, recover, erase
	dir string
	key string // of the host, private
}

// outcome is what the child reported before it ended.
type outcome struct {
	accepted map[int]uint64 // event to seq
	acked    map[int]uint64
	dropped  map[uint64]bool // seqs
	done     bool            // it completed
	failed   string          // or its error
	killed   bool
	calls    []string // the system calls in order, until it ended
}

// sweepKey returns a key that a child can be given.
func sweepKey(t testing.TB) (key, string) {
	t.Helper()
	private, public, err := note.GenerateKey(rand.Reader, "custody-test")
	check(t, err)
	signer, err := note.NewSigner(private)
	check(t, err)
	verifier, err := note.NewVerifier(public)
	check(t, err)
	return key{signer, note.VerifierList(verifier)}, private
}

// run runs the task in a child with faults, each in the syntax of strace's inject.
func (c task) run(t *testing.T, faults ...string) outcome {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), sweepEnv+"="+c.do, "CUSTODY_SWEEP_DIR="+c.dir, "CUSTODY_SWEEP_KEY="+c.key)
	start, err := cmd.StdinPipe()
	check(t, err)
	words, err := cmd.StdoutPipe()
	check(t, err)
	cmd.Stderr = os.Stderr
	check(t, cmd.Start())
	timer := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
	lines := bufio.NewScanner(words)
	var thread int
	if lines.Scan() {
		fmt.Sscanf(lines.Text(), "thread %d", &thread)
	}
	log := filepath.Join(t.TempDir(), "calls")
	detach := trace(t, thread, log, faults)
	start.Write([]byte{'\n'})
	o := listen(t, lines)
	err = cmd.Wait()
	if !timer.Stop() {
		t.Fatalf("%s under %q hangs; it was at %v", c.do, faults, o)
	}
	o.killed = err != nil && strings.Contains(err.Error(), "killed")
	if err != nil && !o.killed {
		t.Fatalf("%s under %q: %v", c.do, faults, err)
	}
	detach()
	o.calls = callsIn(t, log)
	return o
}

// trace attaches strace to a thread, and returns a function that waits for strace to end.
func trace(t *testing.T, thread int, log string, faults []string) (wait func()) {
	t.Helper()
	args := []string{"-o", log, "-p", fmt.Sprint(thread), "-e", "trace=" + swept}
	for _, f := range faults {
		args = append(args, "-e", "inject="+f)
	}
	cmd := exec.Command("strace", args...)
	said, err := cmd.StderrPipe()
	check(t, err)
	if err := cmd.Start(); err != nil {
		t.Fatalf("strace is needed (hack/deps --test installs it): %v", err)
	}
	first, err := bufio.NewReader(said).ReadString('\n')
	if !strings.Contains(first, "attached") {
		t.Fatalf("strace: %s %v", first, err)
	}
	return func() {
		io.Copy(io.Discard, said)
		cmd.Wait() // its status is the child's
	}
}

// listen parses the child's output.
func listen(t *testing.T, lines *bufio.Scanner) outcome {
	t.Helper()
	o := outcome{accepted: map[int]uint64{}, acked: map[int]uint64{}, dropped: map[uint64]bool{}}
	for lines.Scan() {
		var what string
		var id int
		var seq uint64
		fmt.Sscanf(lines.Text(), "%s %d %d", &what, &id, &seq)
		switch what {
		case "accepted":
			o.accepted[id] = seq
		case "acked":
			o.acked[id] = seq
		case "dropped":
			o.dropped[seq] = true
		case "done":
			o.done = true
		case "failed:":
			o.failed = lines.Text()
		}
	}
	return o
}

var callName = regexp.MustCompile(`^[a-z0-9_]+`)

func callsIn(t *testing.T, log string) (calls []string) {
	t.Helper()
	data, err := os.ReadFile(log)
	check(t, err)
	for line := range strings.Lines(string(data)) {
		if name := callName.FindString(line); name != "" {
			calls = append(calls, name)
		}
	}
	return calls
}

// points lists each call of a run without faults as strace counts it: name and ordinal.
func points(calls []string) (points []point) {
	seen := map[string]int{}
	for _, c := range calls {
		seen[c]++
		points = append(points, point{c, seen[c]})
	}
	return points
}

// under runs f, and names the fault if f fails.
func under(t *testing.T, fault string, f func()) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Fatalf("the fault was %s", fault)
		}
	}()
	f()
}

type point struct {
	call string
	n    int
}

// sweep calls f for each fault at each point, or for some of them (see sweepEvery), and returns how many those were.
func sweep(t *testing.T, points []point, faults []string, f func(t *testing.T, fault string)) {
	t.Helper()
	if len(points) == 0 {
		t.Fatal("no system calls were seen")
	}
	runs := 0
	for _, p := range points {
		for _, fault := range faults {
			at := fmt.Sprintf("%s:%s:when=%d", p.call, fault, p.n)
			if strings.Contains(fault, "times") {
				at = fmt.Sprintf("%s:%s:when=%d..%d", p.call, strings.TrimSuffix(fault, " times 4"), p.n, p.n+3)
			}
			if os.Getenv("CUSTODY_ROUNDS") == "" && !chosen(t.Name()+at) {
				continue
			}
			runs++
			under(t, at, func() { f(t, at) })
		}
	}
	counts := map[string]int{}
	for _, p := range points {
		counts[p.call]++
	}
	t.Logf("%d runs with faults; system calls of a run: %v", runs, counts)
	if runs == 0 {
		t.Error("no fault was tried")
	}
}

// chosen selects one in sweepEvery, always the same ones.
func chosen(name string) bool {
	h := fnv.New32a()
	io.WriteString(h, name)
	return h.Sum32()%sweepEvery == 0
}

var sweepErrors = []string{"error=EIO", "error=ENOSPC", "error=EROFS", "error=EINTR", "error=EIO times 4", "signal=KILL"}

func TestSweepStrict(t *testing.T)  { sweepWriting(t, "strict") }
func TestSweepDegrade(t *testing.T) { sweepWriting(t, "degrade") }

func sweepWriting(t *testing.T, mode string) {
	k, private := sweepKey(t)
	clean := task{mode, runDir(t), private}.run(t)
	if !clean.done || len(clean.acked) == 0 {
		t.Fatalf("without faults: %+v", clean)
	}
	sweep(t, points(clean.calls), sweepErrors, func(t *testing.T, fault string) {
		dir := runDir(t)
		wantRecord(t, k, dir, task{mode, dir, private}.run(t, fault))
	})
	// Faults during repair: the segment cannot be truncated after a failed write, or the
	// process dies during the truncation.
	for _, second := range []string{
		"ftruncate:error=EIO:when=1", "ftruncate:error=EIO:when=1+", "ftruncate:signal=KILL:when=1",
		"fsync:signal=KILL:when=5", "fsync:error=EIO:when=5..9", "rename:signal=KILL:when=1", "renameat:signal=KILL:when=1",
	} {
		for _, first := range []string{"pwrite64:error=EIO:when=2", "fsync:error=EIO:when=4", "pwrite64:error=ENOSPC:when=3..5"} {
			if strings.HasPrefix(first, "fsync") && strings.HasPrefix(second, "fsync") {
				continue // strace accepts one set of faults for a call
			}
			under(t, first+" and "+second, func() {
				dir := runDir(t)
				wantRecord(t, k, dir, task{mode, dir, private}.run(t, first, second))
			})
		}
	}
}

// wantRecord checks the record of a writer: everything acknowledged exists, nothing twice,
// and it verifies, after recovery if the process died.
func wantRecord(t *testing.T, k key, dir string, o outcome) {
	t.Helper()
	if o.failed != "" {
		// The log could not be created. The error states that, and nothing was acknowledged.
		if len(o.accepted) > 0 || !strings.Contains(o.failed, "create record") {
			t.Errorf("%s after %d events", o.failed, len(o.accepted))
		}
		return
	}
	if !o.done && !o.killed {
		t.Error("the child ended early")
	}
	if o.killed {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) && len(o.acked) == 0 {
			return // killed before it had made the directory
		}
		if !begun(dir) && len(o.acked) == 0 {
			return
		}
		records, _ := recovered(t, dir, k)
		holds(t, records, o.acked)
		return
	}
	records := read(t, dir)
	holds(t, records, o.acked)
	holds(t, records, o.accepted)
	if got := ids(t, records); len(got) != len(o.accepted) {
		t.Errorf("%d events, want %d", len(got), len(o.accepted))
	}
	report := verify(t, dir, k)
	if n := report.Losses["wal"].Events; n != uint64(len(o.dropped)) {
		t.Errorf("%d events declared lost, %d were dropped", n, len(o.dropped))
	}
}

// begun reports whether at least a lock was created: Recover needs one.
func begun(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "lock"))
	return err == nil
}

// TestSweepRecover fails or kills the recovery of a torn run at each system call.
func TestSweepRecover(t *testing.T) {
	k, private := sweepKey(t)
	torn := tornRun(t, k)
	clean := task{"recover", copyDir(t, torn.dir), private}.run(t)
	if !clean.done {
		t.Fatalf("without faults: %+v", clean)
	}
	sweep(t, points(clean.calls), sweepErrors, func(t *testing.T, fault string) {
		dir := copyDir(t, torn.dir)
		o := task{"recover", dir, private}.run(t, fault)
		records := read
		if !o.done { // again, without a fault
			again := task{"recover", dir, private}.run(t)
			if !again.done && !strings.Contains(again.failed, wal.ErrFinished.Error()) {
				t.Errorf("recovery after a recovery that failed: %s", again.failed)
			}
		}
		holds(t, records(t, dir), torn.done.synced)
		if report := verify(t, dir, k); report.Losses["wal"].Bytes != torn.cut {
			t.Errorf("declared lost: %+v, want the torn tail of %d bytes once", report.Losses, torn.cut)
		}
	})
}

// TestSweepErase fails or kills an erasure at each system call: the record exists
// completely or not at all, and a repetition completes the erasure.
func TestSweepErase(t *testing.T) {
	k, private := sweepKey(t)
	whole := closedRun(t, k)
	before := frames(t, whole)
	clean := task{"erase", copyDir(t, whole), private}.run(t)
	if !clean.done {
		t.Fatalf("without faults: %+v", clean)
	}
	sweep(t, points(clean.calls), sweepErrors, func(t *testing.T, fault string) {
		dir := copyDir(t, whole)
		o := task{"erase", dir, private}.run(t, fault)
		after := frames(t, dir)
		if !slices.EqualFunc(before, after, sameFrame) {
			after = append([]wal.Frame(nil), after...)
			if !after[5].Erased {
				t.Error("a record other than seq 6 differs")
			}
			if o.killed || !o.done {
				check(t, wal.CompleteErase(t.Context(), dir))
			}
			wantErased(t, dir, before, 6)
		} else if o.done {
			t.Error("it reported success")
		}
		check(t, wal.Erase(t.Context(), dir, 6))
		wantErased(t, dir, before, 6)
	})
}

func sameFrame(a, b wal.Frame) bool {
	return a.Seq == b.Seq && a.Leaf() == b.Leaf() && bytes.Equal(a.Bytes, b.Bytes) && a.Erased == b.Erased
}

func copyDir(t *testing.T, dir string) string {
	t.Helper()
	to := runDir(t)
	check(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}
