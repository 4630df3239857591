package template

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Base is Debian's minimal userland with basePackages.
type Base struct {
	Packages []string // additional packages of the suite, each NAME or NAME=VERSION
	Suite    string   // a release of the distribution; empty: bookworm
	Mirror   string   // HTTP or HTTPS URL to fetch it from; empty: the mirror of the host's apt
}

var (
	validPackage = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+(=[A-Za-z0-9.+:~-]+)?$`) // Debian Policy, 5.6.1 and 5.6.12
	validSuite   = regexp.MustCompile(`^[a-z][a-z0-9.-]*$`)
)

// Check returns an error if a name or the mirror's URL is not valid.
func (b Base) Check() error {
	for _, p := range b.Packages {
		if !validPackage.MatchString(p) {
			return fmt.Errorf("%q is not the name of a Debian package: give NAME or NAME=VERSION", p)
		}
	}
	if b.Suite != "" && !validSuite.MatchString(b.Suite) {
		return fmt.Errorf("%q is not the name of a suite: give one such as bookworm or trixie", b.Suite)
	}
	if b.Mirror == "" {
		return nil
	}
	switch u, err := url.Parse(b.Mirror); {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("the mirror is not a URL of HTTP or HTTPS: give one such as https://mirror.example/debian")
	case u.User != nil:
		return errors.New("the URL of the mirror has a credential in it: put that into apt's auth.conf.d")
	}
	return nil
}

var basePackages = []string{
	"bash", "coreutils", "python3", "git", "curl", "ca-certificates", "procps", "less", "patch", "xz-utils",
}

// Kind implements Source.
func (Base) Kind() string { return "base" }

// Describe implements Source.
func (b Base) Describe(t *Template) { t.Source, t.Packages, t.Suite = b.Kind(), b.Packages, b.Suite }

// Fill implements Source. It runs mmdebstrap.
func (b Base) Fill(ctx context.Context, root string) ([]string, error) {
	if err := b.Check(); err != nil {
		return nil, err
	}
	return nil, tool(ctx, "mmdebstrap", b.arguments(root)...)
}

// arguments returns the arguments of mmdebstrap. docs/operations.md has them for users who make a userland themselves.
func (b Base) arguments(root string) []string {
	return b.command("minbase", slices.Concat(basePackages, b.Packages), root)
}

// command returns the arguments of mmdebstrap that install packages into root.
func (b Base) command(variant string, packages []string, root string) []string {
	args := []string{"--variant=" + variant, "--mode=root", "--format=directory",
		"--include=" + strings.Join(packages, ","),
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*",
		"--dpkgopt=path-include=/usr/share/doc/*/copyright", "--dpkgopt=path-exclude=/usr/share/locale/*",
		"--skip=check/empty", cmp.Or(b.Suite, debianSuite), root}
	if b.Mirror != "" {
		args = append(args, b.Mirror)
	}
	return args
}

// Dir is a directory on this host, which is copied without changes.
type Dir struct{ Path string }

// Kind implements Source.
func (Dir) Kind() string { return "dir" }

// Describe implements Source.
func (d Dir) Describe(t *Template) { t.Source = d.Kind() }

// Fill implements Source. Links are copied as links.
func (d Dir) Fill(ctx context.Context, root string) ([]string, error) {
	info, err := os.Stat(d.Path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory: --dir takes the root of a userland", d.Path)
	}
	if _, err := os.Lstat(d.Path + "/bin"); err != nil {
		if _, err := os.Lstat(d.Path + "/usr/bin"); err != nil {
			return nil, errors.New("the directory has neither bin nor usr/bin: --dir takes the root of a userland")
		}
	}
	return nil, tool(ctx, "cp", "-a", "--one-file-system", d.Path+"/.", root)
}
