package commands

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/custody-project/custody/client"
)

// packs is a service whose sandbox has one directory, /d, of which it sends any archive.
func packs(t *testing.T, archive func(io.Writer)) Service {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Base(r.URL.Path) == "archive" {
			archive(w)
			return
		}
		json.NewEncoder(w).Encode(client.FileInfo{Name: "d", Type: "directory", Mode: "0755"})
	}))
	t.Cleanup(s.Close)
	return serviceAt(t, s.URL)
}

func serviceAt(t *testing.T, url string) Service {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Service{Host: url, TokenFile: token}
}

// archived writes an archive of entries, each with the content x if it is a file.
func archived(entries ...tar.Header) func(io.Writer) {
	return func(w io.Writer) {
		out := tar.NewWriter(w)
		for _, h := range entries {
			if h.Typeflag == 0 {
				h.Typeflag, h.Size, h.Mode = tar.TypeReg, 1, 0o644
			}
			out.WriteHeader(&h)
			if h.Typeflag == tar.TypeReg {
				io.WriteString(out, "x")
			}
		}
		out.Close()
	}
}

func link(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
}

func file(name string) tar.Header { return tar.Header{Name: name} }

func dir(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o700} }

// TestHostileArchive: whatever a sandbox sends, a copy ends, and writes nothing outside of its target.
func TestHostileArchive(t *testing.T) {
	deep := strings.Repeat("d/", maxDepth+1) + "f"
	for name, c := range map[string]struct {
		archive func(io.Writer)
		says    string
		left    string // in the target
	}{
		"parent":          {archived(file("../x")), `sends "../x"`, ""},
		"itself":          {archived(file(".")), `sends "."`, ""},
		"climbs":          {archived(file("a/../../x")), `sends "a/../../x"`, ""},
		"absolute":        {archived(file("/x")), `sends "/x"`, ""},
		"unclean":         {archived(file("a//x")), `sends "a//x"`, ""},
		"empty":           {archived(file("")), `sends ""`, ""},
		"long":            {archived(file(strings.Repeat("x", 256))), `sends "xx`, ""},
		"deep":            {archived(file(deep)), `sends "d/d`, ""},
		"through link":    {archived(link("l", "../outside"), file("l/x")), "1 symbolic links", "l/x"},
		"through two":     {archived(link("a", "."), link("b", "a/.."), file("b/x")), "1 symbolic links", "a b/x"},
		"absolute link":   {archived(link("l", "/etc/passwd"), file("l")), "1 symbolic links", "l"},
		"links that stay": {archived(dir("d"), link("d/up", "../f"), link("again", "d"), file("f"), file("again/g")), "", "again d/g d/up f"},
		"hard link":       {archived(file("x"), tar.Header{Typeflag: tar.TypeLink, Name: "y", Linkname: "/etc/passwd"}), "1 symbolic links and special files", "x"},
		"device":          {archived(tar.Header{Typeflag: tar.TypeChar, Name: "null"}, tar.Header{Typeflag: tar.TypeFifo, Name: "pipe"}), "2 symbolic links and special files", ""},
		"file, directory": {archived(file("x"), dir("x")), `"x" is on this machine, and is not a directory`, "x"},
		"directory, file": {archived(dir("x"), file("x")), `"/d/x" is not copied`, ""},
		"huge":            {archived(tar.Header{Typeflag: tar.TypeReg, Name: "x", Size: 1 << 40}), "more than 1 GiB", ""},
		"short":           {archived(file("a"), tar.Header{Typeflag: tar.TypeReg, Name: "x", Size: 100}), `"/d/x" is not copied: unexpected EOF`, "a"},
		"no archive":      {func(w io.Writer) { w.Write(bytes.Repeat([]byte("x"), 4096)) }, "invalid tar header", ""},
		"goes on":         {func(w io.Writer) { archived(file("x"))(w); w.Write(make([]byte, maxPadding+1)) }, "goes on after its end", "x"},
		"reason": {func(w io.Writer) {
			tar.NewWriter(w).WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "\x1b[31m/d/x: the user may not do this"}})
			http.NewResponseController(w.(http.ResponseWriter)).Flush()
			panic(http.ErrAbortHandler)
		}, "not copied as a whole: ?[31m/d/x: the user may not", ""},
	} {
		t.Run(name, func(t *testing.T) {
			at := t.TempDir()
			target := filepath.Join(at, "target")
			err := CpCmd{From: "sandbox:/d", To: target, MaxSize: 1, Service: packs(t, c.archive)}.Run(env(t))
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%v, want %s", err, c.says)
			}
			if list, err := os.ReadDir(at); err != nil || len(list) != 1 {
				t.Errorf("beside the target there are %v, %v", list, err)
			}
			var left []string
			filepath.WalkDir(target, func(name string, d fs.DirEntry, err error) error {
				if !d.IsDir() {
					left = append(left, filepath.ToSlash(name[len(target)+1:]))
				}
				return err
			})
			if got := strings.Join(left, " "); got != c.left {
				t.Errorf("the target has %q, want %q", got, c.left)
			}
		})
	}
}

// TestManyFiles: a copy of endlessly many files ends.
func TestManyFiles(t *testing.T) {
	x := &extractor{copier: &copier{Env: env(t)}, from: "/d", entries: maxEntries}
	if err := x.entry(&tar.Header{Name: "x"}, nil); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Error(err)
	}
}

// TestManySkipped: few of many files that are not copied are named.
func TestManySkipped(t *testing.T) {
	var said []string
	e := env(t)
	e.Say = func(text string) { said = append(said, text) }
	var links []tar.Header
	for i := range 900 {
		links = append(links, link(fmt.Sprintf("%03d", i), "/etc"))
	}
	err := CpCmd{From: "sandbox:/d", To: filepath.Join(t.TempDir(), "target"), Service: packs(t, archived(links...))}.Run(e)
	if err == nil || len(said) != maxNamed+1 {
		t.Errorf("%d messages, %v", len(said), err)
	}
}

// TestBrokenFile: of a file that does not arrive as a whole nothing is left, and the one that it would replace stays.
func TestBrokenFile(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Base(r.URL.Path) == "files" {
			json.NewEncoder(w).Encode(client.FileInfo{Name: "f", Type: "file", Mode: "0644"})
			return
		}
		io.WriteString(w, "a part")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer s.Close()
	service := serviceAt(t, s.URL)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := CpCmd{From: "sandbox:/f", To: dir, Service: service}.Run(env(t))
	if err == nil || !strings.Contains(err.Error(), `"/f" is not copied: unexpected EOF`) {
		t.Errorf("the error is %v", err)
	}
	list, _ := os.ReadDir(dir)
	if b, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(b) != "old" || len(list) != 1 {
		t.Errorf("afterwards there are %v, %q, %v", list, b, err)
	}
}

func env(t *testing.T) *Env {
	return &Env{Context: t.Context(), Stdout: io.Discard, Stderr: io.Discard, Say: func(string) {}}
}
