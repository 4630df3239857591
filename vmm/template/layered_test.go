package template

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOverlay: added files belong to root, links of the userland are resolved inside it, and nothing outside is changed.
func TestOverlay(t *testing.T) {
	from, to, victim := t.TempDir(), t.TempDir(), t.TempDir()
	write := func(path, text string) {
		t.Helper()
		ok(t, os.MkdirAll(filepath.Dir(path), 0o755))
		ok(t, os.WriteFile(path, []byte(text), 0o755))
	}
	write(victim+"/file", "untouched")
	write(to+"/usr/bin/old", "old")
	write(to+"/usr/lib/kept", "kept")
	ok(t, os.Symlink("usr/bin", to+"/bin"))
	ok(t, os.Symlink(victim, to+"/opt"))
	ok(t, os.Symlink("../../"+filepath.Base(victim), to+"/srv"))
	ok(t, os.Symlink(victim+"/file", to+"/usr/bin/tool"))
	for _, name := range []string{"bin/tool", "bin/old", "opt/file", "srv/file", "usr/share/new/file"} {
		write(from+"/"+name, "new")
		ok(t, os.Chown(from+"/"+name, 1000, 1000))
	}
	ok(t, os.Symlink("/usr/bin/tool", from+"/bin/link"))
	ok(t, overlay(t.Context(), from, to))
	for name, want := range map[string]string{"usr/bin/tool": "new", "usr/bin/old": "new", "usr/lib/kept": "kept", "opt/file": "new", "srv/file": "new", "usr/share/new/file": "new"} {
		b, err := os.ReadFile(filepath.Join(to, name))
		ok(t, err)
		info, err := os.Lstat(filepath.Join(to, name))
		ok(t, err)
		if string(b) != want || info.Mode() != 0o755 {
			t.Errorf("%s: %q, %v", name, b, info.Mode())
		}
	}
	if to, err := os.Readlink(to + "/bin"); err != nil || to != "usr/bin" {
		t.Errorf("/bin leads to %q, %v", to, err)
	}
	if to, err := os.Readlink(to + "/usr/bin/link"); err != nil || to != "/usr/bin/tool" {
		t.Errorf("the new link leads to %q, %v", to, err)
	}
	if list, err := os.ReadDir(victim); err != nil || len(list) != 1 {
		t.Errorf("outside there are %v, %v", list, err)
	}
	if b, err := os.ReadFile(victim + "/file"); err != nil || string(b) != "untouched" {
		t.Errorf("outside: %q, %v", b, err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(to+"/usr/bin/tool", &st); err != nil || st.Uid != 0 || st.Gid != 0 {
		t.Errorf("it belongs to %d:%d, %v", st.Uid, st.Gid, err)
	}
}

// TestLayeredRefuses: packages are installed only on a userland of Debian packages, because its programs run as root on the host.
func TestLayeredRefuses(t *testing.T) {
	s := Store{Dir: t.TempDir(), Log: io.Discard}
	put := func(base Template) {
		t.Helper()
		out := t.TempDir()
		for _, name := range []string{"kernel", "initrd", "root.erofs"} {
			ok(t, os.WriteFile(filepath.Join(out, name), []byte(name), 0o444))
		}
		s.Guest = filepath.Join(out, "kernel")
		ok(t, os.MkdirAll(filepath.Join(s.Dir, "names"), 0o700))
		base.Arch, base.Created = runtime.GOARCH, time.Now()
		_, err := s.publish(t.Context(), base, out)
		ok(t, err)
	}
	put(Template{Name: "image", Source: "oci"})
	put(Template{Name: "added", Source: "base", Added: true})
	put(Template{Name: "broken", Source: "base", Packages: []string{"other"}})
	names, err := filepath.EvalSymlinks(filepath.Join(s.Dir, "names", "broken"))
	ok(t, err)
	ok(t, os.Remove(names+"/root.erofs"))
	ok(t, os.WriteFile(names+"/root.erofs", []byte("another"), 0o444))
	for what, l := range map[string]*Layered{
		"give --packages or --add": {From: "image"},
		"is not a template name":   {From: "../image", Files: "/"},
		"no such template":         {From: "none", Files: "/"},
		"on template image":        {From: "image", Packages: []string{"jq"}},
		"on template added":        {From: "added", Packages: []string{"jq"}},
		"template is broken":       {From: "broken", Packages: []string{"jq"}},
		"Debian package":           {From: "broken", Packages: []string{"--hook"}},
	} {
		l.Store = s
		if _, err := l.Fill(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
