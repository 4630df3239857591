package guest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/vmm/vmtest"
)

// file carries out an operation with a content to write, and returns the content that was read and the entries that were listed.
func (s *session) file(r channel.FileRequest, in string) (channel.FileResult, string, []channel.FileInfo, error) {
	s.Helper()
	var out bytes.Buffer
	var entries []channel.FileInfo
	if r.Op == channel.FileList && r.Max == 0 {
		r.Max = channel.MaxListed
	}
	res, err := s.guest.File(s.Context(), r, channel.FileTransfer{In: strings.NewReader(in), Out: &out, Entry: func(e channel.FileInfo) error {
		entries = append(entries, e)
		return nil
	}})
	return res, out.String(), entries, err
}

// refused reports an operation that does not fail with a code.
func (s *session) refused(r channel.FileRequest, code channel.FileCode) {
	s.Helper()
	_, out, _, err := s.file(r, "content")
	if failed := (*channel.FileError)(nil); !errors.As(err, &failed) || failed.Code != code {
		s.Errorf("%s %q as %q: %v, read %.100q; want %s", r.Op, r.Path, r.User, err, out, code)
	}
}

// TestFiles: operations on files do what a process of the session could do, as the user, and lead nowhere else.
func TestFiles(t *testing.T) {
	inSession(t, vmtest.Options{Sensor: true}, func(s *session) {
		s.writesFiles()
		s.listsFiles()
		s.refusesFiles()
		s.filesOfUsers()
		if got := s.script(`ls -a / /tmp /workspace /dev/shm | grep custody-; true`); got.out != "" {
			s.Errorf("left behind: %s", got.out)
		}
		if err := s.guest.EndSession(s.Context()); err != nil {
			s.Error(err)
		}
		if _, _, _, err := s.file(channel.FileRequest{Op: channel.FileStat, Path: "/"}, ""); err == nil {
			s.Error("a file of a session that has ended is described")
		}
	})
}

func (s *session) writesFiles() {
	s.Helper()
	name := audit.Text("/tmp/not \xff UTF-8 \n")
	big := strings.Repeat("0123456789abcdef", 1<<17)
	for i, content := range []string{"one", "", big} {
		res, _, _, err := s.file(channel.FileRequest{Op: channel.FileWrite, Path: name}, content)
		if err != nil || res.Info.Size != int64(len(content)) || res.Info.Name != name[5:] || res.Info.Mode != 0o644 {
			s.Fatalf("write: %+v, %v", res, err)
		}
		if _, got, _, err := s.file(channel.FileRequest{Op: channel.FileRead, Path: name}, ""); err != nil || got != content {
			s.Fatalf("read %d: %d bytes, %v", i, len(got), err)
		}
	}
	if _, got, _, err := s.file(channel.FileRequest{Op: channel.FileRead, Path: name, Offset: 10, Limit: 8}, ""); err != nil || got != "abcdef01" {
		s.Errorf("a part: %q, %v", got, err)
	}
	if _, got, _, err := s.file(channel.FileRequest{Op: channel.FileRead, Path: name, Offset: 1 << 40}, ""); err != nil || got != "" {
		s.Errorf("behind the end: %q, %v", got, err)
	}
	s.script(`mkfifo /tmp/fifo; mkdir /tmp/dir; ln -s /tmp/dir /tmp/link; ln -s loop /tmp/loop; echo kept >/tmp/target; ln -s target /tmp/to-target; chmod 751 /tmp/target`)
	for _, r := range []channel.FileRequest{
		{Op: channel.FileWrite, Path: "/tmp/link/new", Mode: 0o4711}, {Op: channel.FileWrite, Path: "/tmp/to-target"}, {Op: channel.FileWrite, Path: "/tmp/target", User: "0"},
		{Op: channel.FileMkdir, Path: "/tmp/a/b//c/", Recursive: true}, {Op: channel.FileMkdir, Path: "/tmp/a/b/c", Recursive: true}, {Op: channel.FileMkdir, Path: "/dev/shm/d", Mode: 0o700},
		{Op: channel.FileMove, Path: "/tmp/dir", To: "/tmp/a/b/moved"}, {Op: channel.FileWrite, Path: "/run/file", Exclusive: true},
		{Op: channel.FileMove, Path: "/tmp/a/b/moved/new", To: "/tmp/fifo"}, {Op: channel.FileRemove, Path: "/tmp/link"},
	} {
		if _, _, _, err := s.file(r, "content"); err != nil {
			s.Errorf("%s %q: %v", r.Op, r.Path, err)
		}
	}
	got := s.script(`cd /tmp; stat -c '%A %F %s' a/b/c a/b/moved fifo target to-target /dev/shm/d; cat target fifo /run/file; ls a/b/moved; ls link 2>&1`)
	const want = `drwxr-xr-x directory 4096
drwxr-xr-x directory 4096
-rws--x--x regular file 7
-rwxr-x--x regular file 7
-rw-r--r-- regular file 7
drwx------ directory 40
contentcontentcontentls: cannot access 'link': No such file or directory
`
	if sizes := strings.NewReplacer("directory 4096", "directory", "directory 60", "directory", "directory 40", "directory", "directory 0", "directory"); sizes.Replace(got.out) != sizes.Replace(want) {
		s.Errorf("the files are\n%s", got.out)
	}
	s.script(`mkdir -p /tmp/deep/x/y; ln -s / /tmp/deep/x/root; touch /tmp/deep/x/y/z /tmp/keep; mkfifo /tmp/deep/pipe`)
	s.refused(channel.FileRequest{Op: channel.FileRemove, Path: "/tmp/deep"}, channel.FileNotEmpty)
	if _, _, _, err := s.file(channel.FileRequest{Op: channel.FileRemove, Path: "/tmp/deep", Recursive: true}, ""); err != nil {
		s.Error(err)
	}
	if got := s.script(`ls /tmp/deep /tmp/keep /usr/bin/env`); got.out != "/tmp/keep\n/usr/bin/env\nls: cannot access '/tmp/deep': No such file or directory\n" {
		s.Errorf("after removing: %s", got.out)
	}
}

func (s *session) listsFiles() {
	s.Helper()
	s.script(`mkdir /tmp/list; cd /tmp/list; for i in $(seq -w 0 2499); do : >f$i; done; ln -s "$(printf '/\377')" link; mkfifo pipe; mkdir sub; chmod 1770 sub`)
	var names []string
	after := audit.Text("")
	for {
		res, _, entries, err := s.file(channel.FileRequest{Op: channel.FileList, Path: "/tmp/list", After: after}, "")
		if err != nil || len(entries) == 0 {
			s.Fatalf("list: %d entries, %v", len(entries), err)
		}
		for _, e := range entries {
			names = append(names, fmt.Sprintf("%s %s %o %s", e.Name, e.Type, e.Mode, e.Target))
		}
		if !res.More {
			break
		}
		after = entries[len(entries)-1].Name
	}
	if want := []string{"f2499 file 644 ", "link symlink 777 /\xff", "pipe fifo 644 ", "sub directory 1770 "}; len(names) != 2503 || strings.Join(names[2499:], "|") != strings.Join(want, "|") {
		s.Errorf("%d entries, which end with %q", len(names), names[max(0, len(names)-4):])
	}
	for path, want := range map[audit.Text]string{"/tmp/list/link": "symlink", "/tmp/list/pipe": "fifo", "/dev/null": "device", "/": "directory", "/tmp/../..": "directory"} {
		if res, _, _, err := s.file(channel.FileRequest{Op: channel.FileStat, Path: path, Link: true}, ""); err != nil || string(res.Info.Type) != want {
			s.Errorf("%s: %+v, %v", path, res, err)
		}
	}
}

func (s *session) refusesFiles() {
	s.Helper()
	s.script(`ln -s /proc/self/root/etc /tmp/proclink; ln -s ../../../../etc/hostname /tmp/up; ln -s /run/secrets /tmp/secrets`)
	if _, got, _, err := s.file(channel.FileRequest{Op: channel.FileRead, Path: "/tmp/up"}, ""); err != nil || got == "" {
		s.Errorf("a link with ..: %q, %v", got, err)
	}
	for _, c := range []struct {
		r    channel.FileRequest
		code channel.FileCode
	}{
		{channel.FileRequest{Op: channel.FileRead, Path: "/nothing"}, channel.FileMissing},
		{channel.FileRequest{Op: channel.FileRead, Path: "/tmp/target/x"}, channel.FileNotDirectory},
		{channel.FileRequest{Op: channel.FileRead, Path: "/tmp"}, channel.FileIsDirectory},
		{channel.FileRequest{Op: channel.FileList, Path: "/tmp/target"}, channel.FileNotDirectory},
		{channel.FileRequest{Op: channel.FileRead, Path: "/tmp/list/pipe"}, channel.FileSpecial},
		{channel.FileRequest{Op: channel.FileRead, Path: "/dev/zero"}, channel.FileSpecial},
		{channel.FileRequest{Op: channel.FileRead, Path: "/dev/tty"}, channel.FileSpecial},
		{channel.FileRequest{Op: channel.FileRead, Path: "/tmp/loop"}, channel.FileTooDeep},
		{channel.FileRequest{Op: channel.FileRead, Path: "/proc/1/environ"}, channel.FileKernel},
		{channel.FileRequest{Op: channel.FileRead, Path: "/proc/meminfo"}, channel.FileKernel},
		{channel.FileRequest{Op: channel.FileList, Path: "/proc"}, channel.FileKernel},
		{channel.FileRequest{Op: channel.FileList, Path: "/sys"}, channel.FileKernel},
		{channel.FileRequest{Op: channel.FileRead, Path: "/run/secrets/env"}, channel.FileSecret},
		{channel.FileRequest{Op: channel.FileRead, Path: "/tmp/../run/./secrets/a/b"}, channel.FileSecret},
		{channel.FileRequest{Op: channel.FileList, Path: "/tmp/secrets"}, channel.FileSecret},
		{channel.FileRequest{Op: channel.FileWrite, Path: "/tmp/secrets/x"}, channel.FileSecret},
		{channel.FileRequest{Op: channel.FileWrite, Path: "/tmp/list"}, channel.FileIsDirectory},
		{channel.FileRequest{Op: channel.FileWrite, Path: "/tmp/list/."}, channel.FileInvalid},
		{channel.FileRequest{Op: channel.FileWrite, Path: "/"}, channel.FileInvalid},
		{channel.FileRequest{Op: channel.FileWrite, Path: "/tmp/target", Exclusive: true}, channel.FileExists},
		{channel.FileRequest{Op: channel.FileWrite, Path: "/dev/null"}, channel.FileReadOnly},
		{channel.FileRequest{Op: channel.FileWrite, Path: audit.Text("/tmp/" + strings.Repeat("x", 256))}, channel.FileInvalid},
		{channel.FileRequest{Op: channel.FileMkdir, Path: "/tmp/x/../y", Recursive: true}, channel.FileInvalid},
		{channel.FileRequest{Op: channel.FileMkdir, Path: "/tmp/list"}, channel.FileExists},
		{channel.FileRequest{Op: channel.FileMove, Path: "/tmp/target", To: "/dev/shm/x"}, channel.FileAcross},
		{channel.FileRequest{Op: channel.FileMove, Path: "/tmp/target", To: "/tmp/up", Exclusive: true}, channel.FileExists},
		{channel.FileRequest{Op: channel.FileRead, Path: "/tmp/target", User: "nobody-there"}, channel.FileUser},
	} {
		s.refused(c.r, c.code)
	}
	_, _, _, err := s.file(channel.FileRequest{Op: channel.FileRead, Path: "/tmp/proclink/hostname"}, "")
	if failed := (*channel.FileError)(nil); !errors.As(err, &failed) {
		s.Errorf("a link of /proc leads somewhere: %v", err)
	}
	for _, r := range []channel.FileRequest{
		{Op: "other", Path: "/"}, {Op: channel.FileStat, Path: "relative"}, {Op: channel.FileStat, Path: "/a\x00b"}, {Op: channel.FileStat},
		{Op: channel.FileStat, Path: audit.Text("/" + strings.Repeat("a/", 3000))}, {Op: channel.FileMove, Path: "/a", To: "b"},
		{Op: channel.FileRead, Path: "/a", Offset: -1}, {Op: channel.FileWrite, Path: "/a", Mode: 1 << 20}, {Op: channel.FileList, Path: "/a", Max: 1 << 20},
	} {
		if _, _, _, err := s.file(r, ""); err == nil {
			s.Errorf("%+.200v succeeds", r)
		}
	}
}

// filesOfUsers: the user's rights apply.
func (s *session) filesOfUsers() {
	s.Helper()
	s.script(`mkdir -m 700 /tmp/private; echo x >/tmp/private/file; chmod 600 /tmp/target; mkdir -m 777 /tmp/shared; echo old >/tmp/shared/roots`)
	for _, r := range []channel.FileRequest{
		{Op: channel.FileRead, Path: "/tmp/private/file"}, {Op: channel.FileRead, Path: "/tmp/target"}, {Op: channel.FileWrite, Path: "/etc/new"},
		{Op: channel.FileRemove, Path: "/tmp/target"}, {Op: channel.FileList, Path: "/tmp/private"}, {Op: channel.FileMkdir, Path: "/etc/new"},
	} {
		r.User = "nobody"
		s.refused(r, channel.FileDenied)
	}
	if _, _, _, err := s.file(channel.FileRequest{Op: channel.FileWrite, Path: "/tmp/shared/mine", User: "nobody"}, "x"); err != nil {
		s.Error(err)
	}
	if _, _, _, err := s.file(channel.FileRequest{Op: channel.FileWrite, Path: "/tmp/shared/mine"}, "of root"); err != nil {
		s.Error(err)
	}
	if got := s.script(`stat -c %U /tmp/shared/mine; cat /tmp/shared/mine`); got.out != "nobody\nof root" {
		s.Errorf("the user's file: %s", got.out)
	}
}

// TestFileFaults: of a write that does not end nothing is left, and a full disk is a clear error.
func TestFileFaults(t *testing.T) {
	inSession(t, vmtest.Options{}, func(s *session) {
		broken := io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), failing{})
		_, err := s.guest.File(s.Context(), channel.FileRequest{Op: channel.FileWrite, Path: "/tmp/file"}, channel.FileTransfer{In: broken})
		if !errors.Is(err, errBroken) {
			s.Errorf("a broken content: %v", err)
		}
		_, err = s.guest.File(s.Context(), channel.FileRequest{Op: channel.FileWrite, Path: "/run/file"}, channel.FileTransfer{In: zeros{}})
		if failed := (*channel.FileError)(nil); !errors.As(err, &failed) || failed.Code != channel.FileNoSpace {
			s.Errorf("a full file system: %v", err)
		}
		s.script(`head -c 8M /dev/zero >/tmp/large; truncate -s 1G /tmp/endless; (while :; do mv /tmp/large /tmp/a/large; mv /tmp/a/large /tmp/large; done) >/dev/null 2>&1 & mkdir /tmp/a`)
		for range 20 {
			_, err = s.guest.File(s.Context(), channel.FileRequest{Op: channel.FileRead, Path: "/tmp/endless"}, channel.FileTransfer{Out: &limited{left: 1 << 20}})
			if !errors.Is(err, errBroken) {
				s.Errorf("a broken reader: %v", err)
			}
			_, err = s.guest.File(s.Context(), channel.FileRequest{Op: channel.FileWrite, Path: "/tmp/a/../large"}, channel.FileTransfer{In: strings.NewReader("x")})
			if failed := (*channel.FileError)(nil); err != nil && (!errors.As(err, &failed) || failed.Code != channel.FileChanged) { // it was moved right after
				s.Errorf("a name that moves: %v", err)
			}
		}
		if got := s.script(`ls -A /tmp /run | grep -e custody- -e '^file'; true`); got.out != "" {
			s.Errorf("left behind: %s", got.out)
		}
	})
}

var errBroken = errors.New("broken")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errBroken }

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// limited is a writer that fails after some bytes.
type limited struct{ left int }

func (l *limited) Write(b []byte) (int, error) {
	if l.left -= len(b); l.left < 0 {
		return 0, errBroken
	}
	return len(b), nil
}
