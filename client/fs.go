package client

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strconv"
	"time"
)

// FS returns the files of the sandbox as a file system of Go's library, for reading. Its root is that of the sandbox, and ctx is that of all
// operations.
func (f *Files) FS(ctx context.Context) fs.FS { return &tree{f, ctx} }

// tree implements fs.StatFS, fs.ReadDirFS and fs.ReadFileFS.
type tree struct {
	files *Files
	ctx   context.Context
}

// at returns the path of a name of package fs.
func at(op, name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return path.Join("/", name), nil
}

// pathError names the operation, the file and the error.
func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Open implements fs.FS. The content is requested with the first read.
func (t *tree) Open(name string) (fs.File, error) {
	info, err := t.Stat(name)
	if err != nil {
		return nil, err
	}
	return &file{tree: t, name: name, info: info}, nil
}

// Stat implements fs.StatFS.
func (t *tree) Stat(name string) (fs.FileInfo, error) {
	p, err := at("stat", name)
	if err != nil {
		return nil, err
	}
	i, err := t.files.Stat(t.ctx, p)
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	return described{i, path.Base(name)}, nil
}

// ReadDir implements fs.ReadDirFS.
func (t *tree) ReadDir(name string) ([]fs.DirEntry, error) {
	p, err := at("readdir", name)
	if err != nil {
		return nil, err
	}
	list, err := t.files.ReadDir(t.ctx, p)
	var entries []fs.DirEntry
	for _, i := range list {
		entries = append(entries, fs.FileInfoToDirEntry(described{i, string(i.Name)}))
	}
	return entries, pathError("readdir", name, err)
}

// ReadFile implements fs.ReadFileFS.
func (t *tree) ReadFile(name string) ([]byte, error) {
	p, err := at("read", name)
	if err != nil {
		return nil, err
	}
	b, err := t.files.ReadFile(t.ctx, p)
	return b, pathError("read", name, err)
}

// file is an open file or directory.
type file struct {
	tree    *tree
	name    string
	info    fs.FileInfo
	body    io.ReadCloser // nil: nothing was read
	entries []fs.DirEntry // of a directory, that ReadDir has not returned
	listed  bool
	closed  bool
}

// Stat implements fs.File.
func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }

// Read implements fs.File.
func (f *file) Read(b []byte) (int, error) {
	if f.closed {
		return 0, pathError("read", f.name, fs.ErrClosed)
	}
	if f.body == nil {
		p, err := at("read", f.name)
		if err == nil {
			f.body, err = f.tree.files.Open(f.tree.ctx, p, 0)
		}
		if err != nil {
			return 0, pathError("read", f.name, err)
		}
	}
	return f.body.Read(b)
}

// ReadDir implements fs.ReadDirFile.
func (f *file) ReadDir(n int) ([]fs.DirEntry, error) {
	if !f.listed {
		list, err := f.tree.ReadDir(f.name)
		if err != nil {
			return nil, err
		}
		f.entries, f.listed = list, true
	}
	if n <= 0 {
		n = len(f.entries)
	} else if len(f.entries) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(f.entries))
	some := f.entries[:n]
	f.entries = f.entries[n:]
	return some, nil
}

// Close implements fs.File.
func (f *file) Close() error {
	if f.closed {
		return pathError("close", f.name, fs.ErrClosed)
	}
	f.closed = true
	if f.body != nil {
		return f.body.Close()
	}
	return nil
}

// described is a FileInfo with the methods of fs.FileInfo.
type described struct {
	FileInfo
	name string
}

// Name implements fs.FileInfo.
func (d described) Name() string { return d.name }

// Size implements fs.FileInfo.
func (d described) Size() int64 { return d.FileInfo.Size }

// ModTime implements fs.FileInfo.
func (d described) ModTime() time.Time { return d.Modified }

// IsDir implements fs.FileInfo.
func (d described) IsDir() bool { return d.Type == "directory" }

// Sys implements fs.FileInfo: it returns a FileInfo of this package.
func (d described) Sys() any { return d.FileInfo }

// Mode implements fs.FileInfo.
func (d described) Mode() fs.FileMode { return d.FileMode() }

// FileMode returns the type and the permissions of the file.
func (i FileInfo) FileMode() fs.FileMode {
	bits, _ := strconv.ParseUint(cmp.Or(i.Mode, "0"), 8, 32)
	m := fs.FileMode(bits).Perm()
	for bit, mode := range map[uint64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if bits&bit != 0 {
			m |= mode
		}
	}
	return m | map[string]fs.FileMode{"directory": fs.ModeDir, "symlink": fs.ModeSymlink, "fifo": fs.ModeNamedPipe, "socket": fs.ModeSocket, "device": fs.ModeDevice}[i.Type]
}

// problemKinds are the errors of package fs, by the type of the problem.
var problemKinds = map[string]error{
	"urn:custody:problem:file-missing": fs.ErrNotExist, "urn:custody:problem:file-exists": fs.ErrExist, "urn:custody:problem:file-denied": fs.ErrPermission,
	"urn:custody:problem:file-read-only": fs.ErrPermission, "urn:custody:problem:file-secret": fs.ErrPermission,
}

// Is makes errors.Is find fs.ErrNotExist, fs.ErrExist and fs.ErrPermission in a Problem about a file.
func (p *Problem) Is(target error) bool {
	kind := problemKinds[p.Type]
	return kind != nil && errors.Is(kind, target)
}
