package fleet

import (
	"context"
	"fmt"
	"sync"
)

// kept is how much of the end of an output is in memory, in bytes. The record has what is older, up to the project's record.output.
const kept = 1 << 20

// Output is what a process has written to one stream, redacted, with offsets as in the record. It is safe for concurrent use.
type Output struct {
	mu    sync.Mutex // guards the fields below
	buf   []byte     // the end of the stream
	start int64      // offset of buf
	over  bool
	more  chan struct{} // closed and replaced when there is more, or the stream has ended
}

func newOutput() *Output { return &Output{more: make(chan struct{})} }

// Write implements io.Writer. It does not wait for readers.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = append(o.buf, b...)
	if drop := len(o.buf) - kept; drop > 0 && len(o.buf) > 2*kept { // half of the time nothing is moved
		o.buf = append(o.buf[:0], o.buf[drop:]...)
		o.start += int64(drop)
	}
	o.wake()
	return len(b), nil
}

func (o *Output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	o.wake()
}

func (o *Output) wake() {
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
