package archive_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit/proof/archive"
)

var some = map[string]string{
	"00000000000000000001.seg":    "CWF1 and so on",
	"README.txt":                  "",
	"report/soc2.html":            strings.Repeat("x", 512),
	"since":                       strings.Repeat("y", 513),
	strings.Repeat("t", 99) + "u": "the longest name",
}

func write(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := archive.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.Add(name, int64(len(files[name])), strings.NewReader(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if w.Written() != int64(b.Len()) {
		t.Errorf("%d bytes, it says %d", b.Len(), w.Written())
	}
	return b.Bytes()
}

func read(data []byte) (map[string]string, error) {
	a, err := archive.Open(bytes.NewReader(data), int64(len(data)), func(string, int64) error { return nil })
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, dir := range []string{".", "report"} {
		entries, err := a.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			name := strings.TrimPrefix(dir+"/"+e.Name(), "./")
			text, err := fs.ReadFile(a, name)
			if err != nil {
				return nil, err
			}
			files[name] = string(text)
		}
	}
	return files, nil
}

// TestReaders: other programs read the same files from an archive.
func TestReaders(t *testing.T) {
	data := write(t, some)
	file := filepath.Join(t.TempDir(), "a.tar")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, reader := range map[string]func() (map[string]string, error){
		"this package": func() (map[string]string, error) { return read(data) },
		"archive/tar":  func() (map[string]string, error) { return byStandardLibrary(data) },
		"GNU tar":      func() (map[string]string, error) { return byTar(t, file) },
		"Python":       func() (map[string]string, error) { return byPython(file) },
	} {
		got, err := reader()
		if err != nil || !maps.Equal(got, some) {
			t.Errorf("%s: %v, %q", name, err, got)
		}
	}
}

func byStandardLibrary(data []byte) (map[string]string, error) {
	files := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		files[h.Name] = string(text)
	}
}

func byTar(t *testing.T, file string) (map[string]string, error) {
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-xf", file, "-C", dir).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir+"/")] = string(text)
		return err
	})
	return files, err
}

func byPython(file string) (map[string]string, error) {
	out, err := exec.Command("python3", "-I", "-c", `
import json, sys, tarfile
with tarfile.open(sys.argv[1]) as t: print(json.dumps({m.name: t.extractfile(m).read().decode() for m in t.getmembers()}))
`, file).Output()
	files := map[string]string{}
	return files, errors.Join(err, json.Unmarshal(out, &files))
}

// TestWriters: other programs write the same archive, byte for byte.
func TestWriters(t *testing.T) {
	data := write(t, some)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	dir := t.TempDir()
	names := slices.Sorted(maps.Keys(some))
	for _, name := range names {
		h := &tar.Header{Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Name: name, Size: int64(len(some[name])), Mode: 0o644, ModTime: time.Unix(0, 0)}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, some[name]); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(some[name]), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), data) {
		t.Error("archive/tar writes other bytes")
	}
	c := exec.Command("tar", append([]string{"--create", "--format=ustar", "--blocking-factor=1", "--owner=0", "--group=0", "--numeric-owner", "--mode=644", "--mtime=@0", "-C", dir}, names...)...)
	if out, err := c.Output(); err != nil || !bytes.Equal(out, data) {
		t.Errorf("GNU tar writes other bytes: %v", err)
	}
}

// TestRefused changes archives in ways that tar readers would ignore, or interpret differently.
func TestRefused(t *testing.T) {
	truth := write(t, map[string]string{"a": "one", "b": "two"})
	standard := func(headers ...tar.Header) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			h.Mode, h.Typeflag = 0o644, max(h.Typeflag, tar.TypeReg)
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			w.Write(make([]byte, h.Size))
		}
		w.Close()
		return b.Bytes()
	}
	change := func(at int, with string) []byte {
		b := bytes.Clone(truth)
		copy(b[at:], with)
		return b
	}
	for name, data := range map[string][]byte{
		"empty":                {},
		"cut in the end":       truth[:len(truth)-1],
		"cut before the end":   truth[:len(truth)-1024],
		"cut in a file":        truth[:514],
		"cut in a header":      truth[:100],
		"half an end":          truth[:len(truth)-512],
		"a longer end":         append(bytes.Clone(truth), make([]byte, 512)...),
		"a second archive":     append(bytes.Clone(truth), truth...),
		"something behind":     append(bytes.Clone(truth), 'x'),
		"something before":     append([]byte{0}, truth...),
		"padding":              change(512+3, "x"),
		"end":                  change(len(truth)-1, "x"),
		"name behind its zero": change(2, "x"),
		"same name":            change(1024, "a"),
		"size with a space":    change(124, " 0000000003"),
		"size in base 256":     change(124, "\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x03"),
		"wrong order":          standard(tar.Header{Name: "b"}, tar.Header{Name: "a"}),
		"twice":                standard(tar.Header{Name: "a"}, tar.Header{Name: "a"}),
		"PAX":                  standard(tar.Header{Name: "a", Format: tar.FormatPAX, PAXRecords: map[string]string{"CUSTODY.path": "b"}}),
		"GNU long name":        standard(tar.Header{Name: strings.Repeat("x", 200), Format: tar.FormatGNU}),
		"name in the prefix":   standard(tar.Header{Name: strings.Repeat("x", 90) + "/" + strings.Repeat("y", 90), Format: tar.FormatUSTAR}),
		"directory":            standard(tar.Header{Name: "a/", Typeflag: tar.TypeDir}),
		"link":                 standard(tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "b"}),
		"owner":                standard(tar.Header{Name: "a", Uname: "x"}),
		"time":                 standard(tar.Header{Name: "a", ModTime: time.Unix(1, 0)}),
		"empty name":           standard(tar.Header{Name: ""}),
	} {
		if files, err := read(data); err == nil {
			t.Errorf("%s: it is read as %q", name, files)
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	for name, add := range map[string]func(w *archive.Writer) error{
		"empty name": func(w *archive.Writer) error { return w.Add("", 0, strings.NewReader("")) },
		"zero byte":  func(w *archive.Writer) error { return w.Add("a\x00", 0, strings.NewReader("")) },
		"long name":  func(w *archive.Writer) error { return w.Add(strings.Repeat("a", 101), 0, strings.NewReader("")) },
		"wrong order": func(w *archive.Writer) error {
			return errors.Join(w.Add("b", 0, strings.NewReader("")), w.Add("a", 0, strings.NewReader("")))
		},
		"too short": func(w *archive.Writer) error { return w.Add("a", 2, strings.NewReader("x")) },
		"too long":  func(w *archive.Writer) error { return w.Add("a", 2, strings.NewReader("xyz")) },
		"too large": func(w *archive.Writer) error { return w.Add("a", 1<<33, strings.NewReader("")) },
		"closed":    func(w *archive.Writer) error { w.Close(); return w.Add("a", 0, strings.NewReader("")) },
	} {
		w := archive.NewWriter(io.Discard)
		if err := add(w); err == nil {
			t.Errorf("%s: no error", name)
		}
		if err := w.Close(); err == nil {
			t.Errorf("%s: the archive is complete", name)
		}
	}
}

// FuzzOpen: writing what Open has read returns the same bytes.
func FuzzOpen(f *testing.F) {
	f.Add(write(f, some))
	f.Add(make([]byte, 1024))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := archive.Open(bytes.NewReader(data), int64(len(data)), func(string, int64) error { return nil })
		if err != nil {
			return
		}
		files, err := byStandardLibrary(data)
		if err != nil || len(files) != a.Len() {
			t.Fatalf("archive/tar: %v, %d files of %d", err, len(files), a.Len())
		}
		if !bytes.Equal(write(t, files), data) {
			t.Error("the same files can be written in two ways")
		}
	})
}
