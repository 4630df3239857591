package vault

import (
	"bytes"
	"context"
	"errors"
	"os"
	"time"
)

const (
	// maxLine is the most that is kept of a line.
	maxLine = 1 << 20
	// readSize is how much is read at a time.
	readSize = 64 << 10
	// oldTime is how long a file is still read after it was rotated away: its writer goes on writing there until it is
	// signalled.
	oldTime = time.Minute
)

// tail reads the lines that are appended to a file, under whatever name it has
// meanwhile, and to the one that took its place. It is not safe for concurrent use.
type tail struct {
	path  string
	files []*tailed // of which the last is at path
}

// tailed is one file, read up to off.
type tailed struct {
	f     *os.File
	off   int64
	line  []byte // the beginning of one that is not whole yet
	long  bool   // it is longer than maxLine: the rest of it goes unread
	since time.Time
}

// openTail begins at the end of the file.
func openTail(path string) (*tail, error) {
	t := &tail{path: path}
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	t.files = []*tailed{{f: f, since: time.Now()}}
	t.skip()
	return t, nil
}

func openRegular(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New(path + " is not a regular file")
	}
	return os.Open(path)
}

func (t *tail) close() {
	for _, f := range t.files {
		f.f.Close()
	}
}

// poll gives take each line that was written since the last time.
func (t *tail) poll(ctx context.Context, take func(line []byte, cut bool)) {
	t.follow()
	for _, f := range t.files {
		f.read(ctx, take)
	}
}

// skip goes to the end.
func (t *tail) skip() {
	t.follow()
	for _, f := range t.files {
		if info, err := f.f.Stat(); err == nil {
			f.off, f.line, f.long = info.Size(), nil, false
		}
	}
}

// follow opens what stands at path now, if it is another file, and lets go of old ones.
func (t *tail) follow() {
	last := t.files[len(t.files)-1]
	now, err := os.Stat(t.path)
	if err != nil { // moved away, and nothing in its place yet
		return
	}
	if known, err := last.f.Stat(); err == nil && !os.SameFile(now, known) {
		if f, err := openRegular(t.path); err == nil {
			t.files = append(t.files, &tailed{f: f, since: time.Now()})
		}
	}
	// A file is old since the next one has been there.
	for len(t.files) > 1 && time.Since(t.files[1].since) > oldTime {
		t.files[0].f.Close()
		t.files = t.files[1:]
	}
}

// read takes the file's new lines. A file that has become shorter is read from its beginning.
func (f *tailed) read(ctx context.Context, take func(line []byte, cut bool)) {
	if info, err := f.f.Stat(); err == nil && info.Size() < f.off {
		f.off, f.line, f.long = 0, nil, false
	}
	buf := make([]byte, readSize)
	for ctx.Err() == nil {
		n, err := f.f.ReadAt(buf, f.off)
		f.off += int64(n)
		f.feed(buf[:n], take)
		if err != nil || n == 0 { // io.EOF, or what the next poll will try again
			return
		}
	}
}

// feed cuts text into lines.
func (f *tailed) feed(text []byte, take func(line []byte, cut bool)) {
	for len(text) > 0 {
		part, rest, whole := bytes.Cut(text, []byte{'\n'})
		room := maxLine - len(f.line)
		if len(part) > room {
			part, f.long = part[:room], true
		}
		f.line = append(f.line, part...)
		if whole {
			take(f.line, f.long)
			f.line, f.long = f.line[:0], false
		}
		text = rest
	}
}
