// Package durable writes small files atomically and durably: after a crash, a file is complete or absent.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/custody-project/custody/internal/regular"
)

// Replace atomically replaces the contents of path. After a crash the file has the old contents or the new ones.
// Each path must have only one writer at a time.
func Replace(path string, data []byte, mode fs.FileMode) error {
	tmp := path + ".tmp"
	f, err := regular.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		os.Remove(tmp)
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
