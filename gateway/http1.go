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

// maxDrain bounds the rest of a body that is read so that its connection can be reused.
const maxDrain = 256 << 10

// http1 serves the requests of one HTTP/1 connection sequentially.
//
//	waiting for a request -> head -> body and answer -> waiting, or the end
type http1 struct {
	*exchanger
	guest  *guestConn    // to set deadlines
	stream net.Conn      // the same connection, or TLS over it
	r      *bufio.Reader // reads from stream
	w      *bufio.Writer
	no     *refusal // the response to every request; nil: each is decided on
}

// serveHTTP1 serves HTTP/1 without TLS.
func (c *conn) serveHTTP1(guest *guestConn, scheme string, no *refusal) string {
	x := newExchanger(c, scheme, false)
	defer x.close()
	return (&http1{exchanger: x, guest: guest, stream: guest, no: no}).serve()
}

// serve returns the reason why the connection ended, if there is a specific one.
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

// next waits for a request and reads its head. An error that is not a refusal means that the guest has closed the
// connection or was idle for too long.
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
			err = &refusal{http.StatusRequestTimeout, alertDecodeError, "the request's head did not arrive in time"}
		}
		return nil, err
	}
	return parseHead(raw)
}

// unread responds to a request that could not be parsed, after which the connection ends.
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
	_ = a.finish() // the guest may have disconnected
	s.part()
	return no.reason
}

// part closes the gateway's side of the connection first, so that the guest can read the response.
func (s *http1) part() {
	if t, ok := s.stream.(*tls.Conn); ok {
		_ = t.CloseWrite() // the guest may have disconnected
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
		b.begin = a.continueBody
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
		return false, "the answer could not be passed on completely"
	}
	if again = whole && !a.last; !again {
		s.part()
	}
	return again, ""
}

// brokenOff returns why an exchange was the connection's last. An error of a library can quote data of the host, such as
// a credential: it must not be recorded.
func brokenOff(err error) string {
	var no *refusal
	if errors.As(err, &no) {
		return no.reason
	}
	return "an exchange was incomplete"
}

// watch calls gone when the guest disconnects while it waits for its response. It starts to watch after the body was
// read, since the next byte then belongs to another request. The function that it returns stops the watch and waits for
// its end.
//
// Without TLS, the end of the guest's data does not mean that it has disconnected: it may have closed only its side (RFC
// 9112, section 9.6). With TLS no client does that.
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

// waits watches a guest that has closed its side, until stop, and reports whether it stayed connected. The kernel of a
// guest that has disconnected ends the connection when data is sent to it, or a minute after the guest closed it.
func waits(guest *net.TCPConn, stop <-chan struct{}) bool {
	_ = guest.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}) // without keep-alive the end is not detected
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

// lastOne reports whether the client wants to close the connection after this request.
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

// options returns the words of a list over several fields, in lower case.
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

// drain reads up to n bytes of the rest of a body, so that the connection can be reused.
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
