package hostlog

import (
	"bufio"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"
)

// TestMain also runs as the child process that appends: CUSTODY_TEST_DIR is the log, CUSTODY_TEST_KEY the key,
// CUSTODY_TEST_NAME the prefix of its entries, CUSTODY_TEST_COUNT the number of entries. It prints "open", then
// "add INDEX ENTRY" after each Add and "publish SIZE" after each Publish.
func TestMain(m *testing.M) {
	if dir := os.Getenv("CUSTODY_TEST_DIR"); dir != "" {
		if err := child(dir); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func child(dir string) error {
	s, err := note.NewSigner(os.Getenv("CUSTODY_TEST_KEY"))
	if err != nil {
		return err
	}
	v, err := note.NewVerifier(os.Getenv("CUSTODY_TEST_VKEY"))
	if err != nil {
		return err
	}
	ctx := context.Background()
	l, err := Open(ctx, Options{Dir: dir, Signer: s, Verifier: v})
	if err != nil {
		return err
	}
	fmt.Println("open")
	count, _ := strconv.Atoi(os.Getenv("CUSTODY_TEST_COUNT"))
	for i := range count {
		entry := fmt.Sprintf("%s/%d", os.Getenv("CUSTODY_TEST_NAME"), i)
		index, err := l.Add(ctx, []byte(entry))
		if err != nil {
			return err
		}
		fmt.Println("add", index, entry)
		if i%3 == 2 {
			cp, err := l.Publish(ctx, index)
			if err != nil {
				return err
			}
			fmt.Println("publish", strings.Split(string(cp), "\n")[1])
		}
	}
	return l.Close(ctx)
}

// appender is a child process and its output.
type appender struct {
	cmd   *exec.Cmd
	mu    sync.Mutex        // guards the others
	added map[uint64]string // index -> entry
	size  uint64            // largest published
	wrong string
	open  chan struct{} // closed when the log is open
	done  chan struct{} // closed when the process has ended
}

func spawn(t *testing.T, dir, name, skey, vkey string, count int) *appender {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CUSTODY_TEST_DIR="+dir, "CUSTODY_TEST_KEY="+skey, "CUSTODY_TEST_VKEY="+vkey,
		"CUSTODY_TEST_NAME="+name, fmt.Sprint("CUSTODY_TEST_COUNT=", count))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a := &appender{cmd: cmd, added: map[uint64]string{}, open: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(a.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			a.line(lines.Text())
		}
		cmd.Wait()
	}()
	t.Cleanup(func() { cmd.Process.Kill(); <-a.done })
	return a
}

func (a *appender) line(s string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := strings.Fields(s)
	switch {
	case len(f) == 3 && f[0] == "add":
		i, _ := strconv.ParseUint(f[1], 10, 64)
		a.added[i] = f[2]
	case len(f) == 2 && f[0] == "publish":
		a.size, _ = strconv.ParseUint(f[1], 10, 64)
	case s == "open":
		close(a.open)
	default:
		a.wrong = s
	}
}

func rounds(n int) int {
	if set, err := strconv.Atoi(os.Getenv("CUSTODY_ROUNDS")); err == nil {
		return set
	}
	return n
}

// TestProcesses: several processes append concurrently; each index is assigned once.
func TestProcesses(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "log")
	skey, vkey := keyText(t)
	var all []*appender
	for i := range 4 {
		all = append(all, spawn(t, dir, fmt.Sprint("p", i), skey, vkey, 40))
	}
	for _, a := range all {
		<-a.done
	}
	verifyAll(t, dir, skey, vkey, all, 160)
}

// TestKilled kills processes at random moments while others append, reopens the log and checks every index and
// checkpoint that a process returned.
func TestKilled(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "log")
	skey, vkey := keyText(t)
	var all []*appender
	for round := range rounds(20) {
		now := []*appender{
			spawn(t, dir, fmt.Sprintf("r%da", round), skey, vkey, 1000),
			spawn(t, dir, fmt.Sprintf("r%db", round), skey, vkey, 1000),
		}
		for _, a := range now {
			select {
			case <-a.open:
			case <-a.done:
			case <-time.After(time.Duration(rand.Int64N(int64(time.Second)))): // sometimes while it opens the log
			}
			time.Sleep(time.Duration(rand.Int64N(int64(25 * time.Millisecond))))
			a.cmd.Process.Kill()
		}
		for _, a := range now {
			<-a.done
		}
		all = append(all, now...)
		if round%5 == 4 {
			verifyAll(t, dir, skey, vkey, all, 0)
		}
	}
	verifyAll(t, dir, skey, vkey, all, uint64(rounds(20)/2)) // on a busy machine many are killed before they append
}

func keyText(t *testing.T) (skey, vkey string) {
	t.Helper()
	skey, vkey, err := note.GenerateKey(crand.Reader, "custody-test")
	if err != nil {
		t.Fatal(err)
	}
	return skey, vkey
}

// verifyAll reopens the log, publishes its entries and compares it with the processes' output. least is the minimum
// number of entries.
func verifyAll(t *testing.T, dir, skey, vkey string, all []*appender, least uint64) {
	t.Helper()
	s, err := note.NewSigner(skey)
	if err != nil {
		t.Fatal(err)
	}
	v, err := note.NewVerifier(vkey)
	if err != nil {
		t.Fatal(err)
	}
	k := key{s, v}
	l := mustOpen(t, dir, k)
	end := mustAdd(t, l, []byte("last"))
	mustPublish(t, l, end)
	r := reader(t, dir, k)
	if err := r.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	var entries []string
	for e, err := range r.Entries(t.Context(), 0, end+1) {
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, string(e))
	}
	given := map[uint64]string{}
	for _, a := range all {
		if a.wrong != "" {
			t.Errorf("a process reports %s", a.wrong)
		}
		for i, e := range a.added {
			if other, ok := given[i]; ok {
				t.Errorf("index %d was given to %s and %s", i, other, e)
			}
			if given[i] = e; i >= uint64(len(entries)) || entries[i] != e {
				t.Errorf("%s was acknowledged at %d and is missing", e, i)
			}
		}
		if a.size > end {
			t.Errorf("%d entries were published, there are %d", a.size, end)
		}
	}
	seen := map[string]int{}
	for _, e := range entries {
		if seen[e]++; seen[e] > 1 && e != "last" {
			t.Errorf("%s is there %d times", e, seen[e])
		}
	}
	if uint64(len(given)) < least {
		t.Errorf("%d entries were acknowledged, want %d", len(given), least)
	}
	strays(t, dir)
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// strays fails if a killed writer's temporary files still exist.
func strays(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && (stray.MatchString(d.Name()) || strings.HasSuffix(path, ".tmp")) {
			t.Errorf("%s was left", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestDisk: errors from a full disk, and from a file system that turns read-only, are transient.
func TestDisk(t *testing.T) {
	dir := filepath.Join(tempDir(t), "disk")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=400k,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		retryBusy(t, func() error { return unix.Unmount(dir, 0) })
	})
	k := newKey(t, "custody-test")
	ballast, logDir := filepath.Join(dir, "ballast"), filepath.Join(dir, "log")
	if err := os.WriteFile(ballast, make([]byte, 100<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	l := mustOpen(t, logDir, k)
	n := fillDisk(t, l)
	for range 3 { // like a caller that retries until there is space
		if _, err := l.Add(t.Context(), manifest(0)); !errors.Is(err, unix.ENOSPC) && !strings.Contains(fmt.Sprint(err), "no space") {
			t.Errorf("on a full disk: %v", err)
		}
	}
	strays(t, logDir)
	if _, err := reader(t, logDir, k).Checkpoint(t.Context()); err != nil {
		t.Errorf("on a full disk: %v", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	index := mustAdd(t, l, []byte("there is space"))
	if index < n {
		t.Errorf("index %d was given again", index)
	}
	mustPublish(t, l, index)

	remount(t, dir, unix.MS_RDONLY)
	if _, err := l.Add(t.Context(), []byte("x")); !errors.Is(err, unix.EROFS) {
		t.Errorf("on a read-only disk: %v", err)
	}
	remount(t, dir, 0)
	mustPublish(t, l, mustAdd(t, l, []byte("y")))
	if err := reader(t, logDir, k).Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// fillDisk adds and publishes until one of the two fails for lack of space, and returns the number of added entries.
func fillDisk(t *testing.T, l *Log) (added uint64) {
	t.Helper()
	for i := range 10000 {
		index, err := l.Add(t.Context(), manifest(i))
		if err == nil {
			added = index + 1
			_, err = l.Publish(t.Context(), index)
		}
		if err != nil {
			return added
		}
	}
	t.Fatal("the disk never fills up")
	return 0
}

func remount(t *testing.T, dir string, flags uintptr) {
	t.Helper()
	retryBusy(t, func() error {
		return unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT|flags, "size=400k,mode=0700")
	})
}

// retryBusy retries while the file system is busy: Tessera reads one of its files after each Add.
func retryBusy(t *testing.T, do func() error) {
	t.Helper()
	err := do()
	for range 200 {
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(10 * time.Millisecond)
		err = do()
	}
	if err != nil {
		t.Fatal(err)
	}
}
