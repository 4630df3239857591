package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/client"
)

// TestSandboxArchives: directories are copied through the API as archives, and the record has each file.
func TestSandboxArchives(t *testing.T) {
	t.Parallel()
	c, s := newClient(t)
	usesArchives(t, c, s)
}

func usesArchives(t *testing.T, c *client.Client, s *served) {
	t.Helper()
	box, err := c.Create(t.Context(), client.SandboxRequest{Lazy: true})
	check(t, err)
	files, ctx := box.Files(""), t.Context()
	large := strings.Repeat("content ", 1<<17)
	contents := map[string]string{"a/one": "one", "a/b/large": large, "not \xff": ""}
	check(t, files.Unpack(ctx, "/workspace", func(w io.Writer) error {
		out := tar.NewWriter(w)
		for _, name := range []string{"a/one", "a/b/large", "not \xff"} {
			h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o640, Size: int64(len(contents[name]))}
			if err := errors.Join(out.WriteHeader(h), write(out, contents[name])); err != nil {
				return err
			}
		}
		return errors.Join(out.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "/etc"}), out.Close())
	}))
	if got := unpacked(t, files, "/workspace"); fmt.Sprint(got) != fmt.Sprint(map[string]string{"a/one": "one", "a/b/large": large, "not \xff": "", "link": "->/etc"}) {
		t.Errorf("the sandbox packs %.1000q", got)
	}
	err = files.Unpack(ctx, "/workspace", func(w io.Writer) error {
		out := tar.NewWriter(w)
		return errors.Join(out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "../x"}), out.Close())
	})
	if !client.IsStatus(err, http.StatusBadRequest) || !strings.Contains(err.Error(), `"../x" is no relative path`) {
		t.Errorf("a hostile archive: %v", err)
	}
	broken := errors.New("broken")
	if err := files.Unpack(ctx, "/workspace", func(w io.Writer) error {
		out := tar.NewWriter(w)
		part := strings.Repeat("x", 16<<20) // more than sockets hold, so that the sandbox has begun
		return errors.Join(out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "broken", Size: 2 * int64(len(part))}), write(out, part), broken)
	}); !errors.Is(err, broken) {
		t.Errorf("a broken archive: %v", err)
	}
	if err := files.Unpack(ctx, "/none", func(w io.Writer) error { return tar.NewWriter(w).Close() }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that does not exist: %v", err)
	}
	if _, err := files.Pack(ctx, "/workspace/a/one"); !client.IsStatus(err, http.StatusConflict) {
		t.Errorf("an archive of a file: %v", err)
	}
	deniedArchive(t, box.Files("nobody"))
	check(t, box.Destroy(ctx))
	s.admin.verified(box.ID)
	recordedArchives(t, s.admin.records(box.ID), contents)
}

func write(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

// unpacked returns the contents of the files that a directory's archive has, and the targets of its links.
func unpacked(t *testing.T, files *client.Files, dir string) map[string]string {
	t.Helper()
	archive, err := files.Pack(t.Context(), dir)
	check(t, err)
	defer archive.Close()
	got := map[string]string{}
	for in := tar.NewReader(archive); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		check(t, err)
		content, err := io.ReadAll(in)
		check(t, err)
		switch h.Typeflag {
		case tar.TypeReg:
			got[h.Name] = string(content)
		case tar.TypeSymlink:
			got[h.Name] = "->" + h.Linkname
		}
	}
	_, err = io.Copy(io.Discard, archive)
	check(t, err)
	return got
}

// deniedArchive: an archive with a file that may not be read has no end, and the reason.
func deniedArchive(t *testing.T, files *client.Files) {
	t.Helper()
	archive, err := files.Pack(t.Context(), "/workspace")
	check(t, err)
	defer archive.Close()
	var last *tar.Header
	for in := tar.NewReader(archive); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			t.Fatal("the archive has an end")
		}
		if err != nil {
			break
		}
		last = h
	}
	if why := client.Unfinished(last); !strings.Contains(why, `": the user may not do this`) {
		t.Errorf("the reason is %q", why)
	}
}

// recordedArchives: the record has the files of archives with their hashes, and each archive.
func recordedArchives(t *testing.T, records []audit.Record, contents map[string]string) {
	t.Helper()
	seen := map[string]int{}
	for _, r := range records {
		f := r.File
		if f == nil || f.Caller == "" {
			continue
		}
		failed := ""
		if f.Error != "" {
			failed = "failed "
		}
		seen[failed+string(f.Op)]++
		content, known := contents[strings.TrimPrefix(string(f.Path), "/workspace/")]
		if sum := sha256.Sum256([]byte(content)); known && f.Error == "" && (f.SHA256 != hex.EncodeToString(sum[:]) || f.Size != int64(len(content)) || f.Caller != "client") {
			t.Errorf("%+v", f)
		}
		if known && f.Error == "" {
			seen[string(f.Op)+" known"]++
		}
	}
	for op, n := range map[string]int{"write known": 3, "unpack": 1, "pack": 1, "failed unpack": 3, "failed pack": 2, "create": 1} {
		if seen[op] != n {
			t.Errorf("the record has %d of %q: %v", seen[op], op, seen)
		}
	}
	if seen["read known"] < 3 {
		t.Errorf("the record has the reads %v", seen)
	}
}
