package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// splice proxies a TLS connection without opening it. hello is what the guest has sent so far.
func (c *conn) splice(hello []byte) string {
	peer, err := c.dial(c.ctx)
	if err != nil {
		sayAlert(c.guest, alertInternalError)
		return unreached(err)
	}
	if err := (greeting{c, peer.TCPConn}).exchange(hello); err != nil {
		no := asRefusal(err, func(error) *refusal { return failed("the connection ended within the first TLS messages") })
		sayAlert(c.guest, no.alert)
		return no.reason
	}
	out := make(chan struct{})
	go func() {
		defer close(out)
		defer c.survive()
		c.life.pass(peer.TCPConn, c.guest)
	}()
	c.life.pass(c.guest, peer.TCPConn)
	<-out
	return ""
}

// unreached returns why no peer was reached.
func unreached(err error) string {
	var no *refusal
	var op *net.OpError
	switch {
	case errors.As(err, &no):
		return no.reason
	case timedOut(err):
		return "no address of the name answered in time"
	case errors.As(err, &op):
		return fmt.Sprintf("no address of the name could be reached: %v", op.Err)
	}
	return "no address of the name could be reached"
}

func timedOut(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// The parts of a ServerHello (RFC 8446, section 4.1.3) that the gateway parses.
const (
	serverHelloType = 2
	serverHelloHead = 4 + 2 + randomSize // up to the random value
)

// retryRandom returns the random value that marks a HelloRetryRequest.
func retryRandom() []byte {
	return []byte("\xcf\x21\xad\x74\xe5\x9a\x61\x11\xbe\x1d\x8c\x02\x1e\x65\xb8\x91\xc2\xa2\x11\x16\x7a\xbb\x8c\x5e\x07\x9e\x09\xe2\xc8\xa8\x33\x9c")
}

// greeting is the start of TLS between the guest and a peer.
type greeting struct {
	c    *conn
	peer *net.TCPConn
}

// exchange passes on the ClientHello and the server's first message. If that is a HelloRetryRequest the client sends
// another ClientHello. Not all servers check that its name is the same, so it is checked like the first.
func (g greeting) exchange(hello []byte) error {
	limit := time.Now().Add(g.c.g.limits.Dial)
	for _, s := range []*net.TCPConn{g.peer, g.c.guest} {
		_ = s.SetDeadline(limit) // a socket without deadlines fails when it is used
		defer s.SetDeadline(time.Time{})
	}
	if _, err := g.peer.Write(hello); err != nil {
		return err
	}
	answer, retry, err := readServerHello(g.peer)
	if _, e := g.c.guest.Write(answer); e != nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.Join(err, e)
	}
	if !retry {
		return nil // also when the server ended, which the caller detects too
	}
	again, err := g.secondHello()
	if err != nil {
		return err
	}
	_, err = g.peer.Write(again)
	return err
}

// readServerHello reads records until it is clear whether they are a HelloRetryRequest. Other data of the host is not
// checked.
func readServerHello(peer *net.TCPConn) (raw []byte, retry bool, err error) {
	var message []byte
	for len(message) < serverHelloHead {
		at := len(raw)
		if raw, err = readRecord(peer, raw, at, recordPayload); err != nil {
			return raw, false, err
		}
		if raw[at] != typeHandshake || len(raw) == at+recordHeader {
			return raw, false, nil
		}
		if message = append(message, raw[at+recordHeader:]...); message[0] != serverHelloType {
			return raw, false, nil
		}
	}
	return raw, bytes.Equal(message[serverHelloHead-randomSize:serverHelloHead], retryRandom()), nil
}

// maxEarly bounds the early data that can precede the second ClientHello, after the server has rejected it with its
// HelloRetryRequest.
const maxEarly = 64 << 10

// secondHello passes on what may precede the second ClientHello, and returns that after checking it.
func (g greeting) secondHello() ([]byte, error) {
	for passed := 0; passed <= maxEarly; {
		raw, err := readRecord(g.c.guest, nil, 0, recordPayload+256)
		if err != nil {
			return nil, err
		}
		switch raw[0] {
		case typeHandshake:
			h, raw, err := readHello(g.c.guest, raw)
			if err != nil {
				return nil, err
			}
			if no := h.check(g.c.to.name, false); no != nil {
				return nil, &refusal{no.status, no.alert, "in its second ClientHello " + no.reason}
			}
			if found := g.c.to.find(raw, h.name); len(found) > 0 {
				g.c.presentAll(found, "second ClientHello")
				return nil, denied("the secret %s is in the second ClientHello", found[0])
			}
			return raw, nil
		case typeChangeCipherSpec, typeApplicationData:
			if _, err := g.peer.Write(raw); err != nil {
				return nil, err
			}
			passed += len(raw)
		default:
			return nil, malformed("a TLS record of type %d where the second ClientHello should be", raw[0])
		}
	}
	return nil, malformed("more than %d bytes before the second ClientHello", maxEarly)
}
