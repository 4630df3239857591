package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ReplaceShared is Replace for a path that several processes may write concurrently: the last rename wins.
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

// Temp writes a new file in dir and returns its path. The file is durable when Temp returns. Its name begins with a dot
// and name, and is unique.
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
