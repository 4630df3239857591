package archive

import (
	"cmp"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// FS has the files of an archive. It implements fs.FS and fs.ReadDirFS, and is safe for concurrent use if the
// underlying io.ReaderAt is.
type FS struct {
	r     io.ReaderAt
	files []file // sorted by name
}

type file struct {
	name  string
	start int64 // of the header
	size  int64
}

// Last returns the name of the last file and the offset of its header.
func (a *FS) Last() (name string, start int64) {
	if len(a.files) == 0 {
		return "", 0
	}
	f := a.files[len(a.files)-1]
	return f.name, f.start
}

// Len returns the number of files.
func (a *FS) Len() int { return len(a.files) }

// Open implements fs.FS. It opens files only; use ReadDir for directories.
func (a *FS) Open(name string) (fs.File, error) {
	i, ok := slices.BinarySearchFunc(a.files, name, func(f file, name string) int { return cmp.Compare(f.name, name) })
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	f := a.files[i]
	return openFile{io.NewSectionReader(a.r, f.start+block, f.size), f}, nil
}

// ReadDir implements fs.ReadDirFS: it lists the files of a directory, without subdirectories.
func (a *FS) ReadDir(dir string) (all []fs.DirEntry, err error) {
	for _, f := range a.files {
		if path.Dir(f.name) == dir {
			all = append(all, fs.FileInfoToDirEntry(info{f}))
		}
	}
	return all, nil
}

type openFile struct {
	*io.SectionReader
	file file
}

func (o openFile) Stat() (fs.FileInfo, error) { return info{o.file}, nil }
func (openFile) Close() error                 { return nil }

type info struct{ file file }

func (i info) Name() string       { return i.file.name[strings.LastIndexByte(i.file.name, '/')+1:] }
func (i info) Size() int64        { return i.file.size }
func (i info) Mode() fs.FileMode  { return 0o644 }
func (i info) ModTime() time.Time { return time.Unix(0, 0) }
func (i info) IsDir() bool        { return false }
func (i info) Sys() any           { return nil }
