package channel

import (
	"encoding/binary"
	"io"
	"sync"

	"github.com/custody-project/custody/guest/erase"
)

// combined collects writes during an active one and passes them on
// together. yamux writes each header and each body separately; a virtio-serial
// port stops the VM for every write, which costs far more than the copy.
//
// It holds at most combineMax bytes; a Write that finds it full waits. The
// first error of the underlying writer is returned by every later Write.
//
// Steps print what they should not, and a snapshot may be taken of the guest
// later. So whatever has been written is zeroed here, and in yamux, which makes
// a copy of each body for itself and hands us that. The registers of either
// copy are cleared before the goroutine may wait.
type combined struct {
	io.ReadWriteCloser
	mu     sync.Mutex // guards the fields below
	change *sync.Cond // of any of them
	buf    []byte
	spare  []byte // the buffer that is not in use, all zero
	head   bool   // the last Write was the header of a frame with a body
	err    error
	busy   bool // a goroutine is writing and will check buf again
	closed bool
}

const combineMax = 256 << 10

func combine(conn io.ReadWriteCloser) *combined {
	c := &combined{ReadWriteCloser: conn}
	c.change = sync.NewCond(&c.mu)
	return c
}

// Write implements io.Writer. It returns when the bytes are queued, not yet written.
func (c *combined) Write(p []byte) (int, error) {
	erase.Vectors()
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.buf) > 0 && len(c.buf)+len(p) > combineMax && c.err == nil && !c.closed {
		c.change.Wait()
	}
	if c.closed {
		return 0, io.ErrClosedPipe
	}
	if c.err != nil {
		return 0, c.err
	}
	c.buf = appendOnly(c.buf, p)
	erase.Vectors()
	c.wipeBody(p)
	if !c.busy {
		c.busy = true
		go c.flush()
	}
	return len(p), nil
}

// wipeBody zeroes p if it is the body of a frame. Headers belong to yamux's streams, which reuse them.
func (c *combined) wipeBody(p []byte) {
	if c.head {
		c.head = false
		clear(p)
		return
	}
	c.head = len(p) == frameHead && p[1] == typeData && binary.BigEndian.Uint32(p[8:]) > 0
}

// appendOnly is append, but zeroes the old array if it has to grow.
func appendOnly(b, p []byte) []byte {
	if len(p) > cap(b)-len(b) {
		grown := append(make([]byte, 0, max(4096, 2*cap(b), len(b)+len(p))), b...)
		clear(b)
		b = grown
	}
	return append(b, p...)
}

// flush writes until nothing is left. Close waits for it.
func (c *combined) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.buf) > 0 && c.err == nil && !c.closed {
		out := c.buf
		c.buf, c.spare = c.spare, nil
		c.change.Broadcast()
		c.mu.Unlock()
		_, err := c.ReadWriteCloser.Write(out)
		clear(out)
		c.mu.Lock()
		c.err = err
		c.spare = out[:0]
	}
	c.busy = false
	c.change.Broadcast()
}

// settle returns when everything has been written.
func (c *combined) settle() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.busy {
		c.change.Wait()
	}
	return c.err
}

// Close closes the connection, drops what has not been written and waits for the active write.
func (c *combined) Close() error {
	c.mu.Lock()
	c.closed = true
	c.change.Broadcast()
	c.mu.Unlock()
	err := c.ReadWriteCloser.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.busy {
		c.change.Wait()
	}
	return err
}
