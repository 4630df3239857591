package gateway

import (
	"bufio"
	"bytes"
	"net/http"
	"strconv"
)

// ends finds where each response ends in the data of an HTTP/1 connection. It agrees with net/http's client on all
// responses that the client accepts; the result for others is unspecified. The zero value expects no response. It is not
// safe for concurrent use.
//
//	nowhere -> inHead -> inSize -> inChunk -> inSize ... -> inTrailer -> nowhere
//	             |\----> inBody ---------------------------------------> nowhere
//	             |\----> nowhere, where there is no body
//	              \----> inRest, which ends with the connection
type ends struct {
	at     place
	method string // of the request
	head   []byte // so far
	line   []byte // the unfinished line, without what precedes it
	left   int64  // of the body, or of the chunk and its CRLF
}

// place is the part of a response to which the next byte belongs.
type place int

const (
	nowhere place = iota // no response is expected
	inHead
	inBody
	inSize // the line before a chunk
	inChunk
	inTrailer
	inRest
)

// expect records that a request was sent and its response is expected.
func (e *ends) expect(method string) { *e = ends{at: inHead, method: method} }

// take processes p, and returns how many of its bytes belong to the expected response.
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

// next leaves a body or a chunk.
func (e *ends) next() {
	if e.at == inChunk {
		e.at = inSize
	} else {
		e.at = nowhere
	}
}

// lines continues within a line, at most to its end.
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
		e.at = inRest // the client gives up before this
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

// endOfHead uses net/http to determine what follows.
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

// chunk parses the line before a chunk.
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
