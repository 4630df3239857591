package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// maxDrain is how much of a body that no one wanted is read, to use its connection again.
const maxDrain = 256 << 10

// http1 serves the requests of one connection of HTTP/1, one after the other.
//
//	waiting for a request -> head -> body and answer -> waiting, or the end
type http1 struct {
	*exchanger
	guest  *guestConn    // for deadlines
	stream net.Conn      // the same, or TLS over it
	r      *bufio.Reader // of the stream
	w      *bufio.Writer
	no     *refusal // what every request is answered with; nil: each is decided on
}

// serveHTTP1 serves HTTP/1 in the clear.
func (c *conn) serveHTTP1(guest *guestConn, scheme string, no *refusal) string {
	x := newExchanger(c, scheme, false)
	defer x.close()
	return (&http1{exchanger: x, guest: guest, stream: guest, no: no}).serve()
}

// serve returns why the connection ended, where there is more to say than that it did.
func (s *http1) serve() string {
	s.r, s.w = bufio.NewReader(s.stream), bufio.NewWriter(s.stream)
	for {
		h, err := s.next()
		if err != nil {
			return s.unread(err)
		}
		again, why := s.one(h)
		if !again {
			return why
		}
	}
}

// next waits for a request and reads its head. An error that is no refusal
// means that the guest has ended, or waited too long.
func (s *http1) next() (*head, error) {
	s.guest.within(s.conn.g.limits.KeepAlive)
	if _, err := s.r.Peek(1); err != nil {
		return nil, err
	}
	s.guest.within(s.conn.g.limits.Head)
	raw, err := readHeadBytes(s.r)
	if err != nil {
		var no *refusal
		if !errors.As(err, &no) {
			err = &refusal{http.StatusRequestTimeout, alertDecodeError, "the request's head did not come whole and in time"}
		}
		return nil, err
	}
	return parseHead(raw)
}

// unread answers a request that could not be read, after which nothing can be.
func (s *http1) unread(err error) string {
	var no *refusal
	if !errors.As(err, &no) {
		return ""
	}
	if s.no != nil {
		no = s.no
	}
	a := &answer{w: s.w, header: http.Header{}, minor: 1, last: true}
	s.refuse(a, &ask{proto: "HTTP/1.1"}, s.conn.to.verdict(), no)
	_ = a.finish() // the guest may be gone
	s.part()
	return no.reason
}

// part ends our side in order, so that the guest can read our last words.
func (s *http1) part() {
	if t, ok := s.stream.(*tls.Conn); ok {
		_ = t.CloseWrite() // the guest may be gone
	}
	linger(s.conn.guest)
}

// one serves one request and reports whether another can follow.
func (s *http1) one(h *head) (again bool, why string) {
	ctx, cancel := context.WithCancel(s.conn.ctx)
	defer cancel()
	b := newBody(s.r, h.length)
	a := &answer{w: s.w, header: http.Header{}, head: h.method == http.MethodHead, minor: h.minor, last: h.lastOne() || s.no != nil}
	expects := h.header.Get("Expect") != ""
	if expects {
		b.begin = a.goOn
	}
	s.guest.each(s.conn.g.limits.Stall)
	unwatch := s.watch(b, cancel)
	err := s.exchange(ctx, a, &ask{
		proto: "HTTP/1." + string(rune('0'+h.minor)), method: h.method, target: h.target, host: h.host,
		header: h.header, length: h.length, body: b, no: s.no,
	})
	if err != nil {
		unwatch()
		reset(s.conn.guest)
		return false, brokenOff(err)
	}
	err = a.finish()
	if !b.taken.Load() && (b.begun.Load() || !expects) {
		s.guest.within(time.Second)
		b.drain(maxDrain)
	}
	whole := b.whole.Load()
	unwatch()
	if err != nil {
		reset(s.conn.guest)
		return false, "the answer could not be passed on whole"
	}
	if again = whole && !a.last; !again {
		s.part()
	}
	return again, ""
}

// brokenOff returns why an exchange was the connection's last. A library's error can quote what the host sent, a
// credential for instance: such text must not enter the record.
func brokenOff(err error) string {
	var no *refusal
	if errors.As(err, &no) {
		return no.reason
	}
	return "an exchange broke off before its end"
}

// watch calls gone when the guest goes away while it waits for its answer. It
// begins to look when the body was read, since the next byte then is of another
// request. The function that it returns ends it and waits for its end.
//
// In the clear, the end of what the guest sends does not mean that it has gone: it may have ended its side and
// wait (RFC 9112, section 9.6). Inside TLS no one does that.
func (s *http1) watch(b *body, gone func()) (unwatch func()) {
	stop, whole := make(chan struct{}), make(chan struct{})
	b.end = func() { close(whole) }
	if b.whole.Load() {
		close(whole)
	}
	var looking sync.WaitGroup
	looking.Go(func() {
		select {
		case <-stop:
			return
		case <-whole:
		}
		s.guest.within(0)
		_, err := s.r.Peek(1)
		if inTheClear := s.stream == net.Conn(s.guest); errors.Is(err, io.EOF) && inTheClear && waits(s.conn.guest, stop) {
			return
		}
		if err != nil {
			gone()
		}
	})
	return func() {
		close(stop)
		s.guest.interrupt()
		looking.Wait()
		s.guest.resume()
	}
}

// waits watches a guest that has ended its side, until stop, and reports whether it was there all along. The
// kernel of one that has gone ends the connection when something is sent to it, or when the kernel's patience
// with what is left of it is over: a minute.
func waits(guest *net.TCPConn, stop <-chan struct{}) bool {
	_ = guest.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}) // or it is not seen
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		select {
		case <-stop:
			return true
		case <-again.C:
			if tcpState(guest) == tcpClosed {
				return false
			}
		}
	}
}

// lastOne reports whether the client wants the connection to end after this request.
func (h *head) lastOne() bool {
	last := h.minor == 0
	for _, option := range options(h.header["Connection"]) {
		switch option {
		case "close":
			return true
		case "keep-alive":
			last = false
		}
	}
	return last
}

// options returns the words of a list over several fields, in small letters.
func options(fields []string) []string {
	var list []string
	for _, f := range fields {
		for word := range strings.SplitSeq(f, ",") {
			if word = strings.ToLower(strings.Trim(word, " \t")); word != "" {
				list = append(list, word)
			}
		}
	}
	return list
}

// drain reads up to n bytes of a body that no one wanted, so that the
// connection can be used again.
func (b *body) drain(n int64) {
	p := make([]byte, 4<<10)
	for limit := time.Now().Add(time.Second); n > 0 && time.Now().Before(limit); {
		got, err := b.Read(p)
		if err != nil {
			return
		}
		n -= int64(got)
	}
}
