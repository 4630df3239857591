package commands

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/custody-project/custody/client"
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
		return c.uploadTree(ctx, from, to)
	case info.Mode().IsRegular():
		return c.uploadFile(ctx, from, to, info.Mode())
	}
	return special(from)
}

func (c *copier) uploadTree(ctx context.Context, from, to string) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		there := path.Join(to, below)
		switch {
		case d.IsDir():
			return c.mkdir(ctx, there, info.Mode())
		case info.Mode().IsRegular():
			return c.uploadFile(ctx, name, there, info.Mode())
		}
		c.skip(name)
		return nil
	})
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
