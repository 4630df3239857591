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

// Layered is the userland of another template with more packages, more files, or both. It is a copy: the other template
// can be removed.
type Layered struct {
	Store    Store
	From     string   // name of the other template
	Packages []string // as in Base; only on a userland that is Debian's alone
	Mirror   string   // as in Base
	Files    string   // a directory, whose files are copied over the userland; empty: none

	from Template // since Fill
}

// Check returns what is wrong with the names, before anything is copied.
func (l *Layered) Check() error {
	if len(l.Packages) == 0 && l.Files == "" {
		return errors.New("give --packages or --add: a template that is built from another one has something more")
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

// Fill implements Source. The caller holds the store's lock. The new packages' scripts run as root in a chroot, with the
// programs of the userland; so there is none from another source than the distribution.
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
		if err := layOver(ctx, l.Files, root); err != nil {
			return nil, fmt.Errorf("add %s: %w", l.Files, err)
		}
	}
	return l.from.Env, nil
}

// install adds packages to the userland in root.
func (l *Layered) install(ctx context.Context, root string) error {
	dev := filepath.Join(root, "dev") // mmdebstrap makes the device nodes for the packages' scripts, and wants none there
	if err := errors.Join(os.RemoveAll(dev), os.Mkdir(dev, 0o755)); err != nil {
		return err
	}
	return tool(ctx, "mmdebstrap", Base{Suite: l.from.Suite, Mirror: l.Mirror}.command("custom", l.Packages, root)...)
}

// layOver copies the files of a directory over those of a userland, as root's. Directories that are there stay as they are; one
// that a link of the userland leads to is filled if it is in the userland. Nothing outside of root is changed (os.Root).
func layOver(ctx context.Context, from, to string) error {
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
			return nil // a device or a socket, as in an image
		}
		if info, err := root.Stat(name); d.IsDir() && err == nil && info.IsDir() {
			return nil
		}
		return layFile(root, name, path, d)
	})
}

func layFile(root *os.Root, name, path string, d fs.DirEntry) error {
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
