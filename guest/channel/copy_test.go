package channel

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// layout makes files of a map: a name that ends in / is a directory, a value
// "-> x" a symbolic link, anything else a file's content.
func layout(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	names := slices.Sorted(func(yield func(string) bool) {
		for n := range files {
			if !yield(n) {
				return
			}
		}
	})
	for _, n := range names {
		p := filepath.Join(dir, n)
		if strings.HasSuffix(n, "/") {
			must(t, os.MkdirAll(p, 0o755))
			continue
		}
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		if target, ok := strings.CutPrefix(files[n], "-> "); ok {
			must(t, os.Symlink(target, p))
			continue
		}
		must(t, os.WriteFile(p, []byte(files[n]), 0o644))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listing is the oracle: what stands in dir, found by a plain walk.
func listing(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		name, _ := filepath.Rel(dir, p)
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			out[name+"/"] = ""
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			out[name] = "-> " + target
			return err
		default:
			b, err := os.ReadFile(p)
			out[name] = fmt.Sprintf("%s %#o", b, info.Mode())
			return err
		}
		return nil
	}))
	return out
}

func same(t testing.TB, got, want map[string]string) {
	t.Helper()
	for n, v := range want {
		if g, ok := got[n]; !ok || g != v {
			t.Errorf("%q: got %.80q, want %.80q", n, g, v)
		}
	}
	for n := range got {
		if _, ok := want[n]; !ok {
			t.Errorf("%q is there and should not be", n)
		}
	}
}

func TestCopyInAndOut(t *testing.T) { overTransports(t, testCopyInAndOut) }

func testCopyInAndOut(t *testing.T, ends Ends) {
	g := newGuest(t, localRunner{})
	c := g.connect(t, g.host, nil)
	in, out := t.TempDir(), t.TempDir()
	long := strings.Repeat("d/", 60) + strings.Repeat("n", 200)
	layout(t, in, map[string]string{
		"a": "one", "same": "kept", "touched": "t", "gone": "bye", "sub/b": "two", "empty/": "", "x\xffy": "bytes",
		"link": "-> a", "out": "-> /etc/passwd", long: "deep", "sub/gone2": "", "big": strings.Repeat("z", 300000),
	})
	must(t, os.Chmod(filepath.Join(in, "sub/b"), 0o4755|fs.ModeSetuid))
	must(t, syscall.Mkfifo(filepath.Join(in, "pipe"), 0o600))
	size, err := NewSourceDir(in, nil).Measure(timeout(t))
	must(t, err)
	var last Copied
	progress := func(files int, bytes int64) {
		if files < last.Files || bytes < last.Bytes {
			t.Errorf("from %d files and %d bytes to %d and %d", last.Files, last.Bytes, files, bytes)
		}
		last.Files, last.Bytes = files, bytes
	}
	got, err := c.CopyIn(timeout(t), ends.from(t, in), In{Progress: progress})
	must(t, err)
	if size.Files != got.Files || size.Bytes != got.Bytes || size.Files != last.Files || size.Bytes != last.Bytes || size.Folders != 62 || size.Room != (62+7+74)*4096 {
		t.Errorf("measured %+v, copied %+v, the progress was %+v", size, got, last)
	}
	if len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "pipe") || got.Files != 11 {
		t.Fatalf("%+v", got)
	}
	want := listing0(t, in)
	delete(want, "pipe")
	want["sub/b"] = "two 0755"
	same(t, listing(t, g.workspace), want)

	script := `set -e; cd "$1"; echo new > new; echo changed > sub/b; touch touched; rm gone sub/gone2; mkdir -p made/dir; chmod 700 a
		ln -s sub/b inner; ln -s ../../x esc; ln -s /etc abs; ln new hard; mkfifo fifo; chmod 4755 new; printf 'q' > "$(printf 'n\376w')"`
	if _, errOut, exit := result(t, c, shell(script, g.workspace), ""); exit.Code != 0 {
		t.Fatal(errOut)
	}
	got, err = c.CopyOut(timeout(t), ends.to(t, out), Out{})
	must(t, err)
	same(t, listing(t, out), map[string]string{
		"new": "new\n 0755", "hard": "new\n 0755", "sub/": "", "sub/b": "changed\n 0755", "made/": "", "made/dir/": "",
		"a": "one 0700", "inner": "-> sub/b", "n\xfew": "q 0644",
	})
	if !slices.Equal(got.Deleted, []string{"gone", "sub/gone2"}) {
		t.Errorf("deleted: %q", got.Deleted)
	}
	if len(got.Warnings) != 3 {
		t.Errorf("warnings: %q", got.Warnings)
	}
	if got.Files != 6 {
		t.Errorf("files: %d", got.Files)
	}
}

// listing0 is listing without reading pipes.
func listing0(t testing.TB, dir string) map[string]string {
	must(t, os.Remove(filepath.Join(dir, "pipe")))
	return listing(t, dir)
}

// TestLeave: what is left out is not looked into, and a file that becomes another while it is copied is not sent in its name.
func TestLeave(t *testing.T) { overTransports(t, testLeave) }

func testLeave(t *testing.T, ends Ends) {
	g := newGuest(t, localRunner{})
	c := g.connect(t, g.host, nil)
	in := t.TempDir()
	layout(t, in, map[string]string{"a": "1", "no/x": "secret", "no/deep/y": "secret", "b": "2", "secret": "secret"})
	must(t, os.Chmod(filepath.Join(in, "no"), 0))
	leave := func(name string, info fs.FileInfo) bool {
		if strings.HasPrefix(name, "no/") {
			t.Errorf("asked about %s", name)
		}
		if name == "b" { // as someone on the host may change it just then
			must(t, os.Remove(filepath.Join(in, "b")))
			must(t, os.Symlink("secret", filepath.Join(in, "b")))
		}
		return name == "no" || name == "secret"
	}
	from, _ := ends(t, NewSourceDir(in, leave), nil)
	got, err := c.CopyIn(timeout(t), from, In{})
	must(t, err)
	same(t, listing(t, g.workspace), map[string]string{"a": "1 0644"})
	if len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "became something else") {
		t.Errorf("warnings %q", got.Warnings)
	}
}

func TestCopyOutOverWorkdir(t *testing.T) { overTransports(t, testCopyOutOverWorkdir) }

func testCopyOutOverWorkdir(t *testing.T, ends Ends) {
	g := newGuest(t, localRunner{})
	c := g.connect(t, g.host, nil)
	dir, outside := t.TempDir(), t.TempDir()
	layout(t, outside, map[string]string{"victim": "safe"})
	layout(t, dir, map[string]string{"f": "old", "toFile": "-> " + outside + "/victim", "toDir": "-> " + outside, "d/x": "1"})
	from, to := ends.both(t, dir)
	_, err := c.CopyIn(timeout(t), from, In{})
	must(t, err)
	script := `set -e; cd "$1"; echo new > f; rm toFile toDir; echo evil > toFile; mkdir toDir; echo evil > toDir/victim; rm -r d; echo file > d`
	if _, errOut, exit := result(t, c, shell(script, g.workspace), ""); exit.Code != 0 {
		t.Fatal(errOut)
	}
	got, err := c.CopyOut(timeout(t), to, Out{})
	must(t, err)
	same(t, listing(t, dir), map[string]string{
		"f": "new\n 0644", "toFile": "evil\n 0644", "toDir": "-> " + outside, "d/": "", "d/x": "1 0644",
	})
	same(t, listing(t, outside), map[string]string{"victim": "safe 0644"})
	if len(got.Warnings) != 3 { // toDir, toDir/victim, d
		t.Errorf("warnings: %q", got.Warnings)
	}
}

// TestOthersWrite: what a sandbox lets everybody write, its owner alone may write on the host, unless others could before.
func TestOthersWrite(t *testing.T) { overTransports(t, testOthersWrite) }

func testOthersWrite(t *testing.T, ends Ends) {
	g := newGuest(t, localRunner{})
	c := g.connect(t, g.host, nil)
	dir := t.TempDir()
	layout(t, dir, map[string]string{"shared": "old", "own": "old", "link": "-> own"})
	must(t, os.Chmod(filepath.Join(dir, "shared"), 0o664))
	from, to := ends.both(t, dir)
	_, err := c.CopyIn(timeout(t), from, In{})
	must(t, err)
	script := `set -e; cd "$1"; umask 0; mkdir d; rm link; for f in shared own link new d/new; do echo x > $f; chmod 777 $f; done; chmod 4777 new; chmod 777 d`
	if _, errOut, exit := result(t, c, shell(script, g.workspace), ""); exit.Code != 0 {
		t.Fatal(errOut)
	}
	old := unix.Umask(0)
	defer unix.Umask(old)
	_, err = c.CopyOut(timeout(t), to, Out{})
	must(t, err)
	same(t, listing(t, dir), map[string]string{"shared": "x\n 0775", "own": "x\n 0755", "link": "x\n 0755", "new": "x\n 0755", "d/": "", "d/new": "x\n 0755"})
	if info, err := os.Stat(filepath.Join(dir, "d")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("a new directory has mode %v: %v", info.Mode(), err)
	}
}

func TestCopyOutLimit(t *testing.T) { overTransports(t, testCopyOutLimit) }

func testCopyOutLimit(t *testing.T, ends Ends) {
	g := newGuest(t, localRunner{})
	c := g.connect(t, g.host, nil)
	must(t, os.WriteFile(filepath.Join(g.workspace, "sparse"), nil, 0o644))
	must(t, os.Truncate(filepath.Join(g.workspace, "sparse"), 65<<20))
	out := t.TempDir()
	if _, err := c.CopyOut(timeout(t), ends.to(t, out), Out{}); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Fatalf("65 MiB with a limit of 64: %v", err)
	}
	same(t, listing(t, out), map[string]string{})
}

func TestCopyFailures(t *testing.T) { overTransports(t, testCopyFailures) }

func testCopyFailures(t *testing.T, ends Ends) {
	g := newGuest(t, localRunner{})
	c := g.connect(t, g.host, nil)
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := c.CopyIn(timeout(t), ends.from(t, missing), In{}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("missing directory: %v", err)
	}
	if _, err := c.CopyOut(timeout(t), ends.to(t, missing), Out{}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("missing directory: %v", err)
	}
	must(t, os.RemoveAll(g.workspace))
	if _, err := c.CopyIn(timeout(t), ends.from(t, t.TempDir()), In{}); err == nil {
		t.Error("copy into a workspace that is gone succeeded")
	}
	if _, err := c.CopyOut(timeout(t), ends.to(t, t.TempDir()), Out{}); err == nil {
		t.Error("copy out of a workspace that is gone succeeded")
	}
	if _, err := c.Ping(timeout(t)); err != nil {
		t.Errorf("session ended with a failed copy: %v", err)
	}
}

type item struct {
	kind       byte
	name, link string
	body       string
	mode       int64
}

func stream(t testing.TB, items []item) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, i := range items {
		h := &tar.Header{Typeflag: i.kind, Name: i.name, Linkname: i.link, Mode: i.mode | 0o600, Size: int64(len(i.body)), ModTime: time.Unix(1e9, 0)}
		must(t, w.WriteHeader(h))
		io.WriteString(w, i.body)
	}
	must(t, w.Close())
	return b.Bytes()
}

func TestHostileTree(t *testing.T) { overTransports(t, testHostileTree) }

func testHostileTree(t *testing.T, ends Ends) {
	f := func(name, body string) item { return item{kind: tar.TypeReg, name: name, body: body} }
	d := func(name string) item { return item{kind: tar.TypeDir, name: name} }
	l := func(name, to string) item { return item{kind: tar.TypeSymlink, name: name, link: to} }
	for _, tt := range []struct {
		name    string
		items   []item
		hostile bool
		want    map[string]string // beside what stood there
	}{
		{"parent", []item{f("../evil", "x")}, true, nil},
		{"inner parent", []item{f("a/../../evil", "x")}, true, nil},
		{"absolute", []item{f("/evil", "x")}, true, nil},
		{"empty", []item{d("/")}, true, nil},
		{"dot", []item{f("./evil", "x")}, true, nil},
		{"double slash", []item{f("a//b", "x")}, true, nil},
		{"long", []item{f(strings.Repeat("x", 300), "x")}, true, nil},
		{"deep", []item{f(strings.Repeat("x/", 300)+"y", "x")}, true, nil},
		{"twice", []item{f("a", "1"), f("a", "2")}, true, nil},
		{"twice, as a directory", []item{f("a", "1"), d("a/")}, true, nil},
		{"through a file", []item{f("a", "1"), f("a/b", "2")}, false, map[string]string{"a": "1 0600"}},
		{"through a link of its own", []item{l("a", "dir"), f("a/b", "2")}, false, map[string]string{"a": "-> dir"}},
		{"through a link that stands there", []item{f("owner/evil", "2")}, false, nil},
		{"over a link that stands there", []item{f("owner", "2")}, false, map[string]string{"owner": "2 0600"}},
		{"link to a link that leads out", []item{l("a", "owner/x")}, false, nil},
		{"link up", []item{l("a", "..")}, false, nil},
		{"link up, from below", []item{d("b/"), l("b/a", "../..")}, false, map[string]string{"b/": ""}},
		{"link up behind a link", []item{d("b/"), d("b/c/"), l("b/c/top", "../.."), l("a", "b/c/top/..")}, false,
			map[string]string{"b/": "", "b/c/": "", "b/c/top": "-> ../.."}},
		{"link within", []item{d("b/"), l("b/a", "../dir/x")}, false, map[string]string{"b/": "", "b/a": "-> ../dir/x"}},
		{"absolute link", []item{l("a", "/etc/passwd")}, false, nil},
		{"empty link", []item{l("a", "")}, false, nil},
		{"hard link", []item{{kind: tar.TypeLink, name: "a", link: "../victim"}}, false, nil},
		{"device", []item{{kind: tar.TypeChar, name: "a"}}, false, nil},
		{"pipe", []item{{kind: tar.TypeFifo, name: "a"}}, false, nil},
		{"file over directory", []item{f("dir", "x")}, false, nil},
		{"directory over file", []item{d("file/"), f("file/x", "x")}, false, nil},
		{"setuid", []item{{kind: tar.TypeReg, name: "s", mode: 0o7777, body: "s"}}, false, map[string]string{"s": "s 0755"}},
		{"control characters", []item{f("a\x1b[2J", "x")}, false, map[string]string{"a\x1b[2J": "x 0600"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			base := t.TempDir()
			root := filepath.Join(base, "root")
			layout(t, base, map[string]string{"victim": "safe", "root/dir/x": "mine", "root/file": "mine", "root/owner": "-> " + base})
			want := listing(t, base)
			for n, v := range tt.want {
				want["root/"+n] = v
			}
			warnings, err := Unpack(t, ends.to(t, root), bytes.NewReader(stream(t, tt.items)), 1<<20, Out{})
			if errors.Is(err, ErrHostile) != tt.hostile || err != nil && !tt.hostile {
				t.Errorf("error: %v", err)
			}
			same(t, listing(t, base), want)
			if !tt.hostile && len(tt.want) < len(tt.items) && len(warnings) == 0 {
				t.Error("something was left out without a warning")
			}
		})
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(stream(f, []item{{kind: tar.TypeReg, name: "a/b", body: "x"}, {kind: tar.TypeSymlink, name: "c", link: "a"}}))
	f.Add(stream(f, []item{{kind: tar.TypeSymlink, name: "c", link: ".."}, {kind: tar.TypeReg, name: "c/victim", body: "x"}}))
	f.Add(stream(f, []item{{kind: tar.TypeDir, name: "a/"}, {kind: tar.TypeLink, name: "c", link: "a"}, {kind: tar.TypeReg, name: "../x", body: "y"}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		base := t.TempDir()
		layout(t, base, map[string]string{"victim": "safe", "root/owner": "-> " + base})
		root := filepath.Join(base, "root")
		Unpack(t, NewDestinationDir(root, Protect{Limit: 1 << 20}), bytes.NewReader(b), 1<<20, Out{})
		entries, err := os.ReadDir(base)
		must(t, err)
		victim, err := os.ReadFile(filepath.Join(base, "victim"))
		must(t, err)
		if len(entries) != 2 || string(victim) != "safe" {
			t.Fatalf("something was written outside: %v", entries)
		}
		for name := range listing(t, root) {
			if strings.Contains(name, ".custody-") && !bytes.Contains(b, []byte(".custody-")) {
				t.Fatalf("%s is left", name)
			}
		}
	})
}
