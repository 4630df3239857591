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

// decoder undoes a body's Content-Encoding (RFC 9110, section 8.4) for our eyes, piece by
// piece: what a piece tells is known when Write returns, since answers are
// compressed with a flush behind each event.
//
// Decompressors read, and bodies are written. So the decompressor runs as a coroutine that gives
// way when it wants more than has come.
type decoder struct {
	to    io.Writer // never fails
	left  int64     // decoded bytes that are still looked at
	wrong string    // why nothing more is read

	in    []byte                   // what came and was not read
	more  func() (struct{}, bool)  // runs the coroutine until it wants more; nil: the body is as it came
	stop  func()                   // ends it
	yield func(struct{}) (on bool) // gives way; in the coroutine only
	over  bool                     // nothing more will come
}

// maxDecoded bounds what is looked at of a body, in bytes: a small body can become very large.
const maxDecoded = 128 << 20

// maxWindow is the most that a zstd decoder needs for HTTP (RFC 9659, section 3).
const maxWindow = 8 << 20

// newDecoder returns a decoder for a Content-Encoding of fields; close must be called.
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
		d.wrong = fmt.Sprintf("its content coding %.20q is not known", coding)
		return
	}
	d.more, d.stop = iter.Pull(func(yield func(struct{}) bool) {
		d.yield = yield
		if err := d.run(open); err != nil && d.wrong == "" && !d.over {
			d.wrong = "its content coding " + coding + " is broken"
		}
	})
}

// run is the coroutine.
func (d *decoder) run(open func(io.Reader) (io.Reader, error)) (err error) {
	defer func() { // the decompressors are not ours, and what they read is anyone's
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

// openers has the content codings that are in use.
var openers = map[string]func(io.Reader) (io.Reader, error){
	"gzip":   func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	"x-gzip": func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	"br":     func(r io.Reader) (io.Reader, error) { return brotli.NewReader(r), nil },
	"zstd": func(r io.Reader) (io.Reader, error) {
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	},
	// Some servers leave out what zlib puts around it.
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

// input is the decoder as its decompressor reads it.
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

// Write implements io.Writer; it never fails. p is not kept.
func (d *decoder) Write(p []byte) (int, error) {
	switch {
	case d.wrong != "" || d.over || len(p) == 0:
	case d.more == nil:
		d.pass(p)
	default:
		d.in = p
		d.more() // when it has ended, what follows is no part of the body
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
