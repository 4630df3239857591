package commands

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// download copies a file or a directory of the sandbox. Names, types and contents are what the sandbox says they are: whatever it says,
// nothing outside of the target is written, also not through symbolic links that are there.
func (c *copier) download(ctx context.Context, from, to string) error {
	info, err := c.files.Stat(ctx, from)
	if err != nil {
		return err
	}
	dir, name := filepath.Split(filepath.Clean(to))
	if here, err := os.Stat(to); err == nil && here.IsDir() {
		dir, name = to, path.Base(from)
	} else if c.inside {
		return noDirectory(to)
	}
	root, err := os.OpenRoot(filepath.Clean(dir))
	if err != nil {
		return err
	}
	defer root.Close()
	mode := info.FileMode()
	switch {
	case from == "/":
		return failure("copy the directories in it", "the whole file system of the sandbox cannot be copied")
	case mode.IsDir():
		return c.fetchTree(ctx, root, from, name, mode)
	case mode.IsRegular():
		return c.fetchFile(ctx, root, from, name, mode)
	}
	return special(from)
}

// fetchTree copies a directory, as an archive.
func (c *copier) fetchTree(ctx context.Context, root *os.Root, from, name string, mode fs.FileMode) error {
	archive, err := c.files.Pack(ctx, from)
	if err != nil {
		return err
	}
	defer archive.Close()
	if err := root.Mkdir(name, mode.Perm()|0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	below, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer below.Close()
	x := &extractor{copier: c, root: below, from: from, left: c.most}
	return x.extract(archive)
}

// fetchFile copies a regular file.
func (c *copier) fetchFile(ctx context.Context, root *os.Root, from, name string, mode fs.FileMode) error {
	r, err := c.files.Open(ctx, from, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	return c.place(root, from, name, mode, func(to io.Writer) error {
		if n, err := io.Copy(to, io.LimitReader(r, c.most+1)); err != nil || n <= c.most {
			return err
		}
		return c.tooLarge()
	})
}

// place makes the copy of a regular file, with the content that fill writes. It has its name, and replaces another one, when it is complete.
func (c *copier) place(root *os.Root, from, name string, mode fs.FileMode, fill func(io.Writer) error) (err error) {
	part := path.Join(path.Dir(name), ".custody-"+rand.Text())
	f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode.Perm()|0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, root.Remove(part))
		}
	}()
	if err = errors.Join(fill(f), f.Close()); err == nil {
		err = root.Rename(part, name)
	}
	if err != nil {
		return fmt.Errorf("%q is not copied: %w", from, err)
	}
	return nil
}

func (c *copier) tooLarge() error {
	return failure("allow more with --max-size", "there are more than %d GiB, the limit of a copy", c.most>>30)
}
