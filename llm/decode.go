package llm

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// decoder undoes a body's Content-Encoding (RFC 9110, section 8.4), piece by piece. The decoded contents of a piece are
// available when Write returns, because servers flush the compression after each event.
//
// Decompressors read from a source, but bodies are written to a decoder. So the decompressor runs as a coroutine that
// yields when it needs more data.
type decoder struct {
	to    io.Writer // never fails
	left  int64     // decoded bytes until the limit
	wrong string    // why decoding stopped

	in    []byte                   // received and not yet decoded
	more  func() (struct{}, bool)  // runs the coroutine until it needs more data; nil: the body is not encoded
	stop  func()                   // ends it
	yield func(struct{}) (on bool) // yields; called only in the coroutine
	over  bool                     // no more data follows
}

// maxDecoded bounds the decoded bytes of a body: a small body can become very large.
const maxDecoded = 128 << 20

// maxWindow is the largest window of zstd for HTTP (RFC 9659, section 3).
const maxWindow = 8 << 20

// newDecoder returns a decoder for the Content-Encoding in fields; close must be called.
func newDecoder(fields []string, to io.Writer) *decoder {
	d := &decoder{to: to, left: maxDecoded}
	var codings []string
	for coding := range strings.SplitSeq(strings.Join(fields, ","), ",") {
		coding = strings.ToLower(strings.TrimSpace(coding))
		if coding != "" && coding != "identity" {
			codings = append(codings, coding)
		}
	}
	switch {
	case len(codings) > 1:
		d.wrong = "it has several content codings"
	case len(codings) == 1:
		d.start(codings[0])
	}
	return d
}

func (d *decoder) start(coding string) {
	open, ok := openers[coding]
	if !ok {
		d.wrong = fmt.Sprintf("unknown content coding %.20q", coding)
		return
	}
	d.more, d.stop = iter.Pull(func(yield func(struct{}) bool) {
		d.yield = yield
		if err := d.run(open); err != nil && d.wrong == "" && !d.over {
			d.wrong = "its content coding " + coding + " is broken"
		}
	})
}

// run runs the coroutine.
func (d *decoder) run(open func(io.Reader) (io.Reader, error)) (err error) {
	defer func() { // the decompressors are from other projects, and their input is untrusted
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	r, err := open(bufio.NewReaderSize((*input)(d), 512))
	if err != nil {
		return err
	}
	if c, ok := r.(interface{ Close() }); ok {
		defer c.Close()
	}
	buf := make([]byte, 16<<10)
	for d.wrong == "" {
		n, err := r.Read(buf)
		d.pass(buf[:n])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openers has the common content codings.
var openers = map[string]func(io.Reader) (io.Reader, error){
	"gzip":   func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	"x-gzip": func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	"br":     func(r io.Reader) (io.Reader, error) { return brotli.NewReader(r), nil },
	"zstd": func(r io.Reader) (io.Reader, error) {
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	},
	// Some servers send raw deflate, without zlib's format.
	"deflate": func(r io.Reader) (io.Reader, error) {
		b := r.(*bufio.Reader)
		head, err := b.Peek(2)
		if err != nil {
			return nil, err
		}
		if head[0]&0x0f == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0 { // RFC 1950, section 2.2
			return zlib.NewReader(b)
		}
		return flate.NewReader(b), nil
	},
}

// input is the decompressor's view of the decoder.
type input decoder

func (i *input) Read(p []byte) (int, error) {
	for len(i.in) == 0 {
		if i.over || !i.yield(struct{}{}) {
			i.over = true
			return 0, io.ErrUnexpectedEOF
		}
	}
	n := copy(p, i.in)
	i.in = i.in[n:]
	return n, nil
}

// Write implements io.Writer; it never fails. It does not keep p.
func (d *decoder) Write(p []byte) (int, error) {
	switch {
	case d.wrong != "" || d.over || len(p) == 0:
	case d.more == nil:
		d.pass(p)
	default:
		d.in = p
		d.more() // if it has ended, the rest is not part of the body
		d.in = nil
	}
	return len(p), nil
}

func (d *decoder) pass(p []byte) {
	if d.left -= int64(len(p)); d.left < 0 {
		d.wrong = fmt.Sprintf("it is longer than %d MiB", maxDecoded>>20)
		return
	}
	d.to.Write(p) // never fails
}

// close ends the coroutine.
func (d *decoder) close() {
	d.over = true
	if d.stop != nil {
		d.stop()
	}
}
