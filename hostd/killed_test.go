package hostd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/worker"
)

// witness sees each sandbox that a run gets.
type witness struct {
	hostd.Opener
	t *testing.T

	mu   sync.Mutex // guards the fields below
	all  []hostd.Marks
	live map[any]string // uids and networks, and the machine that has them
}

// Open implements hostd.Opener.
func (w *witness) Open(ctx context.Context, s hostd.Spec, e hostd.Events) (worker.Sandbox, hostd.Details, error) {
	sandbox, details, err := w.Opener.Open(ctx, s, e)
	if err != nil {
		return nil, details, err
	}
	m, err := hostd.MarksOf(sandbox)
	if err != nil {
		return nil, details, errors.Join(err, sandbox.Close())
	}
	w.begin(m)
	return &witnessed{sandbox, w, m}, details, nil
}

// begin reports a sandbox that another run has had, or that shares something with another one.
func (w *witness) begin(m hostd.Marks) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.ContainsFunc(w.all, func(earlier hostd.Marks) bool { return earlier.Machine == m.Machine }) {
		w.t.Errorf("the sandbox %s is used twice", m.Machine)
	}
	w.all = append(w.all, m)
	for _, key := range []any{m.UID, m.Network} {
		if other, ok := w.live[key]; ok {
			w.t.Errorf("the sandboxes %s and %s have both %v", other, m.Machine, key)
		}
		w.live[key] = m.Machine
	}
}

// end is called before a sandbox gives up what it has.
func (w *witness) end(m hostd.Marks) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range []any{m.UID, m.Network} {
		if w.live[key] == m.Machine {
			delete(w.live, key)
		}
	}
}

// witnessed is a sandbox of a witness.
type witnessed struct {
	worker.Sandbox
	witness *witness
	marks   hostd.Marks
}

// End implements worker.Sandbox.
func (w *witnessed) End() error {
	w.witness.end(w.marks)
	return w.Sandbox.End()
}

// Close implements worker.Sandbox.
func (w *witnessed) Close() error {
	w.witness.end(w.marks)
	return w.Sandbox.Close()
}

// children returns the processes below one of this process, by their arguments.
func children(pid int) map[int]string {
	all := map[int]string{}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		list, _ := os.ReadFile(task)
		for _, word := range strings.Fields(string(list)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				continue
			}
			args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
			all[child] = string(bytes.ReplaceAll(args, []byte{0}, []byte{' '}))
			for pid, args := range children(child) {
				all[pid] = args
			}
		}
	}
	return all
}

// killer kills processes of sandboxes at random until ctx is done, and returns how many of each kind.
func killer(ctx context.Context) map[string]int {
	killed := map[string]int{}
	for ctx.Err() == nil {
		select {
		case <-time.After(time.Duration(rand.IntN(1000)) * time.Millisecond):
		case <-ctx.Done():
		}
		kind := []string{"custody ", "runsc-sandbox", "runsc-gofer", " run --pass-fd="}[rand.IntN(4)]
		var victims []int
		for pid, args := range children(os.Getpid()) {
			if strings.Contains(args, kind) {
				victims = append(victims, pid)
			}
		}
		if len(victims) > 0 && unix.Kill(victims[rand.IntN(len(victims))], unix.SIGKILL) == nil {
			killed[kind]++
		}
	}
	return killed
}

// TestKilled: 200 callers have runs carried out concurrently, in warm sandboxes or in new ones, while workers and machines are killed at
// random. No sandbox is used twice, none is left, each caller gets an answer, and each record is closed.
func TestKilled(t *testing.T) {
	const callers, live = 200, 12
	w := &witness{t: t, live: map[any]string{}}
	before := openFiles(t)
	t.Run("runs", func(t *testing.T) {
		r := newRigWith(t, rigOptions{idle: 4, users: []int{os.Getuid()}, max: 1024, sandboxes: func(o hostd.Opener) hostd.Opener {
			w.Opener = o
			return hostd.NewQueue(w, live)
		}})
		register(t, r.home, shop)
		check(t, r.useOnce(t)) // the isolation is probed
		ctx, stop := context.WithCancel(t.Context())
		var killing, all sync.WaitGroup
		var killed map[string]int
		killing.Go(func() { killed = killer(ctx) })
		var ended, failed atomic.Int32
		for range callers {
			all.Go(func() {
				if err := r.useOnce(t); err != nil {
					failed.Add(1)
					t.Log(err)
					return
				}
				ended.Add(1)
			})
		}
		all.Wait()
		stop()
		killing.Wait()
		t.Logf("%d runs ended as usual, %d failed, %d had no warm sandbox; %d sandboxes; killed: %v", ended.Load(), failed.Load(), r.cold.Load(), len(w.all), killed)
		if ended.Load()+failed.Load() != callers || ended.Load() == 0 || r.cold.Load() > callers || len(killed) < 4 {
			t.Error("the test does not see what it is for")
		}
		if n := r.closed(t); n < int(ended.Load()) {
			t.Errorf("%d records", n)
		}
	})
	if len(w.live) > 0 {
		t.Errorf("sandboxes did not end: %v", w.live)
	}
	w.nothingLeft(before)
}

// useOnce carries out a run, which fails if its sandbox has had another one. The error is why it did not end as usual.
func (r *rig) useOnce(t *testing.T) error {
	var out bytes.Buffer
	job, err := r.prepare(t, "mkdir /workspace/used && sleep 0.2 && echo unused", &out)
	if err != nil {
		return err
	}
	res, err := job.Run(t.Context())
	if err := job.Close(); err != nil {
		t.Log("close:", err)
	}
	switch err := errors.Join(err, res.Err); {
	case err != nil:
		return err
	case res.ExitCode == 0 && out.String() != "unused\n" || res.ExitCode == 1:
		t.Errorf("exit code %d, output %q: the sandbox was used before", res.ExitCode, out.String())
	case res.ExitCode != 0:
		return fmt.Errorf("exit code %d", res.ExitCode)
	}
	return nil
}

// closed returns the number of records. It fails the test if one is not closed or does not verify.
func (r *rig) closed(t *testing.T) (n int) {
	t.Helper()
	r.own.CloseLog = run.CloseLogThrough(hostd.NewClient(r.socket))
	check(t, r.own.Tidy(t.Context(), func(text string) { t.Log(text) }))
	trusted, err := r.home.Keys().Trusted()
	check(t, err)
	runs, err := os.ReadDir(filepath.Dir(r.own.RunDir("r-1")))
	check(t, err)
	for _, d := range runs {
		if !strings.HasPrefix(d.Name(), "r-") {
			continue
		}
		e, err := proof.OpenDir(r.own.RunDir(d.Name()))
		check(t, err)
		report, err := proof.Verify(t.Context(), e, proof.Trust{Keys: trusted, Unlogged: true})
		if err != nil || report.Closing == "" {
			t.Errorf("the record of %s is closed as %q: %v", d.Name(), report.Closing, err)
		}
		check(t, e.Close())
		n++
	}
	return n
}

// openFiles counts the open files of this process that belong to sandboxes: leases, namespaces, devices, memory and disks.
func openFiles(t *testing.T) map[string]int {
	t.Helper()
	all := map[string]int{}
	fds, err := filepath.Glob("/proc/self/fd/*")
	check(t, err)
	for _, fd := range fds {
		name, _ := os.Readlink(fd)
		for _, kind := range []string{"/run/custody/", "net:[", "mnt:[", "/dev/net/tun", "/dev/loop", "memfd:", "bpf", "deleted", "socket:", "pipe:"} {
			if strings.Contains(name, kind) {
				all[kind]++
			}
		}
	}
	return all
}

// nothingLeft fails the test if something of a sandbox is left on the host, or open in this process.
func (w *witness) nothingLeft(before map[string]int) {
	w.t.Helper()
	var left []string
	for range 3000 { // the kernel detaches disks a moment after their last user has ended
		if left = w.traces(before); len(left) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Errorf("left: %q", left)
}

func (w *witness) traces(before map[string]int) (left []string) {
	w.t.Helper()
	for kind, n := range openFiles(w.t) {
		if n > before[kind] {
			left = append(left, fmt.Sprintf("%d open files: %s", n-before[kind], kind))
		}
	}
	for pid, args := range children(os.Getpid()) {
		left = append(left, fmt.Sprintf("the process %d: %s", pid, args))
	}
	spaces := map[string]bool{}
	for _, m := range w.all {
		spaces[m.Network] = true
		for _, pattern := range []string{"/run/custody/gvisor/%s-*", "/sys/fs/cgroup/*/custody/gvisor-%s-*", "/sys/fs/cgroup/custody/gvisor-%s-*"} {
			found, err := filepath.Glob(fmt.Sprintf(pattern, m.Machine))
			check(w.t, err)
			left = append(left, found...)
		}
	}
	links, err := filepath.Glob("/proc/[0-9]*/task/[0-9]*/ns/net")
	check(w.t, err)
	for _, link := range links {
		if space, err := os.Readlink(link); err == nil && spaces[space] {
			left = append(left, link+" is "+space)
		}
	}
	return left
}
