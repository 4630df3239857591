package template

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Layered is a copy of another template's userland with additional packages, files, or both. The other template
// can be removed afterwards.
type Layered struct {
	Store    Store
	From     string   // name of the other template
	Packages []string // as in Base; allowed only if the userland has files of Debian packages only
	Mirror   string   // as in Base
	Files    string   // a directory whose files are copied over the userland; "": none

	from Template // set by Fill
}

// Check returns an error if a name or an option is not valid.
func (l *Layered) Check() error {
	if len(l.Packages) == 0 && l.Files == "" {
		return errors.New("give --packages or --add: a template that is built from another one must add something")
	}
	if err := checkName(l.From); err != nil {
		return err
	}
	return Base{Packages: l.Packages, Mirror: l.Mirror}.Check()
}

// Kind implements Source.
func (l *Layered) Kind() string { return "template " + l.From }

// Describe implements Source.
func (l *Layered) Describe(t *Template) {
	t.Source, t.Suite = l.from.Source, l.from.Suite
	t.Packages = slices.Concat(l.from.Packages, l.Packages)
	t.From = &Origin{Name: l.From, Digest: l.from.Digest()}
	t.Added = l.from.Added || l.Files != ""
}

// Fill implements Source. The caller holds the store's lock. Scripts of new packages run as root in a chroot and use the
// userland's programs, so Fill refuses to install packages if some of these programs are not the distribution's.
func (l *Layered) Fill(ctx context.Context, root string) (env []string, err error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	if l.from, err = l.Store.read(filepath.Join(l.Store.Dir, "names", l.From)); err != nil {
		return nil, err
	}
	if len(l.Packages) > 0 && (l.from.Source != Base{}.Kind() || l.from.Added) {
		return nil, fmt.Errorf("packages cannot be installed on template %s: their scripts would run its programs as root on this host, and not all of them are Debian's; "+
			"install the packages first, then --add files", l.From)
	}
	if err := l.from.verify(ctx, "root.erofs"); err != nil {
		return nil, err
	}
	if err := tool(ctx, "fsck.erofs", "--extract="+root, "--overwrite", filepath.Join(l.from.dir, "root.erofs")); err != nil {
		return nil, err
	}
	if len(l.Packages) > 0 {
		if err := l.install(ctx, root); err != nil {
			return nil, err
		}
	}
	if l.Files != "" {
		if err := overlay(ctx, l.Files, root); err != nil {
			return nil, fmt.Errorf("add %s: %w", l.Files, err)
		}
	}
	return l.from.Env, nil
}

// install adds packages to the userland in root.
func (l *Layered) install(ctx context.Context, root string) error {
	dev := filepath.Join(root, "dev") // mmdebstrap makes device nodes for the packages' scripts, and fails if they exist
	if err := errors.Join(os.RemoveAll(dev), os.Mkdir(dev, 0o755)); err != nil {
		return err
	}
	return tool(ctx, "mmdebstrap", Base{Suite: l.from.Suite, Mirror: l.Mirror}.command("custom", l.Packages, root)...)
}

// overlay copies the files of a directory over those of a userland, owned by root. It does not change directories that exist. It
// follows symbolic links of the userland to directories, but only inside it: nothing outside of to is changed (os.Root).
func overlay(ctx context.Context, from, to string) error {
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(from, path)
		if err = errors.Join(err, relErr, ctx.Err()); err != nil || name == "." {
			return err
		}
		if d.Type()&^(fs.ModeDir|fs.ModeSymlink) != 0 {
			return nil // devices and sockets are skipped, as in unpackEntry
		}
		if info, err := root.Stat(name); d.IsDir() && err == nil && info.IsDir() {
			return nil
		}
		return overlayFile(root, name, path, d)
	})
}

func overlayFile(root *os.Root, name, path string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	to := ""
	if d.Type() == fs.ModeSymlink {
		if to, err = os.Readlink(path); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, to)
	if err != nil {
		return err
	}
	h.Name, h.Uid, h.Gid = name, 0, 0
	if !d.Type().IsRegular() {
		return unpackEntry(root, h, nil)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return unpackEntry(root, h, f)
}
