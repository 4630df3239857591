package guest_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/vmm/vmtest"
)

// tarOf returns an archive. An entry without a type is a regular file with the content of its PAX comment.
func tarOf(entries ...tar.Header) string {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		content := h.PAXRecords["comment"]
		if h.Typeflag != tar.TypeXGlobalHeader {
			h.PAXRecords = nil
		}
		if h.Typeflag == 0 {
			h.Typeflag, h.Size = tar.TypeReg, int64(len(content))
		}
		if h.Mode == 0 && h.Typeflag != tar.TypeXGlobalHeader {
			h.Mode = 0o644
		}
		w.WriteHeader(&h)
		if h.Typeflag == tar.TypeReg {
			io.WriteString(w, content)
		}
	}
	w.Close()
	return b.String()
}

func entry(name, content string) tar.Header {
	return tar.Header{Name: name, PAXRecords: map[string]string{"comment": content}}
}

// listed returns the entries of an archive, sorted.
func (s *session) listed(archive string) string {
	s.Helper()
	var list []string
	for in := tar.NewReader(strings.NewReader(archive)); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			s.Fatalf("read the archive: %v", err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			s.Fatal(err)
		}
		list = append(list, string(h.Typeflag)+" "+h.Name+" "+h.Linkname+string(content))
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}

// TestArchives: a directory is packed and unpacked as a user could do it, and an archive leads to no other place.
func TestArchives(t *testing.T) {
	inSession(t, vmtest.Options{}, func(s *session) {
		s.script(`mkdir -p /tmp/in/a/b /tmp/outside; cd /tmp/in; echo -n one >a/one; echo -n x >'not '$'\377'; ln -s ../outside a/link; mkfifo pipe
			truncate -s 300K a/b/large; mkdir /tmp/private; chmod 711 /tmp/private; echo -n secret >/tmp/private/file; chmod 600 /tmp/private/file`)
		_, archive, _, err := s.file(channel.FileRequest{Op: channel.FilePack, Path: "/tmp/in"}, "")
		if err != nil {
			s.Fatal(err)
		}
		want := "0 a/b/large " + strings.Repeat("\x00", 300<<10) + "\n0 a/one one\n0 not \xff x\n2 a/link ../outside\n5 a/ \n5 a/b/ \n6 pipe "
		if got := s.listed(archive); got != want {
			s.Errorf("the archive has %.2000q", strings.ReplaceAll(got, "\x00", ""))
		}
		s.unpacks()
		s.refusesArchives()
		s.packsForUsers()
		if got := s.script(`find /tmp /workspace -name '.custody-*'`); got.out != "" {
			s.Errorf("left behind: %s", got.out)
		}
	})
}

func (s *session) unpacks() {
	s.Helper()
	s.script(`mkdir -p /tmp/to/kept; cd /tmp/to; echo -n old >kept/file; chmod 604 kept/file; echo -n kept >kept/other; echo -n old >becomes-link; ln -s /etc/passwd becomes-file`)
	for range 2 {
		_, _, _, err := s.file(channel.FileRequest{Op: channel.FileUnpack, Path: "/tmp/to"}, tarOf(
			tar.Header{Typeflag: tar.TypeDir, Name: "./"}, tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "of git"}},
			tar.Header{Typeflag: tar.TypeDir, Name: "./dir/", Mode: 0o500}, entry("./dir/file", "in dir"), entry("made/for/it", strings.Repeat("content ", 1<<16)),
			entry("kept/file", "new"), tar.Header{Typeflag: tar.TypeSymlink, Name: "becomes-link", Linkname: "../outside"}, entry("becomes-file", "file"),
			tar.Header{Name: "setuid", Mode: 0o4755}, entry("not \xff", "")))
		if err != nil {
			s.Fatal(err)
		}
	}
	got := s.script(`cd /tmp/to; stat -c '%A %n' dir made made/for setuid kept/file; wc -c <made/for/it; cat dir/file kept/* becomes-file; readlink becomes-link; ls -A | wc -l; wc -l </etc/passwd`)
	if want := "drwx------ dir\ndrwxr-xr-x made\ndrwxr-xr-x made/for\n-rwxr-xr-x setuid\n-rw-r--r-- kept/file\n524288\nin dirnewkeptfile../outside\n7\n"; !strings.HasPrefix(got.out, want) {
		s.Errorf("the directory has %s", got.out)
	}
}

func (s *session) refusesArchives() {
	s.Helper()
	s.script(`mkdir -p /tmp/bad/dir; ln -s /tmp/outside /tmp/bad/out; echo -n x >/tmp/bad/file`)
	for name, c := range map[string]struct {
		archive string
		code    channel.FileCode
		path    audit.Text
	}{
		"parent":           {tarOf(entry("../x", "")), channel.FileArchived, "/tmp/bad"},
		"absolute":         {tarOf(entry("/x", "")), channel.FileArchived, "/tmp/bad"},
		"climbs":           {tarOf(entry("a/../../x", "")), channel.FileArchived, "/tmp/bad"},
		"top as a file":    {tarOf(entry("./.", "")), channel.FileArchived, "/tmp/bad"},
		"long":             {tarOf(entry(strings.Repeat("x", 256), "")), channel.FileArchived, "/tmp/bad"},
		"deep":             {tarOf(entry(strings.Repeat("d/", 300)+"x", "")), channel.FileArchived, "/tmp/bad"},
		"device":           {tarOf(tar.Header{Typeflag: tar.TypeChar, Name: "null"}), channel.FileArchived, "/tmp/bad"},
		"hard link":        {tarOf(tar.Header{Typeflag: tar.TypeLink, Name: "l", Linkname: "/etc/passwd"}), channel.FileArchived, "/tmp/bad"},
		"empty link":       {tarOf(tar.Header{Typeflag: tar.TypeSymlink, Name: "l"}), channel.FileArchived, "/tmp/bad"},
		"no archive":       {strings.Repeat("x", 4096), channel.FileArchived, "/tmp/bad"},
		"cut":              {tarOf(entry("cut", strings.Repeat("x", 2000)))[:1500], channel.FileArchived, "/tmp/bad"},
		"goes on":          {tarOf() + strings.Repeat("\x00", 2<<20), channel.FileArchived, "/tmp/bad"},
		"through a link":   {tarOf(entry("out/x", "")), channel.FileNotDirectory, "/tmp/bad/out/x"},
		"its own link":     {tarOf(tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "/tmp/outside"}, entry("l/x", "")), channel.FileNotDirectory, "/tmp/bad/l/x"},
		"through a file":   {tarOf(entry("file/x", "")), channel.FileNotDirectory, "/tmp/bad/file/x"},
		"over a directory": {tarOf(entry("dir", "")), channel.FileIsDirectory, "/tmp/bad/dir"},
		"dir over a file":  {tarOf(tar.Header{Typeflag: tar.TypeDir, Name: "file/"}), channel.FileNotDirectory, "/tmp/bad/file"},
	} {
		_, _, _, err := s.file(channel.FileRequest{Op: channel.FileUnpack, Path: "/tmp/bad"}, c.archive)
		if failed := (*channel.FileError)(nil); !errors.As(err, &failed) || failed.Code != c.code || failed.Path != c.path {
			s.Errorf("%s: %v, want %s of %s", name, err, c.code, c.path)
		}
	}
	if got := s.script(`ls -A /tmp/outside; cd /tmp/bad; ls -A; cat file`); got.out != "dir\nfile\nl\nout\nx" {
		s.Errorf("afterwards there is %s", got.out)
	}
	for _, c := range []struct {
		r    channel.FileRequest
		code channel.FileCode
	}{
		{channel.FileRequest{Op: channel.FilePack, Path: "/tmp/bad/file"}, channel.FileNotDirectory},
		{channel.FileRequest{Op: channel.FilePack, Path: "/proc"}, channel.FileKernel},
		{channel.FileRequest{Op: channel.FilePack, Path: "/run/secrets"}, channel.FileSecret},
		{channel.FileRequest{Op: channel.FilePack, Path: "/none"}, channel.FileMissing},
		{channel.FileRequest{Op: channel.FileUnpack, Path: "/none"}, channel.FileMissing},
		{channel.FileRequest{Op: channel.FileUnpack, Path: "/proc"}, channel.FileKernel},
	} {
		_, _, _, err := s.file(c.r, tarOf(entry("x", "")))
		if failed := (*channel.FileError)(nil); !errors.As(err, &failed) || failed.Code != c.code {
			s.Errorf("%s %q: %v, want %s", c.r.Op, c.r.Path, err, c.code)
		}
	}
	if _, _, _, err := s.file(channel.FileRequest{Op: channel.FileUnpack, Path: "/"}, tarOf(entry("run/secrets/x", "x"))); err == nil {
		s.Error("a secret is unpacked")
	}
	_, err := s.guest.File(s.Context(), channel.FileRequest{Op: channel.FileUnpack, Path: "/tmp/bad"}, channel.FileTransfer{In: io.MultiReader(strings.NewReader(tarOf(entry("whole", ""), entry("part", strings.Repeat("x", 1<<20)))[:3000]), failing{})})
	if got := s.script(`ls /tmp/bad/whole /tmp/bad/part 2>/dev/null`); !errors.Is(err, errBroken) || got.out != "/tmp/bad/whole\n" {
		s.Errorf("a broken archive: %v, %s", err, got.out)
	}
	_, err = s.guest.File(s.Context(), channel.FileRequest{Op: channel.FilePack, Path: "/tmp/in"}, channel.FileTransfer{Out: &limited{left: 2000}})
	if !errors.Is(err, errBroken) {
		s.Errorf("a broken reader: %v", err)
	}
	large := io.MultiReader(strings.NewReader(tarOf(tar.Header{Name: "large", Typeflag: tar.TypeReg, Size: 1 << 40})[:1536]), zeros{})
	_, err = s.guest.File(s.Context(), channel.FileRequest{Op: channel.FileUnpack, Path: "/run"}, channel.FileTransfer{In: large})
	if failed := (*channel.FileError)(nil); !errors.As(err, &failed) || failed.Code != channel.FileNoSpace || failed.Path != "/run/large" {
		s.Errorf("a full file system: %v", err)
	}
}

// packsForUsers: the user's rights apply, and the archive has the reason why it has no end.
func (s *session) packsForUsers() {
	s.Helper()
	var out bytes.Buffer
	s.script(`chmod 755 /tmp/private`)
	_, err := s.guest.File(s.Context(), channel.FileRequest{Op: channel.FilePack, Path: "/tmp/private", User: "nobody"}, channel.FileTransfer{Out: &out})
	failed := (*channel.FileError)(nil)
	if !errors.As(err, &failed) || failed.Code != channel.FileDenied || failed.Path != "/tmp/private/file" {
		s.Errorf("another user's file: %v", err)
	}
	in := tar.NewReader(&out)
	h, err := in.Next()
	if err != nil || h.Typeflag != tar.TypeXGlobalHeader || h.PAXRecords["comment"] != failed.Error() {
		s.Errorf("the archive begins with %+v, %v", h, err)
	}
	s.script(`mkdir -m 777 /tmp/shared`)
	if _, _, _, err := s.file(channel.FileRequest{Op: channel.FileUnpack, Path: "/tmp/shared", User: "nobody"}, tarOf(entry("a/b", "x"))); err != nil {
		s.Error(err)
	}
	if got := s.script(`stat -c %U /tmp/shared/a /tmp/shared/a/b`); got.out != "nobody\nnobody\n" {
		s.Errorf("the user's files are of %s", got.out)
	}
	_, _, _, err = s.file(channel.FileRequest{Op: channel.FileUnpack, Path: "/tmp/to", User: "nobody"}, tarOf(entry("dir/x", "x")))
	if !errors.As(err, &failed) || failed.Code != channel.FileDenied || failed.Path != "/tmp/to/dir/x" {
		s.Errorf("another user's directory: %v", err)
	}
}
