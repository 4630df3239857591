package worker

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/privsep"
)

// owner keeps an account of 100 tokens. Other methods of Events are not called.
type owner struct {
	Events
	charges chan int64
}

// Charge implements Events.
func (o *owner) Charge(tokens int64) (why string, until time.Time) {
	o.charges <- tokens
	if tokens >= 100 {
		return "no tokens are left today", time.Now().Add(time.Hour)
	}
	return "", time.Time{}
}

// pair returns the ends of a connection, which run until the test ends.
func pair(t *testing.T, handlers map[string]privsep.Handler) *privsep.Conn {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*privsep.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		ends[i] = privsep.New(c.(*net.UnixConn), handlers)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = ends[i].Run(context.Background())
		}()
		t.Cleanup(func() { ends[i].Close(); <-ended })
	}
	return ends[0]
}

// TestAccount: tokens reach the owner of the run once, at the latest with the next question or the end, and its answer denies calls.
func TestAccount(t *testing.T) {
	o := &owner{charges: make(chan int64, 100)}
	r := newReports(pair(t, eventHandlers(o, func() []error { return nil })), func() uint64 { return 0 })
	a := r.account
	a.Charge(40)
	if err := a.Ask(t.Context()); err != nil {
		t.Error(err)
	}
	a.Charge(150)
	r.close()
	if err := a.Spent(); err == nil || err.Error() != "no tokens are left today" {
		t.Errorf("calls are not denied: %v", err)
	}
	close(o.charges)
	sum := int64(0)
	for tokens := range o.charges {
		sum += tokens
	}
	if sum != 190 {
		t.Errorf("the owner got %d tokens in place of 190", sum)
	}
}
