package workspace

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// makeFiles makes files; a name that ends in "/" is a directory, a value "-> x" a link.
func makeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range files {
			if !yield(name) {
				return
			}
		}
	}) {
		at := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		if to, link := strings.CutPrefix(files[name], "-> "); err == nil && link {
			err = os.Symlink(to, at)
		} else if err == nil && strings.HasSuffix(name, "/") {
			err = os.MkdirAll(at, 0o755)
		} else if err == nil {
			err = os.WriteFile(at, []byte(files[name]), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// selected returns the files of dir that the selection includes, found with filepath.WalkDir.
func selected(t *testing.T, s *Selection, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		if s.Leave(name, info) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !d.IsDir() {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestSelection: the files of secrets and CUSTODY_HOME are not copied, also under other names and links.
func TestSelection(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "dir")
	makeFiles(t, top, map[string]string{
		"dir/a": "", "dir/sub/a": "", "dir/token": "value", "dir/sub/key": "value", "dir/link": "-> sub/key", "dir/linked/": "", "dir/way": "-> linked",
		"dir/linked/token": "", "dir/home/keys/host.key": "", "dir/out": "-> ../elsewhere", "elsewhere": "value", "dir/lost/": "",
	})
	if err := os.Link(filepath.Join(top, "elsewhere"), filepath.Join(dir, "hard")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(top, "alias")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(top)
	for _, from := range []string{dir, "dir", "alias", "dir/../alias/"} {
		s, err := NewSelection(from, map[string]string{
			"one": "dir/token", "two": "dir/link", "three": "alias/way/token", "four": filepath.Join(top, "elsewhere"), "five": "dir/lost/not-yet", "six": "/nowhere",
		}, filepath.Join(top, "alias", "home"))
		if err != nil {
			t.Fatal(err)
		}
		makeFiles(t, dir, map[string]string{"lost/not-yet": "made later"})
		if got, want := selected(t, s, dir), []string{"a", "out", "sub/a", "way"}; !slices.Equal(got, want) {
			t.Errorf("%s: copied are %q, want %q", from, got, want)
		}
		if len(s.Notices) != 7 {
			t.Errorf("%s: notices %q", from, s.Notices)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestSelectionIgnores(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{IgnoreFile: "*.bin\nout/\n!out/keep\n", "a.bin": "", "a": "", "out/keep": "", "out/x": "", "sub/b.bin": "", "sub/b": "", "sub/" + IgnoreFile: "b\n"})
	s, err := NewSelection(dir, nil, "/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, want := selected(t, s, dir), []string{IgnoreFile, "a", "sub/" + IgnoreFile, "sub/b"}; !slices.Equal(got, want) {
		t.Errorf("copied are %q, want %q", got, want)
	}
	for name, want := range map[string]bool{"a.bin": true, "sub/b.bin": true, "out/keep": true, "out/deep/x": true, "a": false, "sub/b": false} {
		if got := s.Ignored(name); got != want {
			t.Errorf("%s is ignored: %v, want %v", name, got, want)
		}
	}
	for what, change := range map[string]func(string) error{
		"a directory":        func(p string) error { return os.Mkdir(p, 0o755) },
		"a link out":         func(p string) error { return os.Symlink("/etc/passwd", p) },
		"a link to a device": func(p string) error { return os.Symlink("/dev/zero", p) },
		"too long":           func(p string) error { return os.WriteFile(p, make([]byte, maxIgnore+1), 0o644) },
	} {
		path := filepath.Join(dir, IgnoreFile)
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := change(path); err != nil {
			t.Fatal(err)
		}
		if s, err := NewSelection(dir, nil, "/nowhere"); err == nil {
			s.Close()
			t.Errorf("%s was taken for a list", what)
		}
	}
}

func TestPrivate(t *testing.T) {
	for name, want := range map[string]string{
		".env": "yes", "sub/.env": "yes", ".ENV": "yes", ".env.local": "yes", ".env.production": "yes", ".env.example": "", ".env.sample.local": "", "env": "", "x.env": "",
		".netrc": "yes", "home/.aws/credentials": "yes", ".aws/sso/cache/x.json": "yes", "aws/credentials": "", ".npmrc": "yes", ".pypirc": "yes", "id_rsa": "yes", "keys/id_ed25519": "yes", "id_rsa.pub": "look",
		"server.pem": "look", "tls.key": "look", "deploy_key": "look", "kubeconfig": "yes", ".kube/config": "yes", "kube/config": "", ".git-credentials": "yes", ".docker/config.json": "yes", "config.json": "",
		".ssh/known_hosts": "yes", ".ssh": "", "store.p12": "yes", "main.go": "", "Makefile": "", ".gitignore": "", ".gnupg/x/y": "yes", ".git/config": "look", "src/monkey.go": "look",
	} {
		why, look := Private(name)
		got := ""
		switch {
		case why != "":
			got = "yes"
		case look:
			got = "look"
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{
		"rsa.key": "-----BEGIN RSA PRIVATE KEY-----\n", "bundle.pem": strings.Repeat("-----BEGIN CERTIFICATE-----\n", 900) + "-----BEGIN ENCRYPTED PRIVATE KEY-----\n",
		"a.key": "-----BEGIN PUBLIC KEY-----\n", "ssh_key": "-----BEGIN OPENSSH PRIVATE KEY-----\n", "putty_key": "PuTTY-User-Key-File-3: x", "keyboard.txt": "qwerty", ".git/config": "[remote \"origin\"]\n\turl = https://me:token@git.example/x\n", "sub/.git/config": "[http]\n\textraheader = AUTHORIZATION: basic eDp0b2tlbg==\n", "b/.git/config": "\turl = https://git.example/x\n", "key": "-> rsa.key",
	})
	s, err := NewSelection(dir, nil, "/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	selected(t, s, dir)
	selected(t, s, dir) // adds no notice twice
	told := strings.Join(s.Notices, "\n")
	if len(s.Notices) != 6 || !strings.Contains(told, `".git/config"`) || !strings.Contains(told, `"sub/.git/config"`) || !strings.Contains(told, "rsa.key") || !strings.Contains(told, "bundle.pem") || !strings.Contains(told, "ssh_key") || !strings.Contains(told, "putty_key") {
		t.Errorf("notices\n%s", told)
	}
}

func TestCheckOut(t *testing.T) {
	top := t.TempDir()
	makeFiles(t, top, map[string]string{"out/": "", "file": "", "home/keys/": "", "link": "-> home", "loop": "-> loop"})
	home := filepath.Join(top, "home")
	for name, want := range map[string]string{
		"out": "", "": "", "none": "no such directory", "none/below": "no such directory", "file": "not a directory", "file/below": "not a directory", "home": "in CUSTODY_HOME", "home/keys": "in CUSTODY_HOME",
		"link": "in CUSTODY_HOME", "link/keys": "in CUSTODY_HOME", "out/../link/keys": "in CUSTODY_HOME", "loop": "too many levels",
	} {
		err := CheckOut(filepath.Join(top, name), home)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if err := CheckOut("/sys", home); err == nil || !strings.Contains(err.Error(), "nothing can be written") {
		t.Errorf("/sys: %v", err)
	}
	if list, err := os.ReadDir(filepath.Join(top, "out")); err != nil || len(list) > 0 {
		t.Errorf("the try left %v, %v", list, err)
	}
}
