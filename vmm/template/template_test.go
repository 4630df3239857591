package template

import (
	"archive/tar"
	"bytes"
	"encoding/json"
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

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

type entry struct {
	header tar.Header
	body   string
}

func archive(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := e.header
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		h.Size, h.ModTime = int64(len(e.body)), time.Unix(1e9, 0)
		ok(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, e.body)
		ok(t, err)
	}
	ok(t, w.Close())
	return b.Bytes()
}

// TestUnpackStaysInside: no image changes the content, mode, owner or time of a file outside of its root.
func TestUnpackStaysInside(t *testing.T) {
	file := func(name string) entry { return entry{tar.Header{Name: name, Mode: 0o4777, Uid: 7, Gid: 7}, "evil"} }
	folder := func(name string) entry {
		return entry{header: tar.Header{Name: name, Mode: 0o1777, Uid: 7, Gid: 7, Typeflag: tar.TypeDir}}
	}
	link := func(name, to string) entry {
		return entry{header: tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeSymlink, Uid: 7, Gid: 7}}
	}
	hard := func(name, to string) entry {
		return entry{header: tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeLink}}
	}
	for what, entries := range map[string][]entry{
		"dots":                       {file("../victim/file")},
		"absolute":                   {file("/../../victim/file")},
		"through a link":             {link("d", "../victim"), file("d/file")},
		"through an abs. link":       {link("d", "/"), file("d/victim")},
		"through a link to it":       {link("d", "VICTIM"), file("d/file")},
		"over a link":                {link("f", "../victim/file"), file("f")},
		"over an abs. link":          {link("f", "VICTIM/file"), file("f")},
		"directory over a link":      {link("d", "../victim"), folder("d")},
		"directory over an abs.":     {link("d", "VICTIM"), folder("d")},
		"directory through a link":   {link("d", "VICTIM"), folder("d/new")},
		"directory over a dangling":  {link("d", "VICTIM/new"), folder("d")},
		"link in the middle":         {link("a/b", "VICTIM"), folder("a/b/c"), file("a/b/file")},
		"link in the middle, up":     {link("a/b", "../../victim"), file("a/b/file"), folder("a/b")},
		"hard link out":              {hard("f", "../victim/file"), file("f")},
		"hard link to a link":        {link("l", "VICTIM/file"), hard("f", "l"), file("f")},
		"hard link through a link":   {link("l", "VICTIM"), hard("f", "l/file"), file("f")},
		"directory over a hard link": {hard("d", "../victim/file"), folder("d")},
		"link chain":                 {link("a", "b"), link("b", "../victim"), file("a/file")},
		"link chain, abs.":           {link("a", "b"), link("b", "c"), link("c", "VICTIM"), folder("a"), file("b/file")},
		"link over a file":           {file("f"), link("f", "VICTIM/file")},
		"link over a directory":      {folder("d"), link("d", "VICTIM"), folder("d")},
	} {
		t.Run(what, func(t *testing.T) {
			root, victim, unchanged := outside(t)
			for i := range entries {
				entries[i].header.Linkname = strings.Replace(entries[i].header.Linkname, "VICTIM", victim, 1)
			}
			err := unpack(t.Context(), bytes.NewReader(archive(t, entries...)), root)
			t.Logf("unpack: %v", err)
			unchanged()
		})
	}
}

// outside makes a root to unpack into, and next to it a directory victim that must not change.
func outside(t *testing.T) (root, victim string, unchanged func()) {
	t.Helper()
	dir := t.TempDir()
	root, victim = filepath.Join(dir, "root"), filepath.Join(dir, "victim")
	ok(t, errors.Join(os.Mkdir(root, 0o755), os.Mkdir(victim, 0o700)))
	ok(t, os.WriteFile(filepath.Join(victim, "file"), []byte("safe"), 0o600))
	old := time.Unix(1e8, 0)
	ok(t, errors.Join(os.Chtimes(filepath.Join(victim, "file"), old, old), os.Chtimes(victim, old, old)))
	look := func() string {
		content, err := os.ReadFile(filepath.Join(victim, "file"))
		ok(t, err)
		list, err := os.ReadDir(victim)
		ok(t, err)
		text := fmt.Sprintf("%s %d", content, len(list))
		for _, path := range []string{victim, filepath.Join(victim, "file")} {
			info, err := os.Lstat(path)
			ok(t, err)
			st := info.Sys().(*syscall.Stat_t)
			text += fmt.Sprint(" ", info.Mode(), st.Uid, st.Gid, info.ModTime().Unix(), st.Nlink)
		}
		return text
	}
	before := look()
	return root, victim, func() {
		t.Helper()
		if after := look(); after != before {
			t.Errorf("outside there is %s, before it was %s", after, before)
		}
	}
}

// TestAddDirsStaysInside: links of a userland do not make addDirs change anything outside of it.
func TestAddDirsStaysInside(t *testing.T) {
	for _, dir := range slices.Concat(mountPoints, usualDirs) {
		for what, links := range map[string]map[string]string{
			"absolute":                  {dir: "VICTIM"},
			"up":                        {dir: "../victim"},
			"chain":                     {dir: "a", "a": "b", "b": "VICTIM"},
			"chain up":                  {dir: "a/b", "a": "..", "b": "../victim"},
			"dangling":                  {dir: "VICTIM/new"},
			"dangling up":               {dir: "../victim/new"},
			"to a file":                 {dir: "VICTIM/file"},
			"to itself":                 {dir: dir},
			"through another directory": {dir: "lib/../victim", "lib": "VICTIM"},
		} {
			t.Run(dir+" "+what, func(t *testing.T) {
				root, victim, unchanged := outside(t)
				for name, to := range links {
					ok(t, os.Symlink(strings.Replace(to, "VICTIM", victim, 1), filepath.Join(root, name)))
				}
				err := packRoot(t.Context(), root, filepath.Join(t.TempDir(), "root.erofs"))
				unchanged()
				if (err != nil) != (dir == "etc") {
					t.Errorf("pack: %v", err)
				}
				info, err := os.Lstat(filepath.Join(root, dir))
				ok(t, err)
				if slices.Contains(mountPoints, dir) != info.IsDir() {
					t.Errorf("%s is %v", dir, info.Mode())
				}
			})
		}
	}
}

// TestAddDirs: addDirs makes the directories that a userland lacks, and keeps those that it has.
func TestAddDirs(t *testing.T) {
	root := t.TempDir()
	ok(t, os.Mkdir(filepath.Join(root, "root"), 0o700))
	ok(t, os.WriteFile(filepath.Join(root, "run"), nil, 0o644))
	ok(t, addDirs(root))
	for name, want := range map[string]fs.FileMode{"root": 0o700, "tmp": 0o777 | fs.ModeSticky, "etc": 0o755, "dev": 0o755, "run": 0o755, "workspace": 0o755} {
		info, err := os.Lstat(filepath.Join(root, name))
		ok(t, err)
		if info.Mode() != want|fs.ModeDir {
			t.Errorf("%s is %v, want %v", name, info.Mode(), want)
		}
	}
}

// TestLaterLayer: an entry of a later layer replaces a link of an earlier one.
func TestLaterLayer(t *testing.T) {
	link := func(to string) entry {
		return entry{header: tar.Header{Name: "tmp", Linkname: to, Typeflag: tar.TypeSymlink}}
	}
	folder := entry{header: tar.Header{Name: "tmp", Mode: 0o755, Typeflag: tar.TypeDir}}
	file := entry{tar.Header{Name: "tmp/file", Mode: 0o777}, "evil"}
	for what, layers := range map[string][][]entry{
		"directory over link":     {{link("VICTIM")}, {folder, file}},
		"link over directory":     {{folder, file}, {link("VICTIM")}},
		"link, white-out, link":   {{link("/nowhere")}, {{header: tar.Header{Name: ".wh.tmp"}}}, {link("VICTIM")}},
		"file through older link": {{link("VICTIM")}, {file}},
		"opaque":                  {{folder, link("VICTIM")}, {folder, {header: tar.Header{Name: "tmp/.wh..wh..opq"}}, file}},
	} {
		t.Run(what, func(t *testing.T) {
			root, victim, unchanged := outside(t)
			img := empty.Image
			for _, entries := range layers {
				for i := range entries {
					entries[i].header.Linkname = strings.Replace(entries[i].header.Linkname, "VICTIM", victim, 1)
				}
				b := archive(t, entries...)
				layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil })
				ok(t, err)
				img, err = mutate.AppendLayers(img, layer)
				ok(t, err)
			}
			saved := filepath.Join(t.TempDir(), "saved.tar")
			tag, err := name.NewTag("tool:latest")
			ok(t, err)
			ok(t, tarball.WriteToFile(saved, tag, img))
			_, err = OCI{Path: saved}.Fill(t.Context(), root)
			t.Logf("fill: %v", err)
			t.Logf("addDirs: %v", addDirs(root))
			unchanged()
		})
	}
}

func TestOCI(t *testing.T) {
	dir := t.TempDir()
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive(t,
			entry{tar.Header{Name: "bin/tool", Mode: 0o4755, Uid: 7, Gid: 8}, "first"},
			entry{tar.Header{Name: "gone"}, "x"},
			entry{header: tar.Header{Name: "ln", Linkname: "/etc/passwd", Typeflag: tar.TypeSymlink}},
			entry{header: tar.Header{Name: "dev/null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}}))), nil
	})
	ok(t, err)
	second, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive(t, entry{tar.Header{Name: ".wh.gone"}, ""}, entry{tar.Header{Name: "etc/conf"}, "c"}))), nil
	})
	ok(t, err)
	img, err := mutate.AppendLayers(empty.Image, layer, second)
	ok(t, err)
	img, err = mutate.Config(img, v1.Config{Env: []string{"PATH=/bin", "A=b"}})
	ok(t, err)

	saved := filepath.Join(dir, "saved.tar")
	tag, err := name.NewTag("tool:latest")
	ok(t, err)
	ok(t, tarball.WriteToFile(saved, tag, img))
	where := filepath.Join(dir, "layout")
	l, err := layout.Write(where, empty.Index)
	ok(t, err)
	ok(t, l.AppendImage(img))

	for _, path := range []string{saved, where} {
		root := t.TempDir()
		env, err := OCI{Path: path}.Fill(t.Context(), root)
		ok(t, err)
		if len(env) != 2 || env[1] != "A=b" {
			t.Errorf("%s: environment %q", path, env)
		}
		info, err := os.Lstat(filepath.Join(root, "bin/tool"))
		ok(t, err)
		if info.Mode() != 0o755|os.ModeSetuid || !info.ModTime().Equal(time.Unix(1e9, 0)) {
			t.Errorf("%s: tool is %v of %v", path, info.Mode(), info.ModTime())
		}
		if to, err := os.Readlink(filepath.Join(root, "ln")); err != nil || to != "/etc/passwd" {
			t.Errorf("%s: link to %q, %v", path, to, err)
		}
		for _, absent := range []string{"gone", ".wh.gone", "dev/null"} {
			if _, err := os.Lstat(filepath.Join(root, absent)); err == nil {
				t.Errorf("%s: %s is there", path, absent)
			}
		}
	}
	if _, err := (OCI{Path: filepath.Join(dir, "none")}).Fill(t.Context(), t.TempDir()); err == nil {
		t.Error("a missing image was read")
	}
	ok(t, os.WriteFile(filepath.Join(dir, "junk"), []byte("junk"), 0o644))
	if _, err := (OCI{Path: filepath.Join(dir, "junk")}).Fill(t.Context(), t.TempDir()); err == nil {
		t.Error("junk was read as an image")
	}
}

func TestInitrd(t *testing.T) {
	dir := t.TempDir()
	modules := filepath.Join(dir, "modules")
	ok(t, os.Mkdir(modules, 0o755))
	want := map[string]string{"order": "a.ko\nb.ko\n", "a.ko": "AAAA", "b.ko": "B"}
	for name, body := range want {
		ok(t, os.WriteFile(filepath.Join(modules, name), []byte(body), 0o444))
	}
	guest := filepath.Join(dir, "guest")
	ok(t, os.WriteFile(guest, []byte("program"), 0o755))
	ok(t, writeInitrd(filepath.Join(dir, "one"), guest, modules))
	ok(t, writeInitrd(filepath.Join(dir, "two"), guest, modules))
	one, _ := os.ReadFile(filepath.Join(dir, "one"))
	if two, _ := os.ReadFile(filepath.Join(dir, "two")); len(one) == 0 || !bytes.Equal(one, two) {
		t.Error("the same input gave different bytes")
	}
	back := filepath.Join(dir, "back")
	ok(t, readModules(filepath.Join(dir, "one"), back))
	for name, body := range want {
		if got, err := os.ReadFile(filepath.Join(back, name)); err != nil || string(got) != body {
			t.Errorf("%s came back as %q, %v", name, got, err)
		}
	}
	if err := writeInitrd(filepath.Join(dir, "three"), filepath.Join(dir, "absent"), modules); err == nil {
		t.Error("an initramfs without an init was written")
	}
}

// TestDigestSeesEveryChange: after each change of a file, its digest is computed again.
func TestDigestSeesEveryChange(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	ok(t, os.WriteFile(path, []byte("one"), 0o644))
	sum := func() string {
		t.Helper()
		got, err := digest(t.Context(), dir, "file", path, hashFile)
		ok(t, err)
		if fresh, _ := hashFile(t.Context(), path); got != fresh {
			t.Errorf("digest %s, the file has %s", got, fresh)
		}
		return got
	}
	first := sum()
	info, err := os.Stat(path)
	ok(t, err)
	changes := map[string]func() error{
		"same size, mtime put back": func() error {
			return errors.Join(os.WriteFile(path, []byte("two"), 0o644), os.Chtimes(path, info.ModTime(), info.ModTime()))
		},
		"another file in its place": func() error {
			other := path + ".other"
			return errors.Join(os.WriteFile(other, []byte("six"), 0o644), os.Chtimes(other, info.ModTime(), info.ModTime()), os.Rename(other, path))
		},
		"grown": func() error { return os.WriteFile(path, []byte("longer"), 0o644) },
	}
	for what, change := range changes {
		time.Sleep(20 * time.Millisecond) // longer than the granularity of file times
		ok(t, change())
		if sum() == first {
			t.Errorf("%s: not seen", what)
		}
	}
	ok(t, os.WriteFile(filepath.Join(dir, stampFile), []byte("{broken"), 0o644))
	sum()
}

func TestNames(t *testing.T) {
	s := Store{Dir: t.TempDir(), Log: io.Discard}
	for _, name := range []string{"", "../base", "a/b", "A", ".hidden", "base\n"} {
		if _, err := s.Open(t.Context(), name); err == nil || errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := s.Open(t.Context(), "base"); !errors.Is(err, ErrNotFound) {
		t.Errorf("an absent template: %v", err)
	}
	if err := s.Remove(t.Context(), "base"); !errors.Is(err, ErrNotFound) {
		t.Errorf("removing an absent template: %v", err)
	}
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Errorf("list: %v, %v", list, err)
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestBaseArguments: packages, suite and mirror are passed to mmdebstrap, and Check refuses names that are not valid.
func TestBaseArguments(t *testing.T) {
	args := Base{Packages: []string{"jq", "libstdc++6=12.2.0-14"}, Suite: "trixie", Mirror: "https://mirror.example/debian"}.arguments("/root-of-it")
	if want := []string{"trixie", "/root-of-it", "https://mirror.example/debian"}; !slices.Equal(args[len(args)-3:], want) {
		t.Errorf("%q", args)
	}
	if !slices.ContainsFunc(args, func(a string) bool {
		return strings.HasPrefix(a, "--include=bash,") && strings.HasSuffix(a, ",jq,libstdc++6=12.2.0-14")
	}) {
		t.Errorf("%q", args)
	}
	if args := (Base{}).arguments("r"); !slices.Equal(args[len(args)-2:], []string{debianSuite, "r"}) {
		t.Errorf("%q", args)
	}
	for _, b := range []Base{
		{Packages: []string{"--hook"}}, {Packages: []string{"a b"}}, {Packages: []string{"jq,git"}}, {Packages: []string{"jq=$(x)"}}, {Packages: []string{""}},
		{Suite: "--x"}, {Suite: "a/b"}, {Mirror: "file:///srv"}, {Mirror: "https://me:secret@mirror.example/"}, {Mirror: "mirror.example"},
	} {
		if err := b.Check(); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", b, err)
		}
	}
}

// TestDigestOfOlderTemplates: the digest of a template without packages is the same as in versions without the field Packages.
func TestDigestOfOlderTemplates(t *testing.T) {
	var old Template
	if err := json.Unmarshal([]byte(`{"name":"base","arch":"amd64","source":"base","kernel_sha256":"k","initrd_sha256":"i","root_sha256":"r","guest_sha256":"g","kernel_release":"6.1","created":"2026-11-21T00:00:00Z"}`), &old); err != nil {
		t.Fatal(err)
	}
	if d := old.Digest(); d != "sha256-0f29295a89f608ab547e268725424b56cc31a438dbd456418b206c3c43d8e255" {
		t.Error(d)
	}
	with := old
	with.Packages = []string{"jq"}
	if with.Digest() == old.Digest() {
		t.Error("the packages are not in the digest")
	}
}
