package sensor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// states answers what the kernel would, one after the other; the last repeats.
type states []state

func (s *states) next(int) (state, error) {
	now := (*s)[0]
	if len(*s) > 1 {
		*s = (*s)[1:]
	}
	return now, nil
}

// TestHasher: a digest is given only with the kernel's proof that it is of the content at close.
func TestHasher(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	must(t, os.WriteFile(file, []byte("content"), 0o600))
	const closed = 100
	as := func(generation uint64, writers uint32) state {
		return state{Inode: 1, Ino: 7, Generation: generation, Writers: writers}
	}
	for _, test := range []struct {
		name   string
		c      closing
		states states
		open   string
		want   string
	}{
		{"as closed", closing{size: 7}, states{as(closed, 0)}, file, sumOf("content")},
		{"opened for writing since", closing{size: 7}, states{as(closed+1, 0)}, file, unhashedChanged},
		{"another inode at the same address", closing{size: 7}, states{{Inode: 1, Ino: 8, Generation: closed}}, file, unhashedChanged},
		{"an inode of another file system at the same address", closing{size: 7}, states{{Inode: 1, Ino: 7, Dev: 1, Generation: closed}}, file, unhashedChanged},
		{"generation forgotten", closing{size: 7}, states{as(0, 0)}, file, unhashedUnknown},
		{"still open for writing elsewhere", closing{size: 7, shared: true}, states{as(closed, 1)}, file, unhashedShared},
		{"being released", closing{size: 7}, states{as(closed, 1), as(closed, 1), as(closed, 0)}, file, sumOf("content")},
		{"another had it open and has closed it", closing{size: 7, shared: true}, states{as(closed+1, 0)}, file, unhashedChanged},
		{"opened for writing while read", closing{size: 7}, states{as(closed, 0), as(closed+1, 1)}, file, unhashedRunning},
		{"written and closed while read", closing{size: 7}, states{as(closed, 0), as(closed+1, 0)}, file, unhashedRunning},
		{"forgotten while read", closing{size: 7}, states{as(closed, 0), as(0, 0)}, file, unhashedRunning},
		{"other size", closing{size: 8}, states{as(closed, 0)}, file, unhashedRunning},
		{"too large", closing{size: largestHashed + 1}, states{as(closed, 0)}, file, unhashedLarge},
		{"gone", closing{size: 7}, states{as(closed, 0)}, filepath.Join(dir, "absent"), unhashedGone},
		{"unreadable", closing{size: 7}, states{as(closed, 0)}, dir, "could not be read: EISDIR"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, o := newLine(), &outlet{}
			h := newHasher(l, func(*closing) (*os.File, error) { return os.Open(test.open) }, test.states.next)
			h.start()
			end := runLine(l, o)
			c := test.c
			c.item, c.inode, c.ino, c.generation = fileItem("f", false), 1, 7, closed
			l.push(c.item)
			h.add(nil, state{}, []*closing{&c})
			if err := l.flush(context.Background(), l.mark()); err != nil || o.got() != "[f"+test.want+"]" {
				t.Errorf("%s, %v; want %s", o.got(), err, test.want)
			}
			end()
			h.close()
		})
	}
}

// TestHasherTakesTurns: a large file does not hold up another that came after it.
func TestHasherTakesTurns(t *testing.T) {
	dir := t.TempDir()
	sizes := map[string]int64{"first": 256 << 20, "second": 2 << 20}
	for name, size := range sizes {
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		must(t, os.Truncate(filepath.Join(dir, name), size))
	}
	l, o := newLine(), &outlet{}
	defer runLine(l, o)()
	h := newHasher(l, func(c *closing) (*os.File, error) { return os.Open(filepath.Join(dir, c.path)) },
		func(int) (state, error) { return state{Generation: 1}, nil })
	h.flushes.Add(1)
	for _, name := range []string{"first", "second"} {
		c := &closing{item: fileItem(name, false), path: name, size: sizes[name], generation: 1}
		l.push(c.item)
		h.add(nil, state{}, []*closing{c})
	}
	for turns := 0; len(h.large) > 0; turns++ {
		j := h.next(&h.large)
		over := h.turn(j)
		if over && j.wants[0].path != "second" || turns > 10 {
			t.Fatalf("turn %d: %s is over: %v; want the smaller one to end first", turns, j.wants[0].path, over)
		}
		if over {
			j.close()
			l.giveUp(l.mark(), unhashedLate)
			return
		}
		h.mu.Lock()
		h.queue(j)
		h.mu.Unlock()
	}
}

// TestContent compares digests of files with holes with those of all their bytes.
func TestContent(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		f, err := os.CreateTemp(t.TempDir(), "")
		must(t, err)
		for range random.IntN(5) {
			data := bytes.Repeat([]byte{byte(1 + random.IntN(255))}, random.IntN(300<<10))
			_, err := f.WriteAt(data, random.Int64N(3<<20))
			must(t, err)
		}
		if info, err := f.Stat(); random.IntN(2) == 0 && err == nil {
			must(t, f.Truncate(info.Size()+random.Int64N(2<<20)))
		}
		whole, err := os.ReadFile(f.Name())
		must(t, err)
		want := sha256.Sum256(whole)
		c := newContent(int64(len(whole)))
		turns := 0
		for more := true; more; turns++ {
			more, err = c.read(f)
			must(t, err)
		}
		if c.sum() != hex.EncodeToString(want[:]) || c.at != int64(len(whole)) || turns > len(whole)/turnBytes+1 {
			t.Errorf("seed %d: %d bytes of %d in %d turns, digest %s", seed, c.at, len(whole), turns, c.sum())
		}
		c.erase()
		if slices.ContainsFunc(c.buf, func(b byte) bool { return b != 0 }) {
			t.Error("the buffer was not erased")
		}
		f.Close()
	}
}

func TestCache(t *testing.T) {
	c := newCache(2)
	k := func(ino uint64) key { return key{ino: ino} }
	c.put(k(1), "one")
	c.put(k(2), "two")
	c.put(k(2), "two again")
	c.put(k(3), "three")
	for ino, want := range map[uint64]string{1: "", 2: "two again", 3: "three"} {
		if got, _ := c.get(k(ino)); got != want {
			t.Errorf("%d: %q, want %q", ino, got, want)
		}
	}
	if len(c.sums) != 2 {
		t.Errorf("%d digests are kept, bound is 2", len(c.sums))
	}
}

// TestKey: two states share a cached digest only if the content cannot differ.
func TestKey(t *testing.T) {
	base := state{Inode: 1, Ino: 2, Dev: 3, Generation: 4, ContentIno: 5, ContentDev: 6}
	lower := base
	lower.ContentFs = unix.EROFS_SUPER_MAGIC_V1
	for name, change := range map[string]func(*state){
		"inode": func(s *state) { s.Inode++ }, "ino": func(s *state) { s.Ino++ }, "dev": func(s *state) { s.Dev++ },
		"generation": func(s *state) { s.Generation++ },
	} {
		other, otherLower := base, lower
		change(&other)
		change(&otherLower)
		if keyOf(base) == keyOf(other) {
			t.Errorf("%s does not part contents that can be written", name)
		}
		if keyOf(lower) != keyOf(otherLower) {
			t.Errorf("%s parts one content that is never written", name)
		}
	}
	other := lower
	other.ContentIno++
	if keyOf(lower) == keyOf(other) {
		t.Error("two files that are never written have one key: ", fmt.Sprint(keyOf(lower)))
	}
}
