package state_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/state"
)

// kill ends this process as kill -9 does.
func kill() {
	unix.Kill(os.Getpid(), unix.SIGKILL)
	select {}
}

// killer is the parts of a store that the store calls, each of which can kill the process.
type killer struct {
	state.Wrapper
	point string
	left  int // calls until the kill
}

func (k *killer) at(point string) {
	if point == k.point {
		if k.left--; k.left < 0 {
			kill()
		}
	}
}

func (k *killer) Wrap(ctx context.Context, key []byte) ([]byte, error) {
	k.at("wrap")
	return k.Wrapper.Wrap(ctx, key)
}

func (k *killer) ReadAt(b []byte, _ int64) (int, error) {
	k.at("base")
	clear(b)
	return len(b), nil
}

func (k *killer) Read([]byte) (int, error) {
	k.at("device")
	return 0, io.EOF
}

// TestChild is the child process of other tests.
func TestChild(t *testing.T) {
	what, home := os.Getenv("STATE_TEST_CHILD"), os.Getenv("STATE_TEST_HOME")
	if what == "" {
		t.Skip("it is no test of its own: other tests execute it in a process that they kill, with STATE_TEST_CHILD set")
	}
	p := &place{home: home, dir: filepath.Join(home, "paused"), key: filepath.Join(home, "keys", "state.key"), clock: newClock()}
	p.config = state.Config{Keys: state.KeyFile(p.key), Now: p.clock.now}
	if what == "claim" {
		_, err := p.open(t).Claim(t.Context(), binding)
		must(t, err)
		os.Stdout.WriteString("x")
		select {}
	}
	if what == "versions" {
		s := p.open(t)
		for i := 0; ; i++ {
			put(t, s, state.Meta{Binding: binding}, version(i))
			fmt.Println(i)
		}
	}
	k := &killer{Wrapper: p.config.Keys, point: what}
	if what == "base" {
		k.left = 5
	}
	p.config.Keys = k
	p.config.Budget = 6 << 20
	p.config.Removing = func(context.Context, state.Info, state.Reason) error { k.at("removing"); return nil }
	s := p.open(t)
	w, err := s.Create(t.Context(), of("r-2"))
	must(t, err)
	memory, err := w.Pages("memory", 16<<20, k)
	must(t, err)
	for i := range int64(8) {
		must(t, memory.Page(i<<20, incompressible(uint64(i) + 2)[:1<<19]))
	}
	must(t, w.Part("device", io.MultiReader(bytes.NewReader(incompressible(1)), k)))
	k.at("commit")
	_, err = w.Commit(t.Context())
	must(t, err)
	k.at("committed")
}

// TestKill kills a process at many points of writing a snapshot, the last while its commit removes another one for the budget. The next Open finds the
// old snapshots, the new one if its Commit had returned, and nothing else.
func TestKill(t *testing.T) {
	for _, c := range []struct {
		point string
		want  []string // the files after the next Open
	}{
		{"wrap", []string{"r-1.snapshot", "r-2.snapshot"}},
		{"base", []string{"r-1.snapshot", "r-2.snapshot"}},
		{"device", []string{"r-1.snapshot", "r-2.snapshot"}},
		{"commit", []string{"r-1.snapshot", "r-2.snapshot"}},
		{"removing", []string{"r-1.snapshot", "r-2.snapshot"}},
		{"committed", []string{"r-2.snapshot"}},
	} {
		p := newPlace(t)
		s := p.open(t)
		put(t, s, of("r-1"), string(incompressible(1)))
		put(t, s, of("r-2"), "old")
		child := exec.Command(os.Args[0], "-test.run=^TestChild$")
		child.Env = append(os.Environ(), "STATE_TEST_CHILD="+c.point, "STATE_TEST_HOME="+p.home)
		if out, err := child.CombinedOutput(); child.ProcessState.Success() {
			t.Fatalf("%s: the child was not killed: %v\n%s", c.point, err, out)
		}
		if left := len(p.names(t)) - len(c.want); left > 1 || c.point != "committed" && c.point != "wrap" && left != 1 {
			t.Errorf("%s: the kill leaves %q", c.point, p.names(t))
		}
		s = p.open(t)
		if got := p.names(t); strings.Join(got, " ") != strings.Join(c.want, " ") {
			t.Errorf("%s: after Open there are %q, want %q", c.point, got, c.want)
		}
		snap, err := s.Claim(t.Context(), of("r-2").Binding)
		must(t, err)
		want := "old"
		if c.point == "committed" {
			want = string(incompressible(1))
		}
		if device(t, snap) != want {
			t.Errorf("%s: the device differs", c.point)
		}
		must(t, snap.Release())
	}
}

// version is the device of the snapshot i.
func version(i int) string { return fmt.Sprint(i, " ", string(incompressible(uint64(i+1)))) }

// TestKillAnytime kills a process that replaces the snapshot of a run again and again. The next Open finds its last snapshot or the next one.
func TestKillAnytime(t *testing.T) {
	for round := range 20 {
		p := newPlace(t)
		child := exec.Command(os.Args[0], "-test.run=^TestChild$")
		child.Env = append(os.Environ(), "STATE_TEST_CHILD=versions", "STATE_TEST_HOME="+p.home)
		out, err := child.StdoutPipe()
		must(t, err)
		must(t, child.Start())
		last, lines := 0, bufio.NewScanner(out)
		for last < round/4 && lines.Scan() {
			last, err = strconv.Atoi(lines.Text())
			must(t, err)
		}
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) // any moment is right
		must(t, child.Process.Kill())
		for lines.Scan() {
			if n, err := strconv.Atoi(lines.Text()); err == nil {
				last = n
			}
		}
		child.Wait()
		s := p.open(t)
		snap, err := s.Claim(t.Context(), binding)
		if errors.Is(err, state.ErrNotFound) && last == 0 {
			if got := p.names(t); len(got) > 0 {
				t.Errorf("before the first snapshot there are %q", got)
			}
			continue
		}
		must(t, err)
		if got := device(t, snap); got != version(last) && got != version(last+1) {
			t.Errorf("after version %d the snapshot has %.10q", last, got)
		}
		if got := p.names(t); len(got) != 1 {
			t.Errorf("there are %q", got)
		}
		must(t, snap.Release())
	}
}

// incompressible returns 1 MiB, another one for each seed.
func incompressible(seed uint64) []byte {
	b, x := make([]byte, 1<<20), seed
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return b
}

// TestFullDisk: on a full disk nothing of the new snapshot is left, the error names the remedy, and what is stored stays.
func TestFullDisk(t *testing.T) {
	p := newPlace(t)
	must(t, os.MkdirAll(p.dir, 0o700))
	must(t, unix.Mount("custody-test", p.dir, "tmpfs", 0, "size=3m,mode=0700"))
	t.Cleanup(func() { must(t, unix.Unmount(p.dir, 0)) })
	s := p.open(t)
	put(t, s, of("r-1"), string(incompressible(1)))
	for range 3 {
		w, err := s.Create(t.Context(), of("r-2"))
		must(t, err)
		err = w.Part("device", io.MultiReader(bytes.NewReader(incompressible(1)), bytes.NewReader(incompressible(1)), bytes.NewReader(incompressible(1))))
		if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "free some") {
			t.Errorf("on a full disk: %v", err)
		}
		if got := p.names(t); len(got) != 1 {
			t.Errorf("a full disk leaves %q", got)
		}
		if _, err := w.Commit(t.Context()); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("the commit of what is not complete: %v", err)
		}
	}
	put(t, s, of("r-2"), "text")

	k, from := shared(t), newPlace(t).open(t)
	put(t, from, state.Meta{Binding: binding}, string(incompressible(1))+string(incompressible(2))+string(incompressible(3)))
	content := export(t, from, k, nil)
	if _, err := s.Import(t.Context(), bytes.NewReader(content), int64(len(content)), archived(), k, "host-1"); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "free some") {
		t.Errorf("an import on a full disk: %v", err)
	}
	if got := p.names(t); len(got) != 2 {
		t.Errorf("an import on a full disk leaves %q", got)
	}
}
