package commands

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/internal/symlink"
)

// upload copies a file or a directory of this machine. If from is a symbolic link, it is followed; those below it are not.
func (c *copier) upload(ctx context.Context, from, to string) error {
	from, err := filepath.Abs(from)
	if err != nil {
		return err
	}
	name := filepath.Base(from)
	if from, err = filepath.EvalSymlinks(from); err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	there, err := c.files.Stat(ctx, to)
	switch {
	case err == nil && there.FileMode().IsDir():
		to = path.Join(to, name)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case c.inside:
		return noDirectory(to)
	}
	switch {
	case info.IsDir():
		return c.uploadTree(ctx, from, to, info.Mode())
	case info.Mode().IsRegular():
		return c.uploadFile(ctx, from, to, info.Mode())
	}
	return special(from)
}

// uploadTree copies a directory, as an archive.
func (c *copier) uploadTree(ctx context.Context, from, to string, mode fs.FileMode) error {
	if err := c.mkdir(ctx, to, mode); err != nil {
		return err
	}
	return c.files.Unpack(ctx, to, func(w io.Writer) error {
		c.skipped = 0
		out := tar.NewWriter(w)
		if err := filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil || name == from {
				return err
			}
			return c.packEntry(out, from, name, d)
		}); err != nil {
			return err
		}
		return out.Close()
	})
}

// packEntry adds an entry of the directory from to an archive.
func (c *copier) packEntry(out *tar.Writer, from, name string, d fs.DirEntry) error {
	below, err := filepath.Rel(from, name)
	if err != nil {
		return err
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	h := &tar.Header{Name: filepath.ToSlash(below), Mode: int64(info.Mode().Perm()), Format: tar.FormatPAX}
	switch mode := info.Mode(); {
	case mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		return out.WriteHeader(h)
	case mode.IsRegular():
		return packFile(out, h, name)
	case mode&fs.ModeSymlink != 0:
		if h.Linkname, err = os.Readlink(name); err != nil {
			return err
		}
		if h.Linkname = filepath.ToSlash(h.Linkname); symlink.StaysInside(h.Name, h.Linkname) {
			h.Typeflag = tar.TypeSymlink
			return out.WriteHeader(h)
		}
	}
	c.skip(name)
	return nil
}

// packFile adds a regular file.
func packFile(out *tar.Writer, h *tar.Header, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := out.WriteHeader(h); err != nil {
		return err
	}
	if _, err = io.CopyN(out, f, h.Size); errors.Is(err, io.EOF) {
		err = failure("repeat the command when nothing writes to it", "%q became shorter while it was copied", name)
	}
	return err
}

// mkdir makes a directory in the sandbox, unless it exists.
func (c *copier) mkdir(ctx context.Context, name string, mode fs.FileMode) error {
	_, err := c.files.Mkdir(ctx, name, mode.Perm()|0o700, false)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	var info client.FileInfo
	if info, err = c.files.Stat(ctx, name); err == nil && !info.FileMode().IsDir() {
		err = failure("move or remove it", "%q is in the sandbox, and is not a directory", name)
	}
	return err
}

func (c *copier) uploadFile(ctx context.Context, name, to string, mode fs.FileMode) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = c.files.Write(ctx, to, f, mode.Perm(), false); err != nil {
		return fmt.Errorf("%q is not copied: %w", name, err)
	}
	return nil
}
