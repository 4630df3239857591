package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
)

// layers is a mounted overlay, as a sandbox has it.
type layers struct {
	*testing.T
	cell    string // what the workload sees
	changes *changes
}

// newLayers mounts an overlay over a lower layer with a few files, in a mount namespace that ends with the test.
func newLayers(t *testing.T) *layers {
	t.Helper()
	runtime.LockOSThread() // and never unlocked: the thread is in the namespace
	if err := enterSpace(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := unix.Mount("layers", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"lower/etc/skel", "lower/usr/lib", "upper", "work", "cell"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{"etc/skel/profile": "p", "etc/issue": "i", "etc/passwd": "root", "usr/lib/a.so": "a"} {
		if err := os.WriteFile(filepath.Join(dir, "lower", name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	options := fmt.Sprintf("lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work,redirect_dir=off,metacopy=off", dir, dir, dir)
	if err := unix.Mount("overlay", filepath.Join(dir, "cell"), "overlay", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(filepath.Join(dir, "cell"), unix.MNT_DETACH) })
	open := func(name string) *os.File {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	l := &layers{t, filepath.Join(dir, "cell"), newChanges(open("upper"), open("lower"))}
	if list, err := l.changes.scan(t.Context()); err != nil || len(list) != 0 {
		t.Fatalf("a new overlay has changes: %v, %v", list, err)
	}
	return l
}

// in returns a path of the cell.
func (l *layers) in(name string) string { return filepath.Join(l.cell, name) }

func (l *layers) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *layers) write(name, content string) {
	l.Helper()
	l.must(os.WriteFile(l.in(name), []byte(content), 0o644))
}

// files returns the events of changes.
func (l *layers) files(ctx context.Context, list []change, hashOver int64) (all []*audit.File) {
	l.Helper()
	l.must(l.changes.events(ctx, list, hashOver, func(f *audit.File) error { all = append(all, f); return nil }))
	return all
}

// events returns "op path" of what changed since the call before. Each hash is compared with the file's content.
func (l *layers) events() []string {
	l.Helper()
	list, err := l.changes.scan(l.Context())
	l.must(err)
	var all []string
	for _, f := range l.files(l.Context(), list, 0) {
		all = append(all, string(f.Op)+" "+string(f.Path))
		if f.Op != audit.FileWrite {
			if f.SHA256 != "" || f.Size != 0 {
				l.Errorf("%q: hash %q, size %d", all[len(all)-1], f.SHA256, f.Size)
			}
			continue
		}
		b, err := os.ReadFile(l.in(string(f.Path)))
		l.must(err)
		if sum := sha256.Sum256(b); f.SHA256 != hex.EncodeToString(sum[:]) || f.Size != int64(len(b)) {
			l.Errorf("%q: hash %s, size %d, unhashed %q", f.Path, f.SHA256, f.Size, f.Unhashed)
		}
	}
	return all
}

func (l *layers) expect(what string, want ...string) {
	l.Helper()
	if got := l.events(); !slices.Equal(got, want) {
		l.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

func TestChanges(t *testing.T) {
	l := newLayers(t)
	l.expect("nothing")

	l.write("new", "1")
	l.write("etc/issue", "changed")
	l.must(os.Remove(l.in("etc/passwd")))
	l.must(os.Mkdir(l.in("dir"), 0o755))
	l.expect("created, changed, deleted", "create /dir", "write /etc/issue", "delete /etc/passwd", "write /new")

	l.write("new", "2") // the same size
	l.write("etc/passwd", "again")
	l.must(os.Rename(l.in("etc/issue"), l.in("etc/issue.old")))
	l.expect("changed again, made again, renamed", "delete /etc/issue", "write /etc/issue.old", "write /etc/passwd", "write /new")

	l.must(os.Link(l.in("new"), l.in("link")))
	l.must(os.Symlink("/etc/shadow", l.in("symbolic")))
	l.must(unix.Mkfifo(l.in("fifo"), 0o600))
	l.must(os.Truncate(l.in("etc/passwd"), 1<<20))
	l.expect("links, a FIFO, a hole", "write /etc/passwd", "create /fifo", "write /link", "write /new", "create /symbolic")

	l.must(os.Remove(l.in("link")))
	l.must(os.Chmod(l.in("new"), 0))
	l.must(os.Remove(l.in("fifo")))
	l.must(os.Remove(l.in("symbolic")))
	l.must(os.Mkdir(l.in("symbolic"), 0o755))
	l.expect("deleted, of mode 000, another kind", "delete /fifo", "delete /link", "write /new", "create /symbolic")

	stamp := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	l.write("new", "3")
	l.must(os.Chtimes(l.in("new"), stamp, stamp)) // the time of the change itself cannot be set
	l.expect("with an old time", "write /new")

	l.must(os.WriteFile(l.in("gone"), nil, 0o644))
	l.must(os.Remove(l.in("gone")))
	l.expect("gone before the scan")
}

// A directory of the lower layer that is replaced is deleted with its files, though the upper layer names none of them.
func TestChangesOfLowerDirectories(t *testing.T) {
	l := newLayers(t)
	l.must(os.RemoveAll(l.in("etc/skel")))
	l.must(os.Mkdir(l.in("etc/skel"), 0o755))
	l.write("etc/skel/mine", "m")
	l.expect("replaced", "delete /etc/skel", "create /etc/skel", "write /etc/skel/mine")
	l.must(os.RemoveAll(l.in("etc/skel")))
	l.must(os.Mkdir(l.in("etc/skel"), 0o755))
	l.expect("replaced again", "create /etc/skel", "delete /etc/skel/mine")
	l.must(os.RemoveAll(l.in("usr/lib")))
	l.must(os.Symlink("/etc", l.in("usr/lib")))
	l.expect("replaced by a link", "delete /usr/lib", "create /usr/lib")
	l.must(os.RemoveAll(l.in("usr")))
	l.expect("deleted", "delete /usr", "delete /usr/lib")
}

// Names are bytes, and directories are as deep as the workload likes.
func TestChangesOfNames(t *testing.T) {
	l := newLayers(t)
	names := []string{"a\nb", "\xff\xfe", " ", "-", "..."}
	var want []string
	for _, n := range names {
		l.must(os.Mkdir(l.in(n), 0o755))
		l.write(n+"/"+n, n)
		want = append(want, "create /"+n, "write /"+n+"/"+n)
	}
	got := l.events()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("names:\n got %q\nwant %q", got, want)
	}

	const name, levels = "a-directory-with-a-long-name", 300 // in all longer than PATH_MAX
	home, err := os.Getwd()
	l.must(err)
	dir := l.in("deep")
	l.must(os.Mkdir(dir, 0o755))
	fd, err := unix.Open(dir, unix.O_PATH, 0)
	l.must(err)
	for range levels {
		l.must(unix.Mkdirat(fd, name, 0o755))
		next, err := unix.Openat(fd, name, unix.O_PATH, 0)
		l.must(err)
		unix.Close(fd)
		fd = next
	}
	bottom, err := unix.Openat(fd, "bottom", unix.O_CREAT|unix.O_WRONLY, 0o644)
	l.must(err)
	_, err = unix.Write(bottom, []byte("deep"))
	l.must(err)
	unix.Close(bottom)
	list, err := l.changes.scan(t.Context())
	l.must(err)
	if len(list) != levels+2 {
		t.Fatalf("%d changes of %d directories and a file", len(list), levels+1)
	}
	last := l.files(t.Context(), list, 0)[levels+1]
	sum := sha256.Sum256([]byte("deep"))
	if len(last.Path) < unix.PathMax || last.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("a path of %d bytes: hash %q, unhashed %q", len(last.Path), last.SHA256, last.Unhashed)
	}

	for range maxDepth { // now deeper than what is examined
		l.must(unix.Mkdirat(fd, "d", 0o755))
		next, err := unix.Openat(fd, "d", unix.O_PATH, 0)
		l.must(err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	l.write("beside", "b")
	list, err = l.changes.scan(t.Context())
	if err == nil || !strings.Contains(err.Error(), "nested deeper than") {
		t.Errorf("deeper than %d: %v", maxDepth, err)
	}
	if !slices.ContainsFunc(list, func(c change) bool { return c.path == "beside" }) {
		t.Error("a file beside directories that are too deep is not reported")
	}
	l.must(os.Chdir(home))
}

// A file of enormous size leaves only itself without a hash.
func TestHashOfSparseFile(t *testing.T) {
	l := newLayers(t)
	l.write("aa", "small")
	l.write("huge", "")
	l.must(os.Truncate(l.in("huge"), 8<<40))
	l.write("zz", "small, too")
	list, err := l.changes.scan(t.Context())
	l.must(err)
	limited, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	hashed := map[string]bool{}
	for _, f := range l.files(limited, list, 0) {
		hashed[string(f.Path)] = f.SHA256 != ""
		if (f.SHA256 == "") == (f.Unhashed == "") {
			t.Errorf("%s: hash %q, unhashed %q", f.Path, f.SHA256, f.Unhashed)
		}
	}
	if want := map[string]bool{"/aa": true, "/huge": false, "/zz": true}; !maps.Equal(hashed, want) {
		t.Errorf("hashed %v, want %v", hashed, want)
	}
	for over, want := range map[int64]int{0: 2, 4: 2, 5: 1, 1 << 43: 0} {
		n := 0
		for _, f := range l.files(t.Context(), slices.DeleteFunc(slices.Clone(list), func(c change) bool { return c.path == "huge" }), over) {
			if f.Unhashed != "" {
				t.Errorf("%s: %s", f.Path, f.Unhashed)
			}
			if f.SHA256 != "" {
				n++
			}
		}
		if n != want {
			t.Errorf("%d files of more than %d bytes were hashed, want %d", n, over, want)
		}
	}
}

// A file that changes while it is read, or another one at its path, gets no hash.
func TestHashOfChangingFile(t *testing.T) {
	l := newLayers(t)
	l.must(os.WriteFile(l.in("f"), make([]byte, 8<<20), 0o644))
	list, err := l.changes.scan(t.Context())
	l.must(err)
	f, err := os.OpenFile(l.in("f"), os.O_WRONLY, 0)
	l.must(err)
	defer f.Close()
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := int64(0); ; i++ {
			select {
			case <-stop:
				return
			default:
				f.WriteAt([]byte{byte(i)}, i%(8<<20))
			}
		}
	}()
	time.Sleep(5 * time.Millisecond)
	if sum, err := l.changes.hash(t.Context(), list[0]); err == nil {
		t.Errorf("a file that changed has the hash %s", sum)
	}
	close(stop)
	<-ended
	l.must(os.Rename(l.in("f"), l.in("g")))
	l.write("f", "another")
	if sum, err := l.changes.hash(t.Context(), list[0]); err == nil {
		t.Errorf("another file has the hash %s", sum)
	}
	l.must(os.Remove(l.in("f")))
	l.must(syscall.Mkfifo(l.in("f"), 0o600))
	if sum, err := l.changes.hash(t.Context(), list[0]); err == nil {
		t.Errorf("a FIFO has the hash %s", sum)
	}
}
