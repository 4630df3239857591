package template

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
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

// TestUnpackStaysInside: whatever an image holds, nothing outside of its root changes.
func TestUnpackStaysInside(t *testing.T) {
	file := func(name string) entry { return entry{tar.Header{Name: name}, "evil"} }
	link := func(name, to string) entry {
		return entry{header: tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeSymlink}}
	}
	hard := func(name, to string) entry {
		return entry{header: tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeLink}}
	}
	for what, entries := range map[string][]entry{
		"dots":                 {file("../victim/file")},
		"absolute":             {file("/../../victim/file")},
		"through a link":       {link("d", "../victim"), file("d/file")},
		"through an abs. link": {link("d", "/"), file("d/victim")},
		"over a link":          {link("f", "../victim/file"), file("f")},
		"hard link out":        {hard("f", "../victim/file"), file("f")},
		"link chain":           {link("a", "b"), link("b", "../victim"), file("a/file")},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			root, victim := filepath.Join(dir, "root"), filepath.Join(dir, "victim")
			ok(t, errors.Join(os.Mkdir(root, 0o755), os.Mkdir(victim, 0o755)))
			ok(t, os.WriteFile(filepath.Join(victim, "file"), []byte("safe"), 0o644))
			err := unpack(t.Context(), bytes.NewReader(archive(t, entries...)), root)
			t.Logf("unpack: %v", err)
			if got, err := os.ReadFile(filepath.Join(victim, "file")); err != nil || string(got) != "safe" {
				t.Errorf("the file outside holds %q, %v", got, err)
			}
			if list, _ := os.ReadDir(victim); len(list) != 1 {
				t.Errorf("the directory outside has %d entries", len(list))
			}
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

// TestDigestSeesEveryChange: a stamp must not outlive the content that it is for.
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
		time.Sleep(20 * time.Millisecond) // longer than the step of the clock that stamps files
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
