package fleet

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// kept is how much of the end of an output is in memory, in bytes. The record has what is older, up to the project's record.output.
const kept = 1 << 20

// Output is what a process has written to one stream, redacted, with offsets as in the record. It is safe for concurrent use.
type Output struct {
	ending <-chan struct{} // closed when the sandbox is to end: then Write does not wait

	mu    sync.Mutex // guards the fields below
	buf   []byte     // the end of the stream
	start int64      // offset of buf
	over  bool
	rush  bool          // Write does not wait: the sandbox is being paused
	more  chan struct{} // closed and replaced when there is more, or the stream has ended
	holds map[*Hold]struct{}
	moved chan struct{} // closed and replaced when a hold has moved or was released
}

func newOutput(ending <-chan struct{}) *Output {
	return &Output{ending: ending, more: make(chan struct{}), holds: map[*Hold]struct{}{}, moved: make(chan struct{})}
}

// Write implements io.Writer. It waits while the stream is more than kept ahead of a Hold, as a pipe would.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.held() {
		moved := o.moved
		o.mu.Unlock()
		select {
		case <-moved:
		case <-o.ending:
		}
		o.mu.Lock()
	}
	o.buf = append(o.buf, b...)
	if len(o.buf) > 2*kept { // half of the time nothing is moved
		drop := int64(len(o.buf) - kept)
		for h := range o.holds {
			if reached := h.offset - o.start; reached >= 0 && !o.ends() {
				drop = min(drop, reached)
			}
		}
		o.buf = append(o.buf[:0], o.buf[drop:]...)
		o.start += drop
	}
	close(o.more)
	o.more = make(chan struct{})
	return len(b), nil
}

// The buffer of readFrom has leastRead bytes, and grows up to mostRead while reads fill it.
const (
	leastRead = 32 << 10
	mostRead  = 256 << 10
)

// readFrom writes what it reads until the end of r.
func (o *Output) readFrom(r io.Reader) {
	buf := make([]byte, leastRead)
	for {
		n, err := r.Read(buf)
		o.Write(buf[:n])
		if err != nil {
			return
		}
		if n == len(buf) && n < mostRead {
			buf = make([]byte, 2*n)
		}
	}
}

// held reports whether Write waits for a Hold. The caller holds mu.
func (o *Output) held() bool {
	for h := range o.holds {
		if o.start+int64(len(o.buf))-h.offset > kept && !o.ends() {
			return true
		}
	}
	return false
}

func (o *Output) ends() bool {
	if o.rush {
		return true
	}
	select {
	case <-o.ending:
		return true
	default:
		return false
	}
}

// hurry sets whether Write waits for no Hold.
func (o *Output) hurry(rush bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rush = rush
	o.wakeWriter()
}

// length returns the offset of the stream's end.
func (o *Output) length() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.start + int64(len(o.buf))
}

// Hold keeps a process from writing more than a megabyte beyond what a reader has received, until it is released or the sandbox is to end.
type Hold struct {
	out    *Output
	offset int64 // guarded by out.mu
}

// Hold returns a Hold at an offset.
func (o *Output) Hold(offset int64) *Hold {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := &Hold{o, offset}
	o.holds[h] = struct{}{}
	return h
}

// Move moves the hold to the offset that the reader has reached.
func (h *Hold) Move(offset int64) {
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	h.offset = offset
	h.out.wakeWriter()
}

// Release releases the hold.
func (h *Hold) Release() {
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	delete(h.out.holds, h)
	h.out.wakeWriter()
}

func (o *Output) wakeWriter() {
	close(o.moved)
	o.moved = make(chan struct{})
}

func (o *Output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	close(o.more)
	o.more = make(chan struct{})
}

// Gone means that an offset is before what is in memory.
type Gone struct{ First int64 } // the first offset that is in memory

// Error implements error.
func (e *Gone) Error() string {
	return fmt.Sprintf("the output before offset %d is only in the record", e.First)
}

// Read waits until there is output at the offset, and returns at most limit bytes of it. It returns none when the stream has ended there. The error
// is a Gone if that output is not in memory any more.
func (o *Output) Read(ctx context.Context, offset int64, limit int) ([]byte, error) {
	for {
		o.mu.Lock()
		end := o.start + int64(len(o.buf))
		switch {
		case offset < 0 || offset > end && o.over:
			o.mu.Unlock()
			return nil, invalid("the stream has no offset %d: it has %d bytes", offset, end)
		case offset < o.start:
			o.mu.Unlock()
			return nil, &Gone{o.start}
		case offset < end:
			b := o.buf[offset-o.start:]
			b = append([]byte(nil), b[:min(len(b), limit)]...)
			o.mu.Unlock()
			return b, nil
		case o.over:
			o.mu.Unlock()
			return nil, nil
		}
		more := o.more
		o.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
