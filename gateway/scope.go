package gateway

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/custody-project/custody/secrets"
)

// piece is a part of a request that can contain a secret.
type piece struct{ where, text string }

// pieces returns the parts of a request's head, unchanged and with percent escapes undone, since only some letters may
// be escaped.
func (q *ask) pieces() []piece {
	list := []piece{{"method", q.method}, {"path or query", q.target}, {"host", q.host}}
	if once := unescape(q.target); once != q.target {
		list = append(list, piece{"path or query", once}, piece{"path or query", unescape(once)})
	}
	for name, values := range q.header {
		where := "header " + shorten(name)
		list = append(list, piece{"the name of a header", name})
		for _, v := range values {
			list = append(list, piece{where, v})
			if plain := unescape(v); plain != v {
				list = append(list, piece{where, plain})
			}
		}
	}
	return list
}

// unescape undoes the valid percent escapes in s.
func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			hi, ok1 := hexDigit(s[i+1])
			lo, ok2 := hexDigit(s[i+2])
			if ok1 && ok2 {
				out = append(out, hi<<4|lo)
				i += 2
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}

// scope decides which of the sandbox's secrets a request may contain.
type scope struct {
	of Credentials // nil: there are none
	f  *flight

	mu    sync.Mutex          // guards asked: another goroutine reads the body
	asked map[string]*refusal // the secrets that were found, and the reason if one is not allowed
}

// head searches a request's head for secrets, and returns why the request is denied.
func (s *scope) head(q *ask) (no *refusal) {
	if s.of == nil {
		return nil
	}
	list := q.pieces()
	var all strings.Builder
	for _, p := range list {
		all.WriteString(p.text)
		all.WriteByte(0) // no match extends across it
	}
	if len(s.of.Find([]byte(all.String()))) == 0 {
		return nil
	}
	for _, p := range list {
		if why := s.judge(s.of.Find([]byte(p.text)), p.where); why != nil && no == nil {
			no = why // continue, as in judge
		}
	}
	return no
}

// judge returns why a request that contains some secrets is denied.
func (s *scope) judge(names []string, where string) (no *refusal) {
	for _, name := range names {
		if why := s.verdict(name, where); no == nil {
			no = why // continue: each secret is reported
		}
	}
	return no
}

// verdict returns why a request that contains a secret is denied. A placeholder that is sent to its own host is
// harmless, and is replaced only in its header.
func (s *scope) verdict(name, where string) *refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	no, known := s.asked[name]
	if known {
		return no
	}
	c := s.f.x.conn
	switch home := slices.Contains(c.to.credentials(), name); {
	case home && s.f.x.scheme != "https":
		no = denied("the secret %s is in the request (%s) and is for TLS only", name, where)
	case !home && !c.present(name, where):
		no = denied("the secret %s is in the request (%s) and is not for %s", name, where, c.to.name)
	}
	s.asked[name] = no
	return no
}

// present reports that the guest is about to send a secret to the connection's host, and returns whether it may. The
// consequences outlast the connection.
func (c *conn) present(name, where string) bool {
	ctx, cancel := lastWords(c.ctx)
	defer cancel()
	c.life.mu.Lock()
	seq := c.life.shown
	c.life.mu.Unlock()
	return c.g.cfg.Credentials.Presented(ctx, name, c.to.name, where, seq)
}

// presentOwn reports that the guest used a placeholder without a current credential.
func (f *flight) presentOwn(name string) {
	f.scope.mu.Lock()
	_, sent := f.scope.asked[name]
	f.scope.mu.Unlock()
	if sent {
		f.x.conn.present(name, "its placeholder, while it cannot be used")
	}
}

// presentAll reports the secrets for which a connection was denied.
func (c *conn) presentAll(found []string, where string) {
	for _, name := range found {
		c.present(name, where)
	}
}

// outward is the body of an outgoing request. It holds back bytes that could begin a secret's value or placeholder until
// it is clear that they do not, or that the secret is allowed: the end of one that is not is never sent.
//
//	read ->  | may go | may begin a value | -> call, watch
//	         0      ready                len(raw)
type outward struct {
	inner io.ReadCloser
	f     *flight
	watch *secrets.Watch // nil: there is nothing to search for
	raw   []byte         // read and not yet passed on
	ready int            // the number of bytes of raw that may be sent
	err   error          // after raw
}

// outward wraps a request's body to search it.
func (f *flight) outward(body io.ReadCloser) io.ReadCloser {
	o := &outward{inner: body, f: f}
	if f.scope.of != nil {
		o.watch = f.scope.of.Watch()
	}
	if o.watch == nil && f.call == nil {
		return body
	}
	return o
}

// Read implements io.Reader.
func (o *outward) Read(p []byte) (int, error) {
	for o.ready == 0 {
		if o.err != nil {
			return 0, o.err
		}
		o.fill()
	}
	n := copy(p, o.raw[:o.ready])
	o.ready -= n
	o.raw = o.raw[:copy(o.raw, o.raw[n:])]
	return n, nil
}

// Close implements io.Closer.
func (o *outward) Close() error { return o.inner.Close() }

const pieceSize = 16 << 10

// fill reads and searches the next piece. It runs in a goroutine of the transport, in which a panic would end the
// process: data that cannot be searched is not sent.
func (o *outward) fill() {
	defer func() {
		if recover() != nil {
			o.refuse(failed("the request's body could not be searched for secrets"))
		}
	}()
	at := len(o.raw)
	o.raw = slices.Grow(o.raw, pieceSize)
	n, err := o.inner.Read(o.raw[at : at+pieceSize])
	o.raw, o.err = o.raw[:at+n], err
	o.f.asked(o.raw[at:])
	o.ready = len(o.raw)
	if o.watch == nil {
		return
	}
	found, held := o.watch.Write(o.raw[at:])
	if o.ready -= held; errors.Is(err, io.EOF) {
		found, o.ready = append(found, o.watch.End()...), len(o.raw)
	}
	for _, text := range found {
		if no := o.f.scope.judge(o.f.scope.of.Find(text), "body"); no != nil {
			o.refuse(no)
			return
		}
	}
}

func (o *outward) refuse(no *refusal) {
	o.raw, o.ready, o.err = nil, 0, no
	o.f.stop(no)
}
