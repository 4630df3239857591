package transfer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/workspace"
)

// TestHostileNames: no name that is not a clean relative path is used in any call.
func TestHostileNames(t *testing.T) {
	sc := newScene(t)
	c, _ := connect(t, NewServer(nil, sc.destination(t, 1<<20)))
	must(t, c.Open(t.Context()))
	before := list(t, sc.out)
	for _, name := range []string{
		"", ".", "..", "/", "../outside/x", "dir/../../outside/x", "dir/..", "/etc/x", sc.base + "/outside/x", "dir//x", "dir/", "./x", "a\x00b",
		strings.Repeat("x", 256), strings.Repeat("x/", 201) + "x", strings.Repeat("xxxxxxx/", 600) + "x",
	} {
		ok, warning, err := c.Directory(t.Context(), name, 0o755)
		if err == nil || ok {
			t.Errorf("directory %.40q: %v, %q, %v", name, ok, warning, err)
		}
		if p, err := c.File(t.Context(), name, channel.Attributes{}); err == nil || p.ID != 0 {
			t.Errorf("file %.40q: %+v, %v", name, p, err)
		}
		if p, err := c.Link(t.Context(), name, "file"); err == nil || p.ID != 0 {
			t.Errorf("link %.40q: %+v, %v", name, p, err)
		}
	}
	if now := list(t, sc.out); fmt.Sprint(now) != fmt.Sprint(before) {
		t.Errorf("there is %v, there was %v", now, before)
	}
	sc.check(t)
}

// TestHostileDirectories: a file is made only in a directory that the server has found to be one.
func TestHostileDirectories(t *testing.T) {
	sc := newScene(t)
	c, _ := connect(t, NewServer(nil, sc.destination(t, 1<<20)))
	must(t, c.Open(t.Context()))
	for _, dir := range []string{"owner", "owner/deep", "file", "missing", "dir"} {
		if p, err := put(c, dir+"/x", "evil", 0o644); err == nil || p.ID != 0 {
			t.Errorf("file in %s, without a directory call: %+v, %v", dir, p, err)
		}
	}
	for _, dir := range []string{"owner", "owner/deep", "file", "file/deep"} {
		if ok, _, err := c.Directory(t.Context(), dir, 0o755); ok || err != nil {
			t.Errorf("directory %s: %v, %v", dir, ok, err)
		}
		if p, err := put(c, dir+"/x", "evil", 0o644); err == nil || p.ID != 0 {
			t.Errorf("file in %s: %+v, %v", dir, p, err)
		}
		if p, err := c.Link(t.Context(), dir+"/x", "y"); err != nil || p.ID != 0 || len(p.Warnings) == 0 {
			t.Errorf("link in %s: %+v, %v", dir, p, err)
		}
	}
	sc.check(t)
}

// TestHostileLinks: no link leads out.
func TestHostileLinks(t *testing.T) {
	sc := newScene(t)
	c, _ := connect(t, NewServer(nil, sc.destination(t, 1<<20)))
	must(t, c.Open(t.Context()))
	for _, target := range []string{"", "/", "/etc/passwd", "..", "../outside", "dir/../..", "owner", "owner/victim", "a\x00b", strings.Repeat("x/", 4000)} {
		if p, err := c.Link(t.Context(), "link", target); err != nil || p.ID != 0 || len(p.Warnings) != 1 {
			t.Errorf("link to %.40q: %+v, %v", target, p, err)
		}
	}
	sc.check(t)
}

// TestGuardedNames: what the host executes does not get its name, whatever the worker asks.
func TestGuardedNames(t *testing.T) {
	sc := newScene(t)
	s := NewServer(nil, sc.destination(t, 1<<20))
	c, _ := connect(t, s)
	must(t, c.Open(t.Context()))
	for _, dir := range []string{".git", ".git/hooks"} {
		if ok, _, err := c.Directory(t.Context(), dir, 0o755); !ok || err != nil {
			t.Fatalf("%s: %v, %v", dir, ok, err)
		}
	}
	for _, name := range []string{".git/hooks/x", ".git/config", ".envrc"} {
		p, err := put(c, name, "evil", 0o755)
		must(t, err)
		if p.As != name+workspace.Suffix || len(p.Warnings) != 1 {
			t.Errorf("%s gets the name %q: %q", name, p.As, p.Warnings)
		}
		_, err = c.Place(t.Context(), []channel.PartID{p.ID})
		must(t, err)
		if _, err := os.Lstat(filepath.Join(sc.out, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s has its name: %v", name, err)
		}
		if p, err := c.Link(t.Context(), name, "file"); err != nil || p.ID != 0 {
			t.Errorf("link %s: %+v, %v", name, p, err)
		}
	}
	must(t, s.Close())
	sc.check(t)
}

// TestHostileModes: no mode has more than permissions, nor others write what they could not before.
func TestHostileModes(t *testing.T) {
	sc := newScene(t)
	in := t.TempDir()
	must(t, os.WriteFile(filepath.Join(in, "shared"), nil, 0o644))
	must(t, os.Chmod(filepath.Join(in, "shared"), 0o664))
	from := channel.NewSourceDir(in, nil)
	_, err := from.Pack(t.Context(), io.Discard)
	must(t, err)
	s := NewServer(from, channel.NewDestinationDir(sc.out, channel.Protect{From: from, Limit: 1 << 20}))
	c, _ := connect(t, s)
	must(t, c.Open(t.Context()))
	for name, want := range map[string]fs.FileMode{"shared": 0o775, "new": 0o755} {
		p, err := put(c, name, "x", math.MaxUint32)
		must(t, err)
		_, err = c.Place(t.Context(), []channel.PartID{p.ID})
		must(t, err)
		if info, err := os.Lstat(filepath.Join(sc.out, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, want %v, %v", name, info.Mode(), want, err)
		}
	}
	if ok, _, err := c.Directory(t.Context(), "made", math.MaxUint32); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if info, err := os.Lstat(filepath.Join(sc.out, "made")); err != nil || info.Mode() != fs.ModeDir|0o755 {
		t.Errorf("made: %v, %v", info.Mode(), err)
	}
	sc.check(t)
}

// TestHostileParts: parts are placed once, complete, and not more than 256 wait.
func TestHostileParts(t *testing.T) {
	sc := newScene(t)
	s := NewServer(nil, sc.destination(t, 1<<20))
	c, conn := connect(t, s)
	refused := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	_, err := put(c, "a", "x", 0o644)
	refused("before open", err)
	must(t, c.Open(t.Context()))
	refused("open twice", c.Open(t.Context()))
	p, err := put(c, "a", "x", 0o644)
	must(t, err)
	for what, ids := range map[string][]channel.PartID{
		"no part": {0}, "an unknown part": {99}, "the same twice": {p.ID, p.ID}, "one of them unknown": {p.ID, 99}, "a huge number": {math.MaxUint64},
	} {
		_, err := c.Place(t.Context(), ids)
		refused(what, err)
	}
	if _, err := os.Lstat(filepath.Join(sc.out, "a")); err == nil {
		t.Error("a refused call has placed the part")
	}
	_, err = c.Place(t.Context(), []channel.PartID{p.ID})
	must(t, err)
	_, err = c.Place(t.Context(), []channel.PartID{p.ID})
	refused("placed twice", err)
	refused("dropped after it was placed", c.Drop(t.Context(), p.ID))
	half, err := c.File(t.Context(), "half", channel.Attributes{Size: 4})
	must(t, err)
	_, err = io.WriteString(half.Content, "xx")
	must(t, err)
	must(t, half.Content.Close())
	_, err = c.Place(t.Context(), []channel.PartID{half.ID})
	refused("half of the content", err)
	must(t, c.Drop(t.Context(), half.ID))
	for i := range 256 { // their contents do not come
		_, err := c.File(t.Context(), fmt.Sprint(i), channel.Attributes{Size: 4})
		must(t, err)
	}
	_, err = c.File(t.Context(), "more", channel.Attributes{})
	refused("257 parts", err)
	_, err = c.Link(t.Context(), "more", "a")
	refused("257 parts", err)
	_, err = conn.Call(t.Context(), callDirectory, map[string]any{"Name": []byte("x"), "Root": "/"}, nil)
	refused("an unknown field", err)
	must(t, s.Close())
	_, err = put(c, "late", "x", 0o644)
	refused("after the end", err)
	sc.check(t)
}

// TestManyDrops: a worker that keeps its ends of pipes uses up nothing in the other process.
func TestManyDrops(t *testing.T) {
	sc := newScene(t)
	s := NewServer(nil, sc.destination(t, 1<<20))
	handlers := s.Handlers()
	_, _, err := handlers[callOpen](t.Context(), []byte("{}"), nil)
	must(t, err)
	open := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(all)
	}
	before := open()
	var kept []*os.File
	for i := range 300 {
		body, _ := json.Marshal(fileCall{[]byte(fmt.Sprint(i)), channel.Attributes{Size: 4}})
		r, files, err := handlers[callFile](t.Context(), body, nil)
		must(t, err)
		kept = append(kept, files...)
		body, _ = json.Marshal(dropCall{r.(partResult).ID})
		_, _, err = handlers[callDrop](t.Context(), body, nil)
		must(t, err)
	}
	if n := open() - before - len(kept); n > 0 {
		t.Errorf("%d descriptors more", n)
	}
	for _, f := range kept {
		f.Close()
	}
	must(t, s.Close())
	sc.check(t)
}

// TestHostileSizes: no more content is written than was announced, and not more than the limit is announced.
func TestHostileSizes(t *testing.T) {
	sc := newScene(t)
	const limit = 1 << 20
	s := NewServer(nil, sc.destination(t, limit))
	c, _ := connect(t, s)
	must(t, c.Open(t.Context()))
	for _, size := range []int64{-1, math.MinInt64, limit + 1, math.MaxInt64} {
		if _, err := c.File(t.Context(), "x", channel.Attributes{Size: size}); err == nil || !strings.Contains(err.Error(), "limit") {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	p, err := c.File(t.Context(), "x", channel.Attributes{Size: limit - 10})
	must(t, err)
	if _, err := io.CopyN(p.Content, zeros{}, 64*limit); err == nil || !strings.Contains(err.Error(), "announced") {
		t.Errorf("more than was announced: %v", err)
	}
	if info, err := os.Lstat(sc.parts(t)[0]); err != nil || info.Size() > limit-10 {
		t.Errorf("%d bytes were written, %v", info.Size(), err)
	}
	if _, err := c.Place(t.Context(), []channel.PartID{p.ID}); err == nil {
		t.Error("it was placed")
	}
	must(t, c.Drop(t.Context(), p.ID))
	if _, err := c.File(t.Context(), "y", channel.Attributes{Size: 11}); err == nil {
		t.Error("dropping a part gives back its bytes: they were written")
	}
	must(t, s.Close())
	sc.check(t)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestLongNames: warnings about the longest names fit into a message.
func TestLongNames(t *testing.T) {
	sc := newScene(t)
	c, _ := connect(t, NewServer(nil, sc.destination(t, 1<<20)))
	must(t, c.Open(t.Context()))
	long := strings.TrimSuffix(strings.Repeat(strings.Repeat("\xff", 255)+"/", 16), "/")
	must(t, os.WriteFile(filepath.Join(sc.out, long[:255]), nil, 0o644))
	if p, err := c.Link(t.Context(), long, "x"); err != nil || len(p.Warnings) != 2 {
		t.Errorf("%d warnings, %v", len(p.Warnings), err)
	}
	must(t, os.Remove(filepath.Join(sc.out, long[:255])))
	c, _ = connect(t, NewServer(nil, sc.destination(t, 1<<20)))
	must(t, c.Open(t.Context()))
	dir := filepath.Dir(long)
	if ok, warning, err := c.Directory(t.Context(), dir, 0o755); !ok || err != nil {
		t.Fatalf("%v, %.80q, %v", ok, warning, err)
	}
	name := dir + "/.envrc" // is renamed, and a directory is in its place
	if ok, _, err := c.Directory(t.Context(), name+workspace.Suffix, 0o755); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if p, err := c.File(t.Context(), name, channel.Attributes{}); err != nil || p.ID != 0 || len(p.Warnings) != 2 {
		t.Errorf("%d warnings, %v", len(p.Warnings), err)
	}
	sc.check(t)
}

// TestSwappedDirectories: someone swaps a directory for a link that leads out while a worker writes into it. Nothing comes out.
func TestSwappedDirectories(t *testing.T) {
	sc := newScene(t)
	real, link := filepath.Join(sc.out, "d"), filepath.Join(sc.out, "aside")
	must(t, os.Mkdir(real, 0o755))
	must(t, os.Symlink("../outside", link))
	stop := make(chan struct{})
	var swaps sync.WaitGroup
	swaps.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, real, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for placed, refused := 0, 0; (placed < 50 || refused < 50) && !t.Failed(); {
		s := NewServer(nil, sc.destination(t, 1<<20))
		c, conn := connect(t, s)
		must(t, c.Open(t.Context()))
		c.Directory(t.Context(), "d", 0o755)
		for range 20 {
			p, err := put(c, "d/victim", "evil", 0o644)
			if err == nil && p.ID != 0 {
				_, err = c.Place(t.Context(), []channel.PartID{p.ID})
			}
			if err == nil && p.ID != 0 {
				placed++
			} else {
				refused++
			}
			c.Link(t.Context(), "d/link", "victim")
		}
		conn.Close()
		s.Close()
	}
	close(stop)
	swaps.Wait()
	if now := sc.outside(t); fmt.Sprint(now) != fmt.Sprint(sc.before) {
		t.Errorf("outside there is %v, there was %v", now, sc.before)
	}
}
