package template

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Base is Debian's minimal userland with what an agent's commands expect.
type Base struct{}

var basePackages = []string{
	"bash", "coreutils", "python3", "git", "curl", "ca-certificates", "procps", "less", "patch", "xz-utils",
}

// Kind implements Source.
func (Base) Kind() string { return "base" }

// Fill implements Source by way of mmdebstrap.
func (Base) Fill(ctx context.Context, root string) ([]string, error) {
	return nil, tool(ctx, "mmdebstrap", "--variant=minbase", "--mode=root", "--format=directory",
		"--include="+strings.Join(basePackages, ","),
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*",
		"--dpkgopt=path-include=/usr/share/doc/*/copyright", "--dpkgopt=path-exclude=/usr/share/locale/*",
		"--skip=check/empty", debianSuite, root)
}

// Dir is a tree on this host, copied as it is.
type Dir struct{ Path string }

// Kind implements Source.
func (Dir) Kind() string { return "dir" }

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
