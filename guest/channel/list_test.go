package channel

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/custody-project/custody/audit"
)

// lists keeps the entries that it receives, by their names on the host.
type lists struct {
	calls int
	files map[string]audit.CopiedFile
}

func (l *lists) take(files []audit.CopiedFile) error {
	l.calls++
	if l.files == nil {
		l.files = map[string]audit.CopiedFile{}
	}
	for _, f := range files {
		name := string(f.As)
		if name == "" {
			name = string(f.Path)
		}
		if _, twice := l.files[name]; twice {
			return fmt.Errorf("%q is listed twice", name)
		}
		l.files[name] = f
	}
	return nil
}

// matches holds what is listed against what stands in dir, which is read by a plain walk.
func (l *lists) matches(t testing.TB, dir string) {
	t.Helper()
	found := 0
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		found++
		name, _ := filepath.Rel(dir, p)
		f, ok := l.files[name]
		if !ok {
			t.Errorf("%q is there and not listed", name)
			return nil
		}
		if d.Type()&fs.ModeSymlink != 0 {
			if target, _ := os.Readlink(p); target != string(f.Link) || f.SHA256 != "" || f.Size != 0 {
				t.Errorf("%q leads to %q, listed as %+v", name, target, f)
			}
			return nil
		}
		content, err := os.ReadFile(p)
		must(t, err)
		info, err := d.Info()
		must(t, err)
		if f.SHA256 != fmt.Sprintf("%x", sha256.Sum256(content)) || f.Size != int64(len(content)) || f.Mode != fmt.Sprintf("%04o", info.Mode().Perm()) || f.Link != "" {
			t.Errorf("%q has %d bytes and mode %v, listed as %+v", name, len(content), info.Mode(), f)
		}
		return nil
	}))
	if found != len(l.files) {
		t.Errorf("%d files are listed, %d are there", len(l.files), found)
	}
}

func TestListIn(t *testing.T) { overTransports(t, testListIn) }

func testListIn(t *testing.T, ends Ends) {
	g := newGuest(t, localRunner{})
	c := g.connect(t, g.host, nil)
	in := t.TempDir()
	files := map[string]string{"link": "-> a", "x\xffy": "bytes", "sub/deep/b": "two", "nothing": "", "empty/": "", "big": strings.Repeat("z", 300000)}
	for i := range 600 {
		files[fmt.Sprintf("many/%d", i)] = strings.Repeat("m", i)
	}
	layout(t, in, files)
	must(t, os.Chmod(filepath.Join(in, "sub/deep/b"), 0o751))
	var l lists
	got, err := c.CopyIn(timeout(t), ends.from(t, in), In{List: l.take})
	must(t, err)
	l.matches(t, in)
	if got.Files != len(l.files) || l.calls < 3 {
		t.Errorf("%d files in %d lists, copied %d", len(l.files), l.calls, got.Files)
	}
	wrong := errors.New("no record")
	for _, at := range []int{1, 3} {
		n := 0
		_, err := c.CopyIn(timeout(t), ends.from(t, in), In{List: func([]audit.CopiedFile) error {
			if n++; n == at {
				return wrong
			}
			return nil
		}})
		if !errors.Is(err, wrong) || n != at {
			t.Errorf("list %d of %d failed: %v", at, n, err)
		}
	}
}

// renames writes what is called NAME.x as NAME.y.
type renames struct{ unguarded }

func (renames) File(name string) (as, why string) {
	if stem, ok := strings.CutSuffix(name, ".x"); ok {
		return stem + ".y", "it is called so"
	}
	return name, ""
}

// outStream is a tree as a guest sends it: more files than one list takes, in folders, with links and a name that is taken.
func outStream(t testing.TB) []byte {
	items := []item{{kind: tar.TypeDir, name: "d", mode: 0o755}}
	for i := range 700 {
		items = append(items, item{kind: tar.TypeReg, name: fmt.Sprintf("d/%d", i), body: strings.Repeat("b", i), mode: 0o644})
		if i%50 == 0 {
			items = append(items, item{kind: tar.TypeSymlink, name: fmt.Sprintf("d/%d.link", i), link: fmt.Sprint(i)})
		}
	}
	items = append(items, item{kind: tar.TypeReg, name: "hook.x", body: "h", mode: 0o755})
	return stream(t, items)
}

func unpackInto(t *testing.T, ends Ends, dir string, data []byte, o Out) error {
	_, to := ends(t, nil, NewDestinationDir(dir, Protect{Guard: renames{}, Limit: 1 << 30}))
	_, err := Unpack(t, to, bytes.NewReader(data), 1<<30, o)
	return err
}

// TestListOut: no file has its name before its list was taken, whichever list fails.
func TestListOut(t *testing.T) { overTransports(t, testListOut) }

func testListOut(t *testing.T, ends Ends) {
	data := outStream(t)
	wrong := errors.New("no record")
	for fails := range 5 { // 0: none
		dir := t.TempDir()
		var taken lists
		n := 0
		err := unpackInto(t, ends, dir, data, Out{List: func(files []audit.CopiedFile) error {
			for _, f := range files {
				for _, name := range []audit.Text{f.Path, f.As} {
					if _, err := os.Lstat(filepath.Join(dir, string(name))); err == nil && name != "" {
						t.Errorf("%q has its name before it is listed", name)
					}
				}
			}
			if n++; n == fails {
				return wrong
			}
			return taken.take(files)
		}})
		if fails == 0 && (err != nil || n < 3) || fails > 0 && fails <= 3 && !errors.Is(err, wrong) {
			t.Errorf("list %d of %d failed: %v", fails, n, err)
		}
		taken.matches(t, dir) // hence no part is left
		if f, ok := taken.files["hook.y"]; ok != (fails == 0 || fails > n) || ok && (f.Path != "hook.x" || f.As != "hook.y") {
			t.Errorf("the renamed file is listed as %+v", f)
		}
	}
}

// TestUnpackKilled kills the process that copies out at every kind of moment: before, within and after the writing
// of each list, and while content comes. What has its name by then is listed in what it had made durable.
func TestUnpackKilled(t *testing.T) {
	const moment = "CUSTODY_TEST_KILL"
	if at := os.Getenv(moment); at != "" {
		die(t, Transports[os.Getenv(moment+"_TRANSPORT")], at)
	}
	for transport := range Transports {
		t.Run(transport, func(t *testing.T) { testUnpackKilled(t, moment, transport) })
	}
}

func testUnpackKilled(t *testing.T, moment, transport string) {
	moments := []string{"never", "content 1", "content 257", "content 300", "content 700"}
	for n := 1; n <= 3; n++ {
		moments = append(moments, fmt.Sprintf("before %d", n), fmt.Sprintf("after %d", n), fmt.Sprintf("within %d", n))
	}
	for _, at := range moments {
		dir := t.TempDir()
		must(t, os.Mkdir(filepath.Join(dir, "out"), 0o755))
		cmd := exec.Command(os.Args[0], "-test.run=^TestUnpackKilled$")
		cmd.Env = append(os.Environ(), moment+"="+at, moment+"_DIR="+dir, moment+"_TRANSPORT="+transport)
		out, err := cmd.CombinedOutput()
		if (err == nil) != (at == "never") {
			t.Fatalf("%s: %v: %s", at, err, out)
		}
		record, err := os.ReadFile(filepath.Join(dir, "record"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		listed := map[string]bool{}
		for line := range strings.Lines(string(record)) {
			if name, whole := strings.CutSuffix(line, "\n"); whole {
				listed[name] = true
			}
		}
		named := 0
		must(t, filepath.WalkDir(filepath.Join(dir, "out"), func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".custody-") {
				return err
			}
			named++
			if name, _ := filepath.Rel(filepath.Join(dir, "out"), p); !listed[name] {
				t.Errorf("%s: %q has its name and is not listed", at, name)
			}
			return nil
		}))
		if at == "never" && named != 715 || at == "content 700" && named == 0 {
			t.Errorf("%s: %d files have their names", at, named)
		}
	}
}

// die copies out, keeps a record of what is listed, and kills the process at a moment.
func die(t *testing.T, ends Ends, at string) {
	dir := os.Getenv("CUSTODY_TEST_KILL_DIR")
	record, err := os.OpenFile(filepath.Join(dir, "record"), os.O_CREATE|os.O_WRONLY, 0o600)
	must(t, err)
	kill := func(now string) {
		if now == at {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	n, content := 0, 0
	must(t, unpackInto(t, ends, filepath.Join(dir, "out"), outStream(t), Out{List: func(files []audit.CopiedFile) error {
		n++
		kill(fmt.Sprintf("before %d", n))
		for i, f := range files {
			if i == len(files)/2 {
				kill(fmt.Sprintf("within %d", n))
			}
			name := f.As
			if name == "" {
				name = f.Path
			}
			fmt.Fprintf(record, "%s\n", name)
		}
		err := record.Sync()
		kill(fmt.Sprintf("after %d", n))
		return err
	}, Progress: func(int, int64) {
		content++
		kill(fmt.Sprintf("content %d", content))
	}}))
	os.Exit(0)
}
