package wal_test

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/custody-project/custody/audit/wal"
)

// memFS is a directory in memory that models a power cut:
// file contents are those of the last fsync, names those of the directory's last fsync. A fault
// can be injected into each operation; a failed fsync drops the pages, as a kernel may.
type memFS struct {
	// fault is called before each operation, numbered from 0; a non-nil error fails
	// the operation. A failed write has written its first half.
	fault func(n int, op string) error
	// late makes an operation take effect and fail nevertheless, as on a network file system,
	// except for the lock.
	late bool

	mu      sync.Mutex // guards the fields below
	ops     int
	made    bool // the directory exists
	kept    bool // its name is durable
	locked  bool
	names   map[string]*inode
	durable map[string]*inode
}

type inode struct {
	data, synced []byte
	bad          bool // unwritable from now on
}

func newMemFS(fault func(int, string) error) *memFS {
	return &memFS{fault: fault, names: map[string]*inode{}, durable: map[string]*inode{}}
}

// do runs an operation unless a fault is injected.
func (m *memFS) do(op string, f func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.ops
	m.ops++
	if m.fault != nil {
		if err := m.fault(n, op); err != nil {
			if m.late && op != "lock" {
				f()
			}
			return &os.PathError{Op: op, Path: "mem", Err: err}
		}
	}
	return f()
}

func (m *memFS) MkdirAll(string) error {
	return m.do("mkdir", func() error { m.made = true; return nil })
}

func (m *memFS) SyncDir(dir string) error {
	return m.do("syncdir", func() error {
		if filepath.Base(dir) != memDir {
			m.kept = m.made
			return nil
		}
		m.durable = map[string]*inode{}
		for name, i := range m.names {
			m.durable[name] = i
		}
		return nil
	})
}

func (m *memFS) ReadDir(string) (names []string, err error) {
	err = m.do("readdir", func() error {
		for name := range m.names {
			names = append(names, name)
		}
		slices.Sort(names)
		return nil
	})
	return names, err
}

func (m *memFS) ReadFile(path string) (data []byte, err error) {
	err = m.do("read", func() error {
		i, err := m.find(path)
		if err == nil {
			data = bytes.Clone(i.data)
		}
		return err
	})
	return data, err
}

func (m *memFS) find(path string) (*inode, error) {
	if i := m.names[filepath.Base(path)]; i != nil {
		return i, nil
	}
	return nil, &os.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
}

func (m *memFS) Create(path string) (f wal.File, err error) {
	err = m.do("create", func() error {
		if !m.made {
			return fs.ErrNotExist
		}
		i := m.names[filepath.Base(path)]
		if i == nil {
			i = &inode{}
			m.names[filepath.Base(path)] = i
		}
		i.data = nil
		f = &memFile{m, i}
		return nil
	})
	return f, err
}

func (m *memFS) Open(path string) (f wal.File, err error) {
	err = m.do("open", func() error {
		i, err := m.find(path)
		f = &memFile{m, i}
		return err
	})
	return f, err
}

func (m *memFS) Rename(from, to string) error {
	return m.do("rename", func() error {
		i, err := m.find(from)
		if err == nil {
			m.names[filepath.Base(to)] = i
			delete(m.names, filepath.Base(from))
		}
		return err
	})
}

func (m *memFS) Remove(path string) error {
	return m.do("remove", func() error { delete(m.names, filepath.Base(path)); return nil })
}

func (m *memFS) Lock(path string) (io.Closer, error) {
	return unlock{m}, m.do("lock", func() error {
		if m.locked {
			return wal.ErrLocked
		}
		m.locked = true
		m.names["lock"] = &inode{}
		return nil
	})
}

type unlock struct{ fs *memFS }

func (u unlock) Close() error {
	u.fs.mu.Lock()
	defer u.fs.mu.Unlock()
	u.fs.locked = false
	return nil
}

type memFile struct {
	fs *memFS
	i  *inode
}

func (f *memFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.do("write", func() error { n = f.write(p, off); return nil })
	if err != nil {
		f.fs.mu.Lock()
		defer f.fs.mu.Unlock()
		n = f.write(p[:len(p)/2], off)
	}
	return n, err
}

func (f *memFile) do(op string, run func() error) error {
	return f.fs.do(op, func() error {
		if f.i.bad {
			return syscall.EIO
		}
		return run()
	})
}

func (f *memFile) write(p []byte, off int64) int {
	if need := int(off) + len(p); need > len(f.i.data) {
		f.i.data = append(f.i.data, make([]byte, need-len(f.i.data))...)
	}
	return copy(f.i.data[off:], p)
}

func (f *memFile) Truncate(size int64) error {
	return f.do("truncate", func() error {
		f.i.data = append(f.i.data, make([]byte, max(0, int(size)-len(f.i.data)))...)[:size]
		return nil
	})
}

func (f *memFile) Sync() error {
	err := f.do("fsync", func() error { f.i.synced = bytes.Clone(f.i.data); return nil })
	if err != nil {
		f.fs.mu.Lock()
		defer f.fs.mu.Unlock()
		f.i.data = bytes.Clone(f.i.synced)
	}
	return err
}

func (f *memFile) Close() error { return f.fs.do("close", func() error { return nil }) }

// survival is the part of the data without fsync that survives a power cut.
type survival string

const (
	nothing survival = "only what was fsynced"
	half    survival = "half of what was not fsynced"
	all     survival = "everything"
)

// dump writes what survives a power cut to a real directory and reports whether the
// directory itself survives.
func (m *memFS) dump(t testing.TB, dir string, s survival) bool {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	names := m.names
	if s == nothing {
		names = m.durable
		if !m.kept {
			return false
		}
	}
	if !m.made {
		return false
	}
	check(t, os.MkdirAll(dir, 0o700))
	for name, i := range names {
		data := i.data
		switch s {
		case nothing:
			data = i.synced
		case half:
			data = data[:max(len(i.synced), (len(data)+len(i.synced))/2)]
			data = data[:min(len(data), len(i.data))]
		}
		check(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	return true
}

const memDir = "r-mem"

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// load reads a real directory; all of it is durable.
func (m *memFS) load(t testing.TB, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	check(t, err)
	m.made, m.kept = true, true
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		check(t, err)
		m.put(e.Name(), data)
	}
}

// spoil makes a file unwritable.
func (m *memFS) spoil(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.names[name].bad = true
}

// put creates a durable file.
func (m *memFS) put(name string, data []byte) {
	i := &inode{data: bytes.Clone(data), synced: bytes.Clone(data)}
	m.names[name], m.durable[name] = i, i
}
