// Package remote gives a process without access to the directory of a run's log the files of that log, over a connection.
//
//	worker: wal.Log --> FS --privsep--> Server: the directory of one run
//
// The Server opens files and passes their descriptors; it never reads or writes their contents. It accepts only the names that a log
// uses, follows no link, and keeps the log's lock. A worker that was taken over can destroy the record of its own run, which
// verification then reports, and reaches no other file.
package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/privsep"
)

// The calls of an FS.
const (
	callMake   = "log-make"
	callSync   = "log-sync"
	callNames  = "log-names"
	callOpen   = "log-open"
	callRename = "log-rename"
	callRemove = "log-remove"
	callLock   = "log-lock"
	callUnlock = "log-unlock"
)

// maxNames bounds the names of one answer, which must fit into a message.
const maxNames = 1000

type (
	none      struct{}
	syncCall  struct{ Parent bool }
	namesCall struct{ After string }
	openCall  struct {
		Name string
		How  how
	}
	renameCall struct{ Name string } // a temporary file, which loses its suffix
	nameCall   struct{ Name string }
)

// how is how a file is opened.
type how string

const (
	read    how = "read"
	extend  how = "extend" // an existing file, to read and write
	replace how = "create" // a new or truncated file
)

// Server gives a worker the files of one run's log. It is safe for concurrent use.
//
//	NewServer --> unlocked <--lock, unlock--> locked --Close--> closed
type Server struct {
	dir string

	mu     sync.Mutex // guards the fields below
	lock   io.Closer  // nil: unlocked
	begun  bool
	closed bool
}

// NewServer returns a server for the log in the directory dir, which need not exist yet.
func NewServer(dir string) *Server { return &Server{dir: dir} }

// Handlers returns the calls that an FS makes.
func (s *Server) Handlers() map[string]privsep.Handler {
	return map[string]privsep.Handler{
		callMake:   privsep.Handle(func(context.Context, none) (any, []*os.File, error) { return none{}, nil, wal.Disk{}.MkdirAll(s.dir) }),
		callSync:   privsep.Handle(s.sync),
		callNames:  privsep.Handle(s.names),
		callOpen:   privsep.Handle(s.open),
		callRename: privsep.Handle(s.rename),
		callRemove: privsep.Handle(s.remove),
		callLock:   privsep.Handle(s.acquire),
		callUnlock: privsep.Handle(func(context.Context, none) (any, []*os.File, error) { return none{}, nil, s.Unlock() }),
	}
}

// Begun reports whether a worker has locked the log.
func (s *Server) Begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun
}

// Unlock releases the lock of a worker that has ended.
func (s *Server) Unlock() error { return s.release(false) }

// Close releases the lock. Later calls fail to acquire it.
func (s *Server) Close() error { return s.release(true) }

func (s *Server) release(closing bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = s.closed || closing
	if s.lock == nil {
		return nil
	}
	lock := s.lock
	s.lock = nil
	return lock.Close()
}

func (s *Server) acquire(context.Context, none) (any, []*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.lock != nil {
		return nil, nil, wal.ErrLocked
	}
	var err error
	s.lock, err = wal.Disk{}.Lock(filepath.Join(s.dir, wal.LockName))
	s.begun = s.begun || err == nil
	return none{}, nil, err
}

func (s *Server) sync(_ context.Context, c syncCall) (any, []*os.File, error) {
	dir := s.dir
	if c.Parent {
		dir = filepath.Dir(dir)
	}
	return none{}, nil, wal.Disk{}.SyncDir(dir)
}

// names returns the names in the directory that follow a name, sorted, maxNames at most.
func (s *Server) names(_ context.Context, c namesCall) (any, []*os.File, error) {
	all, err := wal.Disk{}.ReadDir(s.dir)
	if err != nil {
		return nil, nil, err
	}
	from, found := slices.BinarySearch(all, c.After)
	if found {
		from++
	}
	all = all[from:]
	return all[:min(len(all), maxNames)], nil, nil
}

// path returns the path of one of the log's files.
func (s *Server) path(name string) (string, error) {
	if !wal.IsFile(name) {
		return "", fmt.Errorf("%.100q is no file of a log", name)
	}
	return filepath.Join(s.dir, name), nil
}

func (s *Server) open(_ context.Context, c openCall) (any, []*os.File, error) {
	path, err := s.path(c.Name)
	if err != nil {
		return nil, nil, err
	}
	flags := os.O_RDWR
	switch c.How {
	case read:
		flags = os.O_RDONLY
	case extend:
	case replace:
		flags |= os.O_CREATE | os.O_TRUNC
		if err := s.replaceable(c.Name); err != nil {
			return nil, nil, err
		}
	default:
		return nil, nil, fmt.Errorf("a file cannot be opened to %.20q", c.How)
	}
	f, err := os.OpenFile(path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, nil, errors.Join(fmt.Errorf("%s is not a regular file", path), err, f.Close())
	}
	return none{}, []*os.File{f}, nil
}

// replaceable returns an error for a segment that is sealed, and for a file that only a rename makes.
func (s *Server) replaceable(name string) error {
	if strings.HasSuffix(name, wal.TempSuffix) {
		return nil
	}
	first, ok := wal.ParseName(name, wal.SegmentSuffix)
	if !ok {
		return fmt.Errorf("%s is written under a temporary name", name)
	}
	_, err := os.Lstat(filepath.Join(s.dir, wal.FileName(first, wal.ManifestSuffix)))
	if !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("segment %s is sealed", name), err)
	}
	return nil
}

func (s *Server) rename(_ context.Context, c renameCall) (any, []*os.File, error) {
	from, err := s.path(c.Name + wal.TempSuffix)
	if err != nil {
		return nil, nil, err
	}
	return none{}, nil, os.Rename(from, strings.TrimSuffix(from, wal.TempSuffix))
}

func (s *Server) remove(_ context.Context, c nameCall) (any, []*os.File, error) {
	path, err := s.path(c.Name)
	if err == nil && !strings.HasSuffix(path, wal.TempSuffix) {
		err = fmt.Errorf("%s is not temporary", c.Name)
	}
	if err != nil {
		return nil, nil, err
	}
	return none{}, nil, os.Remove(path)
}
