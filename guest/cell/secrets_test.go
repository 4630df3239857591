package cell

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
)

func TestEnvironment(t *testing.T) {
	join := func(list []cstring) string { return string(bytes.Join(toBytes(list), nil)) }
	cmd := channel.Command{Env: []string{"A=1", "B=2", "AB=3", channel.SecretsEnv + "=/elsewhere", "plain"}}
	if all, secret := environment(cmd); join(all) != strings.Join(cmd.Env, "\x00")+"\x00" || secret != nil {
		t.Errorf("without secrets: %q", join(all))
	}
	cmd.Secrets = []channel.Secret{{Env: "A", Value: []byte("x=y")}, {File: "f", Value: []byte("not here")}, {Env: "E"}}
	all, secret := environment(cmd)
	if got := join(all); got != "B=2\x00AB=3\x00plain\x00CUSTODY_SECRETS=/run/secrets\x00A=x=y\x00E=\x00" {
		t.Errorf("with secrets: %q", got)
	}
	if erase(secret); strings.Contains(join(all), "x=y") {
		t.Errorf("erased, but %q", join(all))
	}
}

func toBytes(list []cstring) (out [][]byte) {
	for _, b := range list {
		out = append(out, b)
	}
	return out
}

// FuzzShellFile: a shell that sources the file has each value, byte for byte.
func FuzzShellFile(f *testing.F) {
	for _, v := range []string{"", "plain", "it's", "''", "a'", "'b", "$HOME `id` $(id) \\ \" !", "two\nlines\n", "\xff\xfe", "'; touch /tmp/never; '"} {
		f.Add([]byte(v), []byte("second"))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if bytes.IndexByte(a, 0) >= 0 || bytes.IndexByte(b, 0) >= 0 || len(a)+len(b) > 64<<10 {
			return
		}
		file := shellFile([]channel.Secret{{Env: "A", Value: a}, {File: "x", Value: []byte("not a variable")}, {Env: "B", Value: b}})
		if len(file) != cap(file) {
			t.Errorf("%d bytes, room for %d: it has grown and left a copy", len(file), cap(file))
		}
		path := filepath.Join(t.TempDir(), "env")
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		sh := exec.Command("/bin/sh", "-c", `. "$0"; printf '%s|%s' "$A" "$B"`, path)
		sh.Env = []string{"LC_ALL=C"}
		if out, err := sh.Output(); err != nil || string(out) != string(a)+"|"+string(b) {
			t.Errorf("%q became %q, %v", string(a)+"|"+string(b), out, err)
		}
	})
}

// TestZeroTree: all files that a step has put beside its secrets are removed, and
// nothing outside changes; the bytes are also zeroed for processes that have a file open.
func TestZeroTree(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	check(t, os.WriteFile(outside, []byte("outside"), 0o600))
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, name) }
	dir, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	check(t, err)
	defer unix.Close(dir)
	check(t, writeAt(dir, "a/b/c", []byte("value")))
	check(t, writeAt(dir, "a/d", bytes.Repeat([]byte("v"), 10000)))
	if err := writeAt(dir, "a/d", nil); err == nil {
		t.Error("a file was written twice")
	}
	open, err := os.Open(at("a/d"))
	check(t, err)
	defer open.Close()
	check(t, os.Symlink(outside, at("link")))
	check(t, os.Symlink(filepath.Dir(outside), at("a/dirlink")))
	check(t, os.Link(at("a/b/c"), at("hard")))
	check(t, unix.Mkfifo(at("a/pipe"), 0o600))
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	check(t, err)
	defer unix.Close(s)
	check(t, unix.Bind(s, &unix.SockaddrUnix{Name: at("socket")}))
	check(t, os.WriteFile(at("holes"), nil, 0o600))
	check(t, os.Truncate(at("holes"), 1<<40))

	check(t, zeroTree(dir))
	if left, _ := os.ReadDir(root); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if info, err := open.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("an open file still has %d bytes, %v", info.Size(), err)
	}
	if b, _ := os.ReadFile(outside); string(b) != "outside" {
		t.Errorf("a link was followed: %q", b)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
