package channel

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"iter"
	"net"
	"os"
	"path"
	"slices"
	"sync"
	"syscall"
	"time"
)

// tick is longer than the grain of a file's ctime.
const tick = 12 * time.Millisecond

// baseline remembers the files that CopyIn made by what a workload cannot set
// back: inode and change time. What still has both is unchanged and need not
// be read; the rest is sent, and the host, which has the digests, decides.
type baseline struct {
	mu    sync.Mutex // guards files and keeps copies apart
	files map[string]stamp
}

type stamp struct {
	ino   uint64
	ctime syscall.Timespec
	mode  fs.FileMode
	size  int64
}

func stampOf(info fs.FileInfo) (s stamp) {
	s.mode, s.size = info.Mode(), info.Size()
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.ino, s.ctime = st.Ino, st.Ctim
	}
	if info.IsDir() { // its ctime changes with its entries
		s.ctime, s.size = syscall.Timespec{}, 0
	}
	return s
}

func (s *Server) copyIn(ctl, data net.Conn) {
	err := s.fill(data)
	io.Copy(io.Discard, data) // so that the host gets to read why
	data.Close()
	writeFrame(ctl, finish(err), maxReport)
}

func finish(err error) report {
	r := report{Done: true}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// fill unpacks the host's tree. The host is trusted; a workload that runs
// meanwhile is not, hence os.Root here too.
func (s *Server) fill(data io.Reader) error {
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	root, err := s.Workspace()
	if err != nil {
		return err
	}
	defer root.Close()
	s.files.files = map[string]stamp{}
	in := tar.NewReader(data)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			time.Sleep(tick)
			return nil
		}
		if err != nil {
			return err
		}
		name, err := entryName(h)
		if err != nil {
			return err
		}
		if err := put(root, name, h, in); err != nil {
			return err
		}
		info, err := root.Lstat(name)
		if err != nil {
			return err
		}
		s.files.files[name] = stampOf(info)
	}
}

func put(root *os.Root, name string, h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeDir {
		if err := root.Mkdir(name, perm(h)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return root.Chmod(name, perm(h))
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if h.Typeflag == tar.TypeSymlink {
		return root.Symlink(h.Linkname, name)
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|syscall.O_NOFOLLOW, perm(h))
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.Copy(f, content); err != nil {
		return err
	}
	if err := f.Chmod(perm(h)); err != nil {
		return err
	}
	if err := root.Chtimes(name, h.ModTime, h.ModTime); err != nil {
		return err
	}
	return f.Close()
}

func (s *Server) copyOut(ctl, data net.Conn) {
	var warnings notes
	gone, err := s.drain(data, &warnings)
	data.Close()
	for some := range batches(gone) {
		if writeFrame(ctl, report{Deleted: texts(some)}, maxReport) != nil {
			return
		}
	}
	for some := range batches(warnings.all()) {
		if writeFrame(ctl, report{Warnings: texts(some)}, maxReport) != nil {
			return
		}
	}
	writeFrame(ctl, finish(err), maxReport)
}

// batches cuts list so that each part fits a report, whatever its strings hold:
// JSON makes at most six bytes out of one.
func batches(list []string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		from, size := 0, 0
		for i, s := range list {
			size += 6*len(s) + 16
			if size > maxReport-1024 && i > from {
				if !yield(list[from:i]) {
					return
				}
				from, size = i, 6*len(s)+16
			}
		}
		if from < len(list) {
			yield(list[from:])
		}
	}
}

// drain sends what has changed and returns the names of what has been deleted.
func (s *Server) drain(data io.Writer, warnings *notes) (gone []string, err error) {
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	root, err := s.Workspace()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	seen := map[string]bool{}
	p := packer{root: root, out: tar.NewWriter(data), warn: warnings.add}
	p.skip = func(name string, info fs.FileInfo) bool {
		again := seen[name]
		seen[name] = true
		was, known := s.files.files[name]
		return again || known && was == stampOf(info)
	}
	if err := p.pack(".", 0); err != nil {
		return nil, err
	}
	for name := range s.files.files {
		if !seen[path.Clean(name)] {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	return gone, p.out.Close()
}
