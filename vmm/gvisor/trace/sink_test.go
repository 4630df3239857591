package trace

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// dial returns the sentry's end of a new connection, after its handshake, and the host's.
func dial(t *testing.T, handshake []byte) (*net.UnixConn, *Stream, error) {
	t.Helper()
	at := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "sink"), Net: "unixpacket"}
	l, err := net.ListenUnix("unixpacket", at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sentry, err := net.DialUnix("unixpacket", nil, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sentry.Close() })
	if handshake == nil {
		sentry.Close()
	} else if _, err := sentry.Write(handshake); err != nil {
		t.Fatal(err)
	}
	host, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	err = Enlarge(host)
	if handshake == nil {
		err = nil // there is no peer any more
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := Accept(host)
	if err != nil {
		host.Close()
		return sentry, nil, err
	}
	t.Cleanup(func() { s.Close() })
	answer := make([]byte, 100)
	if n, err := sentry.Read(answer); err != nil || string(answer[:n]) != string(number(nil, 1, Version)) {
		t.Fatalf("the answer to the handshake: %x, %v", answer[:n], err)
	}
	return sentry, s, nil
}

func connected(t *testing.T) (*net.UnixConn, *Stream) {
	t.Helper()
	sentry, s, err := dial(t, number(nil, 1, Version))
	if err != nil {
		t.Fatal(err)
	}
	return sentry, s
}

func TestHandshake(t *testing.T) {
	for name, tc := range map[string]struct {
		handshake []byte
		says      string
	}{
		"garbage":            {[]byte("\xff\xff\xff"), "handshake"},
		"an earlier version": {number(nil, 1, 0), "version 0"},
		"no version":         {text(nil, 2, "x"), "version 0"},
		"it has closed":      {nil, "read the handshake"},
	} {
		if _, _, err := dial(t, tc.handshake); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := dial(t, text(number(nil, 1, Version+1), 7, "later")); err != nil {
		t.Errorf("a later version: %v", err)
	}
}

// A message with all arguments that Linux takes fits into the buffer of the sender, which is 200 KiB by default.
func TestMessageSizes(t *testing.T) {
	for _, size := range []int{1, 250 << 10, 2 << 20} {
		sentry, s := connected(t)
		wrote := make(chan error, 1)
		go func() {
			_, err := sentry.Write(packet(typeExec, 0, func(b []byte) []byte { return text(b, 3, strings.Repeat("x", size)) }))
			sentry.Close()
			wrote <- err
		}()
		got := 0
		err := s.Read(func(m Message) error { got = len(m.Exec.Argv[0]); return nil })
		if werr := <-wrote; werr != nil || err != nil || got != size {
			t.Errorf("%d bytes: %d arrived, %v, %v", size, got, werr, err)
		}
	}
}

func TestReadGarbage(t *testing.T) {
	sentry, s := connected(t)
	if _, err := sentry.Write([]byte("garbage, and more of it")); err != nil {
		t.Fatal(err)
	}
	if err := s.Read(func(Message) error { return errors.New("called") }); err == nil || !strings.Contains(err.Error(), "trace message") {
		t.Errorf("garbage: %v", err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Errorf("Flush after the end: %v", err)
	}
	sentry.SetReadDeadline(time.Now().Add(time.Second))
	if n, err := sentry.Read(make([]byte, 1)); n != 0 || isTimeout(err) {
		t.Errorf("the connection is open after garbage: %v", err)
	}
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// Flush waits until all messages of a flood have been handled, but not for a peer that only hangs.
func TestFlush(t *testing.T) {
	sentry, s := connected(t)
	const flood = 20000
	handled := 0 // guarded by the order of Read and Flush
	ended := make(chan error, 1)
	goOn := make(chan struct{})
	go func() {
		ended <- s.Read(func(Message) error { <-goOn; handled++; return nil })
	}()
	if err := s.Flush(t.Context()); err != nil {
		t.Errorf("Flush while the peer hangs: %v", err)
	}
	if _, err := sentry.Write(packet(typeExit, 0, nil)); err != nil {
		t.Fatal(err)
	}
	limited, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Flush(limited); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Flush while the handler is blocked: %v", err)
	}
	close(goOn)
	for range flood - 1 { // more than the socket holds: the sender waits for the reader
		if _, err := sentry.Write(packet(typeExit, 0, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(t.Context()); err != nil || handled != flood {
		t.Errorf("after Flush %d of %d messages have been handled, %v", handled, flood, err)
	}
	sentry.Close()
	if err := <-ended; err != nil {
		t.Errorf("the end of the stream: %v", err)
	}
}

// An error of the handler ends the stream, and Close ends Read.
func TestEndOfRead(t *testing.T) {
	sentry, s := connected(t)
	if _, err := sentry.Write(packet(typeExit, 0, nil)); err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	if err := s.Read(func(Message) error { return full }); err != full {
		t.Errorf("Read: %v", err)
	}
	_, s = connected(t)
	ended := make(chan error, 1)
	go func() { ended <- s.Read(func(Message) error { return nil }) }()
	if err := s.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	s.Close()
	if err := <-ended; err != nil {
		t.Errorf("Read after Close: %v", err)
	}
}
