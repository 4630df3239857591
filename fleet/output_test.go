package fleet

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

// TestHold: a writer is never more than kept, and what it writes in one call, ahead of a hold, so that its reader receives everything. Once the hold
// is released, or the sandbox is to end, the writer does not wait.
func TestHold(t *testing.T) {
	for name, free := range map[string]func(h *Hold, end func()){
		"released": func(h *Hold, _ func()) { h.Release() },
		"ending":   func(_ *Hold, end func()) { end() },
	} {
		t.Run(name, func(t *testing.T) {
			ending, end := context.WithCancel(t.Context())
			defer end()
			o := newOutput(ending.Done())
			hold := o.Hold(0)
			const piece, total = 32 << 10, 8 << 20
			want := make([]byte, total)
			for i := range want {
				want[i] = byte(rand.Uint32())
			}
			written := make(chan struct{})
			go func() {
				defer close(written)
				for b := want; len(b) > 0; b = b[piece:] {
					o.Write(b[:piece])
				}
				o.end()
			}()
			var got []byte
			for len(got) < total/2 {
				b, err := o.Read(t.Context(), int64(len(got)), 1+rand.IntN(3*piece))
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, b...)
				o.mu.Lock()
				ahead, memory := o.start+int64(len(o.buf))-int64(len(got)), len(o.buf)
				o.mu.Unlock()
				if ahead > kept+4*piece || memory > 2*kept+4*piece {
					t.Fatalf("the writer is %d bytes ahead, with %d bytes in memory", ahead, memory)
				}
				hold.Move(int64(len(got)))
			}
			if !bytes.Equal(got, want[:len(got)]) {
				t.Error("the reader received something else")
			}
			select {
			case <-written:
				t.Error("the writer did not wait")
			default:
			}
			free(hold, end)
			<-written
			missing := new(Gone)
			if _, err := o.Read(t.Context(), int64(len(got)), piece); !errors.As(err, &missing) {
				t.Errorf("what was written long ago is read: %v", err)
			}
			if b, err := o.Read(t.Context(), missing.First, total); err != nil || !bytes.Equal(b, want[missing.First:]) {
				t.Errorf("%d bytes of the end, %v", len(b), err)
			}
		})
	}
}

// TestHoldBehindMemory: a hold at an offset that is not in memory any more stops the writer until its reader has caught up.
func TestHoldBehindMemory(t *testing.T) {
	o := newOutput(nil)
	b := make([]byte, kept)
	for range 4 {
		o.Write(b)
	}
	hold := o.Hold(0)
	written := make(chan struct{})
	go func() {
		defer close(written)
		o.Write(b)
	}()
	hold.Move(kept)
	hold.Move(2 * kept)
	select {
	case <-written:
		t.Error("the writer did not wait")
	case <-time.After(10 * time.Millisecond):
	}
	hold.Move(3 * kept)
	<-written
}
