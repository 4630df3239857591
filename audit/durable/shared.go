package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ReplaceShared is Replace for a path that several processes may write concurrently: one of the files is there in the end.
func ReplaceShared(path string, data []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	temp, err := Temp(dir, filepath.Base(path), data, mode)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(temp, path); err != nil {
		os.Remove(temp)
		return fmt.Errorf("write %s: %w", path, err)
	}
	return SyncDir(dir)
}

// Temp writes a new file in dir, durable when it returns, and returns its path. The path begins with a dot and name, and
// no other call returns the same.
func Temp(dir, name string, data []byte, mode fs.FileMode) (string, error) {
	f, err := os.CreateTemp(dir, "."+name+".*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}
