package gateway

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
)

// Limits of a chunked body.
const (
	maxChunkDigits = 8   // a chunk has less than 4 GiB
	maxChunkLine   = 256 // including its extension
	maxTrailer     = 8 << 10
)

// body is a request's body. It is parsed strictly and not read beyond its end. After the last byte Read returns io.EOF;
// after any other error the connection cannot be reused. Only one goroutine at a time reads it; all may query its
// progress.
type body struct {
	r       *bufio.Reader
	left    int64 // of the chunk, or of a body that is not chunked
	chunked bool
	first   bool  // no chunk was read yet
	err     error // the result of all further Reads

	begin func() error // called before the first read from the connection; nil: nothing
	end   func()       // called after the end was read; nil: nothing

	flawed atomic.Pointer[refusal] // the reason if the guest's body is incomplete or malformed

	taken atomic.Bool  // another goroutine reads it
	begun atomic.Bool  // the first byte was requested
	whole atomic.Bool  // the end was read, and r is no longer used
	read  atomic.Int64 // bytes of content so far
}

func newBody(r *bufio.Reader, length int64) *body {
	b := &body{r: r, left: length, first: true}
	if length < 0 {
		b.left, b.chunked = 0, true
	} else if length == 0 {
		b.err = io.EOF
		b.whole.Store(true)
	}
	return b
}

// Read implements io.Reader. It must not be called concurrently.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if !b.begun.Swap(true) && b.begin != nil {
		if err := b.begin(); err != nil {
			return 0, b.fail(err)
		}
	}
	if b.left == 0 && b.chunked {
		if err := b.next(); err != nil {
			return 0, b.fail(err)
		}
	}
	return b.content(p)
}

func (b *body) content(p []byte) (int, error) {
	if b.left == 0 {
		return 0, b.fail(io.EOF)
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	b.read.Add(int64(n))
	if err == nil && b.left == 0 && !b.chunked {
		err = io.EOF
	} else if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return n, b.fail(err)
	}
	return n, nil
}

func (b *body) fail(err error) error {
	b.err = err
	switch {
	case errors.Is(err, io.EOF):
		if b.end != nil {
			b.end()
		}
		b.whole.Store(true)
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.flawed.Store(&refusal{http.StatusRequestTimeout, alertDecodeError, "the request's body did not arrive in time"})
	default:
		b.flawed.Store(asRefusal(err, func(error) *refusal { return malformed("the request's body is incomplete") }))
	}
	return err
}

// Close implements io.Closer. It does not close the connection, which its owner does.
func (b *body) Close() error { return nil }

// next reads the line before a chunk (RFC 9112, section 7.1), and after the last chunk the trailer. At the end of the
// body left is 0.
func (b *body) next() error {
	if !b.first {
		if err := b.crlf(); err != nil {
			return err
		}
	}
	b.first = false
	line, err := b.line(maxChunkLine)
	if err != nil {
		return err
	}
	size, err := chunkSize(line)
	if err != nil {
		return err
	}
	if b.left = size; size == 0 {
		return b.trailer()
	}
	return nil
}

// chunkSize parses the hexadecimal digits of a chunk's size. It ignores printable extensions, and rejects white space
// before them.
func chunkSize(line []byte) (int64, error) {
	var size int64
	digits := 0
	for ; digits < len(line); digits++ {
		d, ok := hexDigit(line[digits])
		if !ok {
			break
		}
		if digits == maxChunkDigits {
			return 0, malformed("a chunk's size has more than 8 digits")
		}
		size = size<<4 | int64(d)
	}
	if digits == 0 || digits < len(line) && line[digits] != ';' {
		return 0, malformed("a chunk's size is not hexadecimal digits")
	}
	for _, c := range line[digits:] {
		if c < ' ' && c != '\t' || c == 0x7f {
			return 0, malformed("a control character in a chunk's extension")
		}
	}
	return size, nil
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// trailer reads and discards the fields after the last chunk, so that they cannot be mistaken for fields of the head
// (RFC 9110, section 6.5.1).
func (b *body) trailer() error {
	for room := maxTrailer; ; {
		line, err := b.line(room)
		if err != nil {
			return err
		}
		if len(line) == 0 {
			return nil
		}
		if _, _, err := field(string(line)); err != nil {
			return err
		}
		room -= len(line) + 2
	}
}

// line reads a line that ends in CRLF and returns it without the CRLF.
func (b *body) line(longest int) ([]byte, error) {
	var line []byte
	for len(line) < longest+2 {
		c, err := b.r.ReadByte()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		if line = append(line, c); c != '\n' {
			continue
		}
		if len(line) < 2 || line[len(line)-2] != '\r' {
			return nil, malformed("a line between chunks ends in LF without CR")
		}
		return line[:len(line)-2], nil
	}
	return nil, malformed("a line between chunks, or the trailer, is too long")
}

func (b *body) crlf() error {
	line, err := b.line(0)
	if err != nil {
		return err
	}
	if len(line) > 0 {
		return malformed("a chunk is longer than its size")
	}
	return nil
}
