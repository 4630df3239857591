package hostd_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/metrics/hostmetrics"
)

// awaitIdle waits until the pool has this number of idle sandboxes.
func (r *rig) awaitIdle(t *testing.T, n int) {
	t.Helper()
	for began := time.Now(); r.pooled.Stats().Idle != n; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("%+v, want %d idle", r.pooled.Stats(), n)
		}
	}
}

// TestShortOfMemory: when the host's memory gets short, warm sandboxes are ended. Runs start in new ones, and state why, until there is memory
// again. The client reads of it in the metrics.
func TestShortOfMemory(t *testing.T) {
	t.Parallel()
	var memory atomic.Int64
	memory.Store(8 << 30)
	r := newRigWith(t, rigOptions{idle: 1, users: []int{os.Getuid()}, max: 8, pool: hostd.PoolOptions{
		Available: func() (int64, error) { return memory.Load(), nil }, Meters: hostmetrics.New("test"),
	}})
	register(t, r.home, shop)
	check(t, r.useOnce(t)) // the first of its kind
	r.awaitIdle(t, 1)
	check(t, r.useOnce(t))
	r.awaitIdle(t, 1)
	cold := r.cold.Load()

	memory.Store(256 << 20)
	r.awaitIdle(t, 0)
	check(t, r.useOnce(t))
	if n := r.cold.Load(); n != cold+1 {
		t.Errorf("%d runs had no warm sandbox, want %d", n, cold+1)
	}
	memory.Store(8 << 30)
	r.awaitIdle(t, 1)

	client := hostd.NewClient(r.socket)
	defer client.Close()
	text, err := client.Metrics(t.Context())
	check(t, err)
	for _, line := range []string{
		"custody_pool_hits_total 1", `custody_pool_misses_total{reason="no_pool"} 1`, `custody_pool_misses_total{reason="no_memory"} 1`,
		`custody_pool_destroyed_total{cause="pressure"} 1`, `custody_pool_destroyed_total{cause="used"} 1`, "custody_pool_refill_duration_seconds_count 3",
		`custody_pool_sandboxes{state="idle"} 1`,
	} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("the metrics lack %q:\n%s", line, text)
		}
	}
	if strings.Contains(string(text), "go_") {
		t.Errorf("metrics of the process are among them:\n%s", text)
	}
}

// TestShortOfDisk: while the disk is full no sandbox is made: the caller waits, is notified of that, and gets one when there is room again.
func TestShortOfDisk(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	check(t, unix.Mount("custody-test", root, "tmpfs", 0, "size=64m,mode=700"))
	t.Cleanup(func() { check(t, unix.Unmount(root, unix.MNT_DETACH)) }) // after the server's end
	r := newRigWith(t, rigOptions{users: []int{os.Getuid()}, max: 8, root: root})
	_, err := r.home.Keys().Signing()
	check(t, err)
	filler := filepath.Join(root, "filler")
	fill(t, filler)

	stalled, resumed := make(chan error, 8), make(chan struct{}, 8)
	events := hostd.Events{Notice: func(string) {}, Progress: func(string) {}, Stalled: func(err error) { stalled <- err }, Resumed: func() { resumed <- struct{}{} }}
	ctx, cancel := context.WithCancel(t.Context())
	refused := make(chan error, 1)
	go func() {
		_, _, err := hostd.NewClient(r.socket).Open(ctx, spec(), events)
		refused <- err
	}()
	select {
	case err := <-stalled:
		if !strings.Contains(err.Error(), "no space left") {
			t.Errorf("it waits because of %v", err)
		}
	case err := <-refused:
		t.Fatalf("it does not wait: %v", err)
	}
	select {
	case <-r.workers:
		t.Error("a worker was started")
	default:
	}
	cancel() // a caller that does not want to wait
	if err := <-refused; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}

	opened := make(chan error, 1)
	go func() {
		sandbox, _, err := hostd.NewClient(r.socket).Open(t.Context(), spec(), events)
		if err == nil {
			err = sandbox.Close()
		}
		opened <- err
	}()
	<-stalled
	check(t, os.Remove(filler))
	<-resumed
	check(t, <-opened)
}

// fill makes a file that takes all the room of its file system.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	check(t, err)
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
}
