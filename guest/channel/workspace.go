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

	"golang.org/x/sys/unix"
)

// tick is longer than the resolution of a file's ctime.
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
// concurrently is not, hence os.Root here too.
func (s *Server) fill(data io.Reader) error {
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	root, err := s.Workspace()
	if err != nil {
		return err
	}
	defer root.Close()
	s.files.files = map[string]stamp{}
	f := filler{root: root}
	defer f.leave()
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
		if s.files.files[name], err = f.put(name, h, in); err != nil {
			return err
		}
	}
}

// filler puts entries into a tree. It stays in the directory of the last one, as most entries
// come after others of their directory.
type filler struct {
	root *os.Root
	dir  string
	at   *os.Root // of dir; nil: none yet
}

func (f *filler) enter(dir string) error {
	if f.at != nil && f.dir == dir {
		return nil
	}
	f.leave()
	at, err := f.root.OpenRoot(dir)
	if err != nil {
		return err
	}
	f.dir, f.at = dir, at
	return nil
}

func (f *filler) leave() {
	if f.at != nil {
		f.at.Close()
		f.at = nil
	}
}

// put makes an entry, replaces an existing one, and returns its state.
func (f *filler) put(name string, h *tar.Header, content io.Reader) (stamp, error) {
	if err := f.enter(path.Dir(name)); err != nil {
		return stamp{}, err
	}
	base := path.Base(name)
	if h.Typeflag == tar.TypeReg {
		return putFile(f.at, base, h, content)
	}
	if h.Typeflag == tar.TypeDir {
		if err := f.at.Mkdir(base, perm(h)); err != nil && !errors.Is(err, fs.ErrExist) {
			return stamp{}, err
		}
		if err := f.at.Chmod(base, perm(h)); err != nil {
			return stamp{}, err
		}
	} else {
		if err := remove(f.at, base); err != nil {
			return stamp{}, err
		}
		if err := f.at.Symlink(h.Linkname, base); err != nil {
			return stamp{}, err
		}
	}
	info, err := f.at.Lstat(base)
	if err != nil {
		return stamp{}, err
	}
	return stampOf(info), nil
}

func remove(dir *os.Root, name string) error {
	if err := dir.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// putFile takes few calls into the kernel: there may be many files, and the guest be emulated.
func putFile(dir *os.Root, name string, h *tar.Header, content io.Reader) (s stamp, err error) {
	const flags = os.O_CREATE | os.O_EXCL | os.O_WRONLY
	f, err := dir.OpenFile(name, flags, perm(h))
	if errors.Is(err, fs.ErrExist) {
		if err := remove(dir, name); err != nil {
			return s, err
		}
		f, err = dir.OpenFile(name, flags, perm(h))
	}
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, content); err != nil {
		return s, err
	}
	if err := f.Chmod(perm(h)); err != nil {
		return s, err
	}
	at := unix.NsecToTimespec(h.ModTime.UnixNano())
	if err := unix.UtimesNanoAt(int(f.Fd()), "", []unix.Timespec{at, at}, unix.AT_EMPTY_PATH); err != nil {
		return s, os.NewSyscallError("utimensat", err)
	}
	info, err := f.Stat()
	if err != nil {
		return s, err
	}
	return stampOf(info), nil
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

// batches splits list so that each part fits in a report, for any strings:
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
	out := tar.NewWriter(data)
	p := packer{walker: walker{root: root, warn: warnings.add}, send: sendTo(out, nil)}
	p.skip = func(name string, info fs.FileInfo) bool {
		again := seen[name]
		seen[name] = true
		was, known := s.files.files[name]
		return again || known && was == stampOf(info)
	}
	if err := p.pack(); err != nil {
		return nil, err
	}
	for name := range s.files.files {
		if !seen[path.Clean(name)] {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	return gone, out.Close()
}
