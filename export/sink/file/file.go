// Package file is the sink that writes events as lines to a file or to standard output.
package file

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
	"time"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/export"
)

// Options have the path, which is required, and when to rotate the file.
type Options struct {
	Path string
	// Bytes and Age are the size and the age at which the file is rotated to
	// NAME-20260102T150405.000000000Z.EXT; 0 means never.
	Bytes int64
	Age   time.Duration
	Keep  int  // maximum number of rotated files; 0 keeps all
	Gzip  bool // of rotated files
}

// Sink writes complete lines, and reports them as accepted when they are on disk.
//
//	open: truncate a torn last line, complete an interrupted rotation
//	 |
//	 v        batch                      too large or too old
//	file --> write, fsync --> file ... --> renamed --> gzip --> oldest removed
type Sink struct {
	o     Options
	f     *os.File
	size  int64
	since time.Time // time of the file's first line
}

const stamp = "20060102T150405.000000000Z"

// New opens the file, only for its owner, and creates its directory. It fails if another sink uses the file.
func New(o Options) (*Sink, error) {
	s := &Sink{o: o}
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o700); err != nil {
		return nil, err
	}
	if err := s.open(); err != nil {
		return nil, err
	}
	if err := s.tidy(); err != nil {
		s.f.Close()
		return nil, err
	}
	return s, nil
}

func (s *Sink) open() (err error) {
	f, err := os.OpenFile(s.o.Path, os.O_CREATE|os.O_RDWR|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", s.o.Path)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("%s is written by another exporter: %w", s.o.Path, err)
	}
	if err := f.Chmod(0o600); err != nil {
		return err
	}
	whole, err := wholeLines(f, info.Size())
	if err != nil {
		return err
	}
	if whole < info.Size() {
		if err := f.Truncate(whole); err != nil {
			return err
		}
	}
	s.f, s.size, s.since = f, whole, info.ModTime()
	if s.size == 0 {
		s.since = time.Now()
	}
	return durable.SyncDir(filepath.Dir(s.o.Path))
}

// wholeLines returns the size without an incomplete last line.
func wholeLines(f *os.File, size int64) (int64, error) {
	buf := make([]byte, 64<<10)
	for end := size; end > 0; {
		n := min(end, int64(len(buf)))
		if _, err := f.ReadAt(buf[:n], end-n); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for i := n - 1; i >= 0; i-- {
			if buf[i] == '\n' {
				return end - n + i + 1, nil
			}
		}
		end -= n
	}
	return 0, nil
}

// Send implements export.Sink.
func (s *Sink) Send(_ context.Context, items []export.Item) error {
	if s.f != nil && s.moved() {
		s.f.Close()
		s.f = nil
	}
	if s.f == nil { // or after a failed rotation or repair
		if err := s.open(); err != nil {
			return err
		}
	}
	var lines []byte
	for _, i := range items {
		lines = append(append(lines, i.Data...), '\n')
	}
	if s.due(int64(len(lines))) {
		if err := s.rotate(); err != nil {
			return fmt.Errorf("rotate %s: %w", s.o.Path, err)
		}
	}
	_, err := s.f.Write(lines)
	if err == nil {
		err = s.f.Sync()
	}
	if err != nil { // the batch is sent again, and must not be partly duplicated
		if err := s.f.Truncate(s.size); err != nil {
			s.f.Close() // opening it again truncates the torn line
			s.f = nil
		}
		return err
	}
	if s.size == 0 {
		s.since = time.Now()
	}
	s.size += int64(len(lines))
	return nil
}

// moved reports whether another program, such as logrotate, has moved the file.
func (s *Sink) moved() bool {
	there, err := os.Lstat(s.o.Path)
	if err != nil {
		return true
	}
	here, err := s.f.Stat()
	return err != nil || !os.SameFile(here, there)
}

func (s *Sink) due(more int64) bool {
	return s.size > 0 && (s.o.Bytes > 0 && s.size+more > s.o.Bytes || s.o.Age > 0 && time.Since(s.since) >= s.o.Age)
}

func (s *Sink) rotate() error {
	ext := filepath.Ext(s.o.Path)
	aside := strings.TrimSuffix(s.o.Path, ext) + "-" + time.Now().UTC().Format(stamp) + ext
	if err := os.Rename(s.o.Path, aside); err != nil {
		return err
	}
	s.f.Close() // synced after each write
	s.f = nil
	return errors.Join(s.open(), s.tidy())
}

// tidy compresses rotated files, and removes the oldest beyond Keep.
func (s *Sink) tidy() error {
	files, err := s.aside()
	if err != nil {
		return err
	}
	for i, path := range files {
		switch {
		case s.o.Keep > 0 && i < len(files)-s.o.Keep:
			err = os.Remove(path)
		case s.o.Gzip && !strings.HasSuffix(path, ".gz"):
			err = compress(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// aside returns the rotated files, oldest first.
func (s *Sink) aside() ([]string, error) {
	ext := filepath.Ext(s.o.Path)
	prefix := strings.TrimSuffix(filepath.Base(s.o.Path), ext) + "-"
	entries, err := os.ReadDir(filepath.Dir(s.o.Path))
	var files []string
	for _, e := range entries {
		at, ok := strings.CutPrefix(strings.TrimSuffix(strings.TrimSuffix(e.Name(), ".gz"), ext), prefix)
		if _, err := time.Parse(stamp, at); ok && err == nil {
			files = append(files, filepath.Join(filepath.Dir(s.o.Path), e.Name()))
		}
	}
	slices.Sort(files)
	return files, err
}

// compress replaces path by path.gz. After a kill one of them, or both, are complete.
func compress(path string) error {
	in, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.Remove(path + ".gz.new"); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a process that was killed
		return err
	}
	out, err := os.OpenFile(path+".gz.new", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(out)
	_, err = io.Copy(z, in)
	if err := errors.Join(err, z.Close(), out.Sync(), out.Close()); err != nil {
		return err
	}
	if err := errors.Join(os.Rename(path+".gz.new", path+".gz"), durable.SyncDir(filepath.Dir(path))); err != nil {
		return err
	}
	return os.Remove(path)
}

// Close implements export.Sink.
func (s *Sink) Close() error {
	if s.f == nil {
		return nil
	}
	return s.f.Close()
}

// Stream is a sink that writes lines to a stream. It knows only that they were written.
type Stream struct{ w io.Writer }

// NewStream returns a sink that writes to w, which the caller closes.
func NewStream(w io.Writer) *Stream { return &Stream{w} }

// Send implements export.Sink.
func (s *Stream) Send(_ context.Context, items []export.Item) error {
	var lines []byte
	for _, i := range items {
		lines = append(append(lines, i.Data...), '\n')
	}
	_, err := s.w.Write(lines)
	return err
}

// Close implements export.Sink.
func (s *Stream) Close() error { return nil }

// Warning implements export.Warner.
func (s *Stream) Warning() string {
	return "a stream has no acknowledgement: events that its reader loses are not sent again"
}
