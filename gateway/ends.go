package gateway

import (
	"bufio"
	"bytes"
	"net/http"
	"strconv"
)

// ends finds where each answer ends in what a host sends on a connection of HTTP/1. It agrees with
// net/http's client on every answer that the client takes whole; of others it may say anything. The
// zero value waits for no answer. It is not safe for concurrent use.
//
//	nowhere -> inHead -> inSize -> inChunk -> inSize ... -> inTrailer -> nowhere
//	             |\----> inBody ---------------------------------------> nowhere
//	             |\----> nowhere, where there is no body
//	              \----> inRest, which ends with the connection
type ends struct {
	at     place
	method string // of the request that is answered
	head   []byte // as far as it came
	line   []byte // the one that has not ended yet, without what stands before it
	left   int64  // of the body; of the chunk and the CRLF after it
}

// place is where in an answer the next byte stands.
type place int

const (
	nowhere place = iota // no answer is due
	inHead
	inBody
	inSize // the line before a chunk
	inChunk
	inTrailer
	inRest
)

// expect records that a request was sent, and that its answer is due.
func (e *ends) expect(method string) { *e = ends{at: inHead, method: method} }

// take goes on by p, and returns how many of its bytes belong to the answer that is due.
func (e *ends) take(p []byte) (own int) {
	for own < len(p) {
		switch e.at {
		case nowhere:
			return own
		case inRest:
			return len(p)
		case inBody, inChunk:
			n := min(e.left, int64(len(p)-own))
			own += int(n)
			if e.left -= n; e.left == 0 {
				e.next()
			}
		default:
			own += e.lines(p[own:])
		}
	}
	return own
}

// next leaves a body, or a chunk.
func (e *ends) next() {
	if e.at == inChunk {
		e.at = inSize
	} else {
		e.at = nowhere
	}
}

// lines goes on within a line, at most to its end.
func (e *ends) lines(p []byte) (own int) {
	own = bytes.IndexByte(p, '\n') + 1
	ended := own > 0
	if !ended {
		own = len(p)
	}
	e.line = append(e.line, p[:own]...)
	if e.at == inHead {
		e.head = append(e.head, p[:own]...)
	}
	if len(e.head) > maxAnswerHead || len(e.line) > maxAnswerHead {
		e.at = inRest // the client gives up before
	}
	if ended {
		line := bytes.TrimSuffix(e.line[:len(e.line)-1], []byte("\r"))
		e.line = e.line[:0]
		e.endOfLine(line)
	}
	return own
}

func (e *ends) endOfLine(line []byte) {
	switch {
	case e.at == inSize:
		e.chunk(line)
	case e.at == inTrailer && len(line) == 0:
		e.at = nowhere
	case e.at == inHead && len(line) == 0:
		e.endOfHead()
	}
}

// endOfHead asks the client's own library what follows.
func (e *ends) endOfHead() {
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(e.head)), &http.Request{Method: e.method})
	e.head = nil
	switch {
	case err != nil:
		e.at = inRest
	case resp.StatusCode == http.StatusSwitchingProtocols:
		e.at = inRest
	case resp.StatusCode >= 100 && resp.StatusCode < 200: // another one follows
	case resp.Body == http.NoBody:
		e.at = nowhere
	case len(resp.TransferEncoding) > 0:
		e.at = inSize
	case resp.ContentLength > 0:
		e.at, e.left = inBody, resp.ContentLength
	default:
		e.at = inRest
	}
}

// chunk reads the line before a chunk.
func (e *ends) chunk(line []byte) {
	digits, _, _ := bytes.Cut(line, []byte(";"))
	size, err := strconv.ParseInt(string(bytes.TrimRight(digits, " \t")), 16, 63)
	switch {
	case err != nil || size < 0:
		e.at = inRest
	case size == 0:
		e.at = inTrailer
	default:
		e.at, e.left = inChunk, size+2
	}
}
