// Package archive reads and writes tar archives in canonical form: every program that reads
// tar finds the same files in them, and two archives of the same files are the same bytes.
//
// An archive is a sequence of files followed by 1024 zero bytes; nothing follows. A file is a header of 512
// bytes, its contents, and zero bytes up to the next multiple of 512. The names are in strictly increasing byte order.
// A header is that of POSIX.1-1988 (ustar), in which only three fields differ from file to file:
//
//	byte 0    name, at most 100 bytes, padded with zero bytes
//	    100   mode "0000644", user and group "0000000", each followed by a zero byte
//	    124   size: 11 octal digits, a zero byte
//	    136   time "00000000000", a zero byte
//	    148   checksum: 6 octal digits, a zero byte, a space
//	    156   type "0", 100 zero bytes
//	    257   "ustar", a zero byte, "00", 64 zero bytes
//	    329   device numbers "0000000" and "0000000", each followed by a zero byte, 167 zero bytes
//
// The checksum is the sum of the header's bytes with spaces in the checksum's place.
package archive

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	block   = 512
	maxName = 100
	// MaxSize is the greatest number of bytes of one file: 11 octal digits.
	MaxSize = 1<<33 - 1
)

// end follows the last file.
var end [2 * block]byte

// header returns the only valid header of a file of this name and size.
func header(name string, size int64) (h [block]byte) {
	copy(h[:], name)
	copy(h[100:], "0000644\x000000000\x000000000\x00")
	copy(h[124:], fmt.Sprintf("%011o\x0000000000000\x00", size))
	copy(h[148:], "        0")
	copy(h[257:], "ustar\x0000")
	copy(h[329:], "0000000\x000000000\x00")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return h
}

// padding returns how many zero bytes follow contents of that size.
func padding(size int64) int64 { return -size & (block - 1) }

// checkName requires a name that fits into a header and sorts after the previous one.
func checkName(name, before string) error {
	switch {
	case name == "" || len(name) > maxName || strings.Contains(name, "\x00"):
		return fmt.Errorf("%.120q is not a name: want from 1 to %d bytes, none of them zero", name, maxName)
	case name <= before:
		return fmt.Errorf("%q does not sort after %q", name, before)
	}
	return nil
}

// Writer writes an archive. It is not safe for concurrent use.
type Writer struct {
	w       io.Writer
	written int64
	last    string
	err     error // the first error; nothing is written after it
}

// NewWriter returns a Writer to w. Close it to complete the archive.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Written returns the number of bytes written so far.
func (w *Writer) Written() int64 { return w.written }

// Add writes one file. Its name must sort after the earlier ones in byte order, and r must return size bytes.
func (w *Writer) Add(name string, size int64, r io.Reader) error {
	return w.AddFunc(name, size, func(to io.Writer) error {
		_, err := io.Copy(to, io.LimitReader(r, size+1))
		return err
	})
}

// AddFunc is Add for contents that write writes.
func (w *Writer) AddFunc(name string, size int64, write func(io.Writer) error) error {
	if w.err == nil {
		w.err = w.add(name, size, write)
	}
	return w.err
}

func (w *Writer) add(name string, size int64, write func(io.Writer) error) error {
	if err := checkName(name, w.last); err != nil {
		return err
	}
	if size < 0 || size > MaxSize {
		return fmt.Errorf("%s: %d bytes, at most %d", name, size, int64(MaxSize))
	}
	h := header(name, size)
	if err := w.write(h[:]); err != nil {
		return err
	}
	start := w.written
	err := write(counter{w})
	switch n := w.written - start; {
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	case n != size:
		return fmt.Errorf("%s: want %d bytes, it has %d or more: it was changed while it was read", name, size, n)
	}
	w.last = name
	return w.write(end[:padding(size)])
}

// counter writes contents, and counts them.
type counter struct{ w *Writer }

func (c counter) Write(b []byte) (int, error) {
	n, err := c.w.w.Write(b)
	c.w.written += int64(n)
	return n, err
}

func (w *Writer) write(b []byte) error {
	n, err := w.w.Write(b)
	w.written += int64(n)
	return err
}

// Close completes the archive. It does not close the underlying io.Writer.
func (w *Writer) Close() error {
	if w.err == nil {
		w.err = w.write(end[:])
	}
	err := w.err
	w.err = cmp.Or(err, errClosed)
	return err
}

var errClosed = errors.New("the archive is complete")

// Open reads the headers of an archive of size bytes. It refuses any byte that a Writer would not have written; the
// contents are read later. It calls check with each file in order; the first error of check ends Open and is returned
// unchanged. Any other error is about the archive.
func Open(r io.ReaderAt, size int64, check func(name string, size int64) error) (*FS, error) {
	a := &FS{r: r}
	at, last := int64(0), ""
	for {
		h, err := readBlock(r, at, size)
		if err != nil {
			return nil, err
		}
		if h == [block]byte{} {
			break
		}
		f, err := parse(h, last)
		if err != nil {
			return nil, fmt.Errorf("at byte %d: %w", at, err)
		}
		if err := check(f.name, f.size); err != nil {
			return nil, err
		}
		f.start = at
		if at, err = f.skip(r, size); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		a.files, last = append(a.files, f), f.name
	}
	if h, err := readBlock(r, at+block, size); err != nil || h != [block]byte{} || at+int64(len(end)) != size {
		return nil, fmt.Errorf("at byte %d: want %d zero bytes and the end", at, len(end))
	}
	return a, nil
}

// readBlock reads a block that must exist.
func readBlock(r io.ReaderAt, at, size int64) (h [block]byte, err error) {
	if at+block > size {
		return h, fmt.Errorf("it ends at byte %d without the %d zero bytes at the end: it is truncated, or not a tar archive", size, len(end))
	}
	_, err = r.ReadAt(h[:], at)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return h, err
}

// parse parses a header: encoding it again must return the same bytes.
func parse(h [block]byte, before string) (f file, err error) {
	name, _, _ := bytes.Cut(h[:maxName], []byte{0})
	size, err := strconv.ParseInt(string(h[124:135]), 8, 64)
	if err != nil || size < 0 || header(string(name), size) != h {
		return f, errors.New("not a header as custody writes it")
	}
	return file{name: string(name), size: size}, checkName(string(name), before)
}

// skip returns the offset of the next header.
func (f file) skip(r io.ReaderAt, size int64) (int64, error) {
	behind := f.start + block + f.size
	pad := make([]byte, padding(f.size))
	if behind+int64(len(pad)) > size {
		return 0, fmt.Errorf("it is truncated: want %d bytes", f.size)
	}
	if _, err := r.ReadAt(pad, behind); err != nil && err != io.EOF {
		return 0, err
	}
	if !bytes.Equal(pad, end[:len(pad)]) {
		return 0, errors.New("the padding of its last block is not zero")
	}
	return behind + int64(len(pad)), nil
}
