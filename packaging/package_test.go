// Package packaging_test checks the Debian package and its units.
package packaging_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// programsEnv names a directory with the programs; without it they are built.
const programsEnv = "CUSTODY_TEST_BIN"

// programs builds the programs, once, as the Makefile does, and returns their directory.
var programs = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv(programsEnv); dir != "" {
		return dir, nil
	}
	dir, err := os.MkdirTemp("", "custody-bin-")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"custody", "custody-client", "custody-guest"} {
		build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, name), "../cmd/"+name)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := programs(); err == nil && os.Getenv(programsEnv) == "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// build builds the package and returns its path.
func build(t *testing.T, args ...string) string {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("./build", append([]string{"--bin", dir, "--out", t.TempDir()}, args...)...)
	c.Env = append(os.Environ(), "VERSION=1.2", "SOURCE_DATE_EPOCH=1700000000")
	return strings.TrimSpace(output(t, c))
}

func output(t *testing.T, c *exec.Cmd) string {
	t.Helper()
	out, err := c.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		t.Fatalf("%s: %v\n%s", c, err, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// member is a file of a package.
type member struct {
	header  *tar.Header
	content string
}

// members reads a part of a package: --ctrl-tarfile or --fsys-tarfile.
func members(t *testing.T, deb, part string) map[string]member {
	t.Helper()
	all := map[string]member{}
	for r := tar.NewReader(strings.NewReader(output(t, exec.Command("dpkg-deb", part, deb)))); ; {
		h, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimPrefix(h.Name, "./")] = member{h, string(b)}
	}
}

// installed are the files of the package, with their modes or the targets of links.
var installed = map[string]string{
	"usr/bin/custody":                                  "-> ../lib/custody/custody-client",
	"usr/lib/custody/custody":                          "-rwxr-xr-x",
	"usr/lib/custody/custody-client":                   "-rwxr-xr-x",
	"usr/lib/custody/custody-guest":                    "-rwxr-xr-x",
	"usr/lib/systemd/system/custody-host.service":      "-rw-r--r--",
	"usr/lib/systemd/system/custody-serve.service":     "-rw-r--r--",
	"usr/lib/systemd/system/custody-template.service":  "-rw-r--r--",
	"usr/lib/systemd/system/custody.socket":            "-rw-r--r--",
	"usr/lib/sysusers.d/custody.conf":                  "-rw-r--r--",
	"usr/lib/tmpfiles.d/custody.conf":                  "-rw-r--r--",
	"usr/share/doc/custody/copyright":                  "-rw-r--r--",
	"usr/share/man/man1/custody.1.gz":                  "-rw-r--r--",
	"usr/share/bash-completion/completions/custody":    "-rw-r--r--",
	"usr/share/zsh/vendor-completions/_custody":        "-rw-r--r--",
	"usr/share/fish/vendor_completions.d/custody.fish": "-rw-r--r--",
}

func TestPackage(t *testing.T) {
	deb := build(t)
	t.Run("files", func(t *testing.T) {
		got := map[string]string{}
		all := members(t, deb, "--fsys-tarfile")
		for name, m := range all {
			if m.header.Uid != 0 || m.header.Gid != 0 || m.header.ModTime.Unix() != 1700000000 {
				t.Errorf("%s: owner %d:%d, time %v", name, m.header.Uid, m.header.Gid, m.header.ModTime)
			}
			switch info := m.header.FileInfo(); {
			case m.header.Typeflag == tar.TypeSymlink:
				got[name] = "-> " + m.header.Linkname
			case !info.IsDir():
				got[name] = info.Mode().String()
			case info.Mode().Perm() != 0o755:
				t.Errorf("%s has mode %v", name, info.Mode())
			}
		}
		if !maps.Equal(got, installed) {
			t.Errorf("files %v", got)
		}
		for _, name := range []string{"usr/share/bash-completion/completions/custody", "usr/share/fish/vendor_completions.d/custody.fish"} {
			if !strings.Contains(all[name].content, "/usr/bin/custody") {
				t.Errorf("%s does not call the installed program: %s", name, all[name].content)
			}
		}
	})
	t.Run("control", func(t *testing.T) {
		control := members(t, deb, "--ctrl-tarfile")
		for _, name := range []string{"postinst", "prerm", "postrm"} {
			if mode := control[name].header.FileInfo().Mode().String(); mode != "-rwxr-xr-x" {
				t.Errorf("%s has mode %s", name, mode)
			}
		}
		if text := control["control"].content; !strings.Contains(text, "Version: 1.2\n") || regexp.MustCompile(`@[A-Z]+@`).MatchString(text) {
			t.Errorf("control: %s", text)
		}
		if _, there := control["conffiles"]; there {
			t.Error("the package has configuration files, which removing it leaves")
		}
	})
	t.Run("program", func(t *testing.T) {
		dir := t.TempDir()
		output(t, exec.Command("dpkg-deb", "--extract", deb, dir))
		if text := output(t, exec.Command(filepath.Join(dir, "usr/bin/custody"), "version")); !strings.HasPrefix(text, "custody ") {
			t.Errorf("version prints %q", text)
		}
	})
	t.Run("reproducible", func(t *testing.T) {
		one, err1 := os.ReadFile(deb)
		two, err2 := os.ReadFile(build(t))
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(one, two) {
			t.Error("two builds of the same programs differ")
		}
	})
}

// TestVersion: the version of a package grows with the commits, and is one that dpkg accepts.
func TestVersion(t *testing.T) {
	git := func(dir string, args ...string) {
		t.Helper()
		c := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
		c.Env = append(os.Environ(), "GIT_AUTHOR_DATE=2026-11-25T12:00:00Z", "GIT_COMMITTER_DATE=2026-11-25T12:00:00Z")
		output(t, c)
	}
	repository := t.TempDir()
	if err := os.CopyFS(filepath.Join(repository, "packaging"), os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	version := func() string {
		t.Helper()
		c := exec.Command(filepath.Join(repository, "packaging/build"), "--print-version")
		return strings.TrimSpace(output(t, c))
	}
	git(repository, "init", "-q")
	git(repository, "add", ".")
	git(repository, "commit", "-q", "-m", "one")
	versions := []string{version()}
	git(repository, "tag", "v1.2")
	versions = append(versions, version())
	git(repository, "commit", "-q", "--allow-empty", "-m", "two")
	versions = append(versions, version())
	for i, form := range []string{`^0~20261125120000\.g[0-9a-f]{7,}$`, `^1\.2$`, `^1\.2\+1\.g[0-9a-f]{7,}$`} {
		if !regexp.MustCompile(form).MatchString(versions[i]) {
			t.Errorf("version %q, want %s", versions[i], form)
		}
		if i > 0 {
			output(t, exec.Command("dpkg", "--compare-versions", versions[i-1], "lt", versions[i]))
		}
	}
}

// TestScripts: a shell accepts the scripts, and the package refuses an architecture that Custody does not run on.
func TestScripts(t *testing.T) {
	for _, name := range []string{"postinst", "prerm", "postrm"} {
		output(t, exec.Command("sh", "-n", name))
	}
	output(t, exec.Command("bash", "-n", "build"))
	out, err := exec.Command("./build", "--arch", "riscv64").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "riscv64 is not supported") {
		t.Errorf("build for riscv64: %v, %s", err, out)
	}
}
