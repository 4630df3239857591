package confine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestUIDLeases: no uid is leased twice, and a released one can be leased again.
func TestUIDLeases(t *testing.T) {
	a, err := LeaseUID()
	ok(t, err)
	b, err := LeaseUID()
	ok(t, err)
	defer b.Release()
	if a.uid == b.uid {
		t.Fatalf("both got %d", a.uid)
	}
	if _, err := tryUID(a.uid); !errors.Is(err, errLeased) {
		t.Errorf("a leased uid was leased again: %v", err)
	}
	path := filepath.Join(uidDir, strconv.Itoa(a.uid))
	a.Release()
	if _, err := os.Stat(path); err == nil {
		t.Errorf("%s stays", path)
	}
	c, err := tryUID(a.uid)
	ok(t, err)
	c.Release()
}

// TestSweep: Sweep removes a group whose uid is free and keeps one whose uid is leased.
func TestSweep(t *testing.T) {
	dead, err := LeaseUID()
	ok(t, err)
	live, err := LeaseUID()
	ok(t, err)
	defer live.Release()
	_, err = NewGroup(dead.uid, 1, 128<<20)
	ok(t, err)
	liveGroup, err := NewGroup(live.uid, 1, 128<<20)
	ok(t, err)
	defer liveGroup.Remove()
	dead.Release()
	ok(t, Sweep())
	group := func(uid int) string {
		return filepath.Join("/sys/fs/cgroup", anyController(), cgroupParent, strconv.Itoa(uid))
	}
	if _, err := os.Stat(group(dead.uid)); err == nil {
		t.Error("the group of a dead machine stays")
	}
	if _, err := os.Stat(group(live.uid)); err != nil {
		t.Error("the group of a live machine is gone")
	}
}

// TestNoSwap: a VM's control group prevents or limits swapping of its memory.
func TestNoSwap(t *testing.T) {
	l, err := LeaseUID()
	ok(t, err)
	defer l.Release()
	c, err := NewGroup(l.uid, 1, 128<<20)
	ok(t, err)
	defer func() { ok(t, c.Remove()) }()
	want := map[string]string{"memory.swap.max": "0"}
	if c.v1 != nil {
		want = map[string]string{"memory.swappiness": "0", "memory.memsw.limit_in_bytes": strconv.Itoa(128<<20 + memoryOverhead)}
	}
	for name, want := range want {
		b, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", anyController(), cgroupParent, strconv.Itoa(l.uid), name))
		if errors.Is(err, fs.ErrNotExist) && name != "memory.swappiness" {
			continue // a kernel without accounting of swap
		}
		if got := strings.TrimSpace(string(b)); err != nil || got != want {
			t.Errorf("%s is %q, %v, want %s", name, got, err, want)
		}
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
