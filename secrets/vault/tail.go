package vault

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"time"
)

const (
	// maxLine bounds the stored part of a line.
	maxLine = 1 << 20
	// readSize is the size of a read.
	readSize = 64 << 10
	// oldTime is how long a rotated file is still read: its writer continues to write to it until it is signalled.
	oldTime = time.Minute
)

// tail reads the lines that are appended to a file, also after the file is renamed, and to the file that replaces it. It
// is not safe for concurrent use.
type tail struct {
	open  func(known fs.FileInfo) (*os.File, error) // see Place.Audit
	files []*tailed                                 // the last one is at the path
}

// tailed is one file, read up to off.
type tailed struct {
	f     *os.File
	off   int64
	line  []byte // the start of an incomplete line
	long  bool   // it is longer than maxLine: the rest is skipped
	since time.Time
}

// openTail starts at the end of the file.
func openTail(open func(known fs.FileInfo) (*os.File, error)) (*tail, error) {
	t := &tail{open: open}
	f, err := open(nil)
	if err != nil {
		return nil, err
	}
	t.files = []*tailed{{f: f, since: time.Now()}}
	t.skip()
	return t, nil
}

func (t *tail) close() {
	for _, f := range t.files {
		f.f.Close()
	}
}

// poll calls take for each line that was written since the last call.
func (t *tail) poll(ctx context.Context, take func(line []byte, cut bool)) {
	t.follow()
	for _, f := range t.files {
		f.read(ctx, take)
	}
}

// skip skips to the end.
func (t *tail) skip() {
	t.follow()
	for _, f := range t.files {
		if info, err := f.f.Stat(); err == nil {
			f.off, f.line, f.long = info.Size(), nil, false
		}
	}
}

// follow opens the file at the path if it was replaced, and closes old ones.
func (t *tail) follow() {
	last := t.files[len(t.files)-1]
	if known, err := last.f.Stat(); err == nil {
		// An error means that it was moved away and not replaced yet.
		if f, err := t.open(known); err == nil && f != nil {
			t.files = append(t.files, &tailed{f: f, since: time.Now()})
		}
	}
	// A file is old when the next one has existed for oldTime.
	for len(t.files) > 1 && time.Since(t.files[1].since) > oldTime {
		t.files[0].f.Close()
		t.files = t.files[1:]
	}
}

// read reads the file's new lines. It reads a file that was truncated from its start.
func (f *tailed) read(ctx context.Context, take func(line []byte, cut bool)) {
	if info, err := f.f.Stat(); err == nil && info.Size() < f.off {
		f.off, f.line, f.long = 0, nil, false
	}
	buf := make([]byte, readSize)
	for ctx.Err() == nil {
		n, err := f.f.ReadAt(buf, f.off)
		f.off += int64(n)
		f.feed(buf[:n], take)
		if err != nil || n == 0 { // io.EOF, or an error that the next poll retries
			return
		}
	}
}

// feed splits text into lines.
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
