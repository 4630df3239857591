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
	"strings"

	"github.com/custody-project/custody/client"
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
		return c.fetchTree(ctx, root, from, name, mode, 0)
	case mode.IsRegular():
		return c.fetchFile(ctx, root, from, name, mode)
	}
	return special(from)
}

// maxDepth bounds directories within each other.
const maxDepth = 128

// fetchTree copies a directory.
func (c *copier) fetchTree(ctx context.Context, root *os.Root, from, name string, mode fs.FileMode, depth int) error {
	if depth == maxDepth {
		return failure("copy the lower ones by themselves", "%q is a directory within %d others, more than are copied", from, maxDepth)
	}
	if err := root.Mkdir(name, mode.Perm()|0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	below, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer below.Close()
	return c.fetchEntries(ctx, below, from, depth+1)
}

// fetchEntries copies what is in a directory. The names must ascend, so that a list has an end.
func (c *copier) fetchEntries(ctx context.Context, root *os.Root, from string, depth int) error {
	for after := ""; ; {
		list, err := c.files.List(ctx, from, after, 0)
		if err != nil {
			return err
		}
		for _, i := range list.Files {
			name := string(i.Name)
			if !named(name) || name <= after {
				return fmt.Errorf("the sandbox lists %q in %q, which a directory cannot have there: no more is copied", name, from)
			}
			after = name
			if err := c.fetch(ctx, root, path.Join(from, name), i, depth); err != nil {
				return err
			}
		}
		if list.Next == "" {
			return nil
		}
		if string(list.Next) != after {
			return fmt.Errorf("the sandbox continues the list of %q at %q: no more is copied", from, list.Next)
		}
	}
}

// named reports whether a file in a directory can have the name.
func named(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00") && filepath.IsLocal(name)
}

// fetch copies an entry of a directory.
func (c *copier) fetch(ctx context.Context, root *os.Root, from string, i client.FileInfo, depth int) error {
	mode := i.FileMode()
	switch {
	case mode.IsDir():
		return c.fetchTree(ctx, root, from, string(i.Name), mode, depth)
	case mode.IsRegular():
		return c.fetchFile(ctx, root, from, string(i.Name), mode)
	}
	c.skip(from)
	return nil
}

// fetchFile copies a regular file. It has its name, and replaces another one, when it is complete.
func (c *copier) fetchFile(ctx context.Context, root *os.Root, from, name string, mode fs.FileMode) (err error) {
	r, err := c.files.Open(ctx, from, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	part := ".custody-" + rand.Text()
	f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode.Perm()|0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, root.Remove(part))
		}
	}()
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(part, name)
	}
	if err != nil {
		return fmt.Errorf("%q is not copied: %w", from, err)
	}
	return nil
}
