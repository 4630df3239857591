package serve

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener for connections within the test.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) { return <-p, nil }
func (p pipes) Close() error              { return nil }
func (p pipes) Addr() net.Addr            { return nil }

// TestCloseWhenIdle: stop is called only after no connection has been open for the whole time.
func TestCloseWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := false
		accept := make(pipes, 2)
		l := closeWhenIdle(accept, time.Hour, func() { stopped = true })
		wait := func(d time.Duration, want bool) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if stopped != want {
				t.Fatalf("stopped: %v", stopped)
			}
		}
		connect := func() net.Conn {
			t.Helper()
			one, _ := net.Pipe()
			accept <- one
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		wait(59*time.Minute, false)
		first, second := connect(), connect()
		wait(3*time.Hour, false)
		first.Close()
		first.Close() // counts once
		wait(3*time.Hour, false)
		second.Close()
		wait(59*time.Minute, false)
		third := connect()
		wait(3*time.Hour, false)
		third.Close()
		wait(61*time.Minute, true)
	})
}

// TestClosedIsNotIdle: connections that end after the listener was closed start no timer.
func TestClosedIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := false
		accept := make(pipes, 1)
		l := closeWhenIdle(accept, time.Hour, func() { stopped = true })
		one, _ := net.Pipe()
		accept <- one
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		c.Close()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if stopped {
			t.Error("stop was called after Close")
		}
	})
}

// TestNeverIdle: without a time the listener is used as it is.
func TestNeverIdle(t *testing.T) {
	l := make(pipes)
	if got := closeWhenIdle(l, 0, nil); got != net.Listener(l) {
		t.Errorf("%T", got)
	}
}
