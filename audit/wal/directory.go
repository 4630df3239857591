package wal

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// directory is a run's directory.
type directory struct {
	fs   FS
	path string
}

func (d directory) file(name string) string { return filepath.Join(d.path, name) }

func (d directory) lock() (io.Closer, error) { return d.fs.Lock(d.file(LockName)) }

// make creates and locks the directory of a new run. It can be repeated.
func (d directory) make() (io.Closer, error) {
	if err := d.fs.MkdirAll(d.path); err != nil {
		return nil, err
	}
	if err := d.fs.SyncDir(filepath.Dir(filepath.Clean(d.path))); err != nil {
		return nil, err
	}
	lock, err := d.lock()
	if err != nil {
		return nil, err
	}
	names, err := d.fs.ReadDir(d.path)
	if err == nil && slices.ContainsFunc(names, IsFile) {
		err = fmt.Errorf("%s: %w", d.path, ErrExists)
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// writeFile durably creates or replaces a file. It can be repeated.
func (d directory) writeFile(name string, data []byte) error {
	path := d.file(name)
	file, err := d.writeTemp(path, data)
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := d.fs.Rename(path+TempSuffix, path); err != nil {
		return err
	}
	return d.fs.SyncDir(d.path)
}

func (d directory) writeTemp(path string, data []byte) (File, error) {
	file, err := d.fs.Create(path + TempSuffix)
	if err != nil {
		return nil, err
	}
	if err = writeAt(file, data, 0); err == nil {
		err = file.Sync()
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func writeAt(file File, data []byte, offset int64) error {
	n, err := file.WriteAt(data, offset)
	if err == nil && n < len(data) {
		err = &os.PathError{Op: "write", Err: io.ErrShortWrite}
	}
	return err
}
