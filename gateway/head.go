package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// Limits of a request's head.
const (
	maxHead    = 64 << 10
	maxFields  = 256
	maxMethod  = 32
	maxLengths = 18 // digits of Content-Length: they cannot overflow
)

// head is a parsed request head (RFC 9112, sections 2 to 6). The parser rejects all that programs could parse in
// different ways.
type head struct {
	method string
	target string // as received: origin-form or absolute-form
	minor  int    // of HTTP/1
	host   string
	header http.Header // canonical names, without Host, Content-Length and Transfer-Encoding
	length int64       // of the body; -1 if it is chunked
}

// readHeadBytes reads up to and including the empty line that ends a head. Lines must end in CRLF, and the first must
// not be empty.
func readHeadBytes(r *bufio.Reader) ([]byte, error) {
	var raw []byte
	for begin := 0; ; {
		part, err := r.ReadSlice('\n')
		raw = append(raw, part...)
		if len(raw) > maxHead {
			return nil, &refusal{http.StatusRequestHeaderFieldsTooLarge, alertDecodeError, "the request's head is longer than 65536 bytes"}
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			if errors.Is(err, io.EOF) && len(raw) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		line, first := raw[begin:], begin == 0
		begin = len(raw)
		switch {
		case !bytes.HasSuffix(line, []byte("\r\n")):
			return nil, malformed("a line of the request's head ends in LF without CR")
		case first && len(line) == 2:
			return nil, malformed("an empty line before the request")
		case first: // if it is not HTTP, do not wait for more
			if err := new(head).requestLine(string(line[:len(line)-2])); err != nil {
				return nil, err
			}
		case len(line) == 2:
			return raw, nil
		}
	}
}

// parseHead parses a head that readHeadBytes returned.
func parseHead(raw []byte) (*head, error) {
	lines := strings.Split(strings.TrimSuffix(string(raw), "\r\n\r\n"), "\r\n")
	h := &head{header: http.Header{}}
	if err := h.requestLine(lines[0]); err != nil {
		return nil, err
	}
	if len(lines)-1 > maxFields {
		return nil, &refusal{http.StatusRequestHeaderFieldsTooLarge, alertDecodeError, "the request has more than 256 header fields"}
	}
	for _, line := range lines[1:] {
		name, value, err := field(line)
		if err != nil {
			return nil, err
		}
		h.header[name] = append(h.header[name], value)
	}
	if err := h.oneHost(); err != nil {
		return nil, err
	}
	return h, h.framing()
}

func (h *head) requestLine(line string) error {
	if line == "PRI * HTTP/2.0" {
		return malformed("HTTP/2 without TLS is not carried: use HTTP/1.1")
	}
	method, rest, ok1 := strings.Cut(line, " ")
	target, version, ok2 := strings.Cut(rest, " ")
	switch {
	case !ok1 || !ok2:
		return malformed("not a request line of HTTP/1: use TLS or HTTP, or give the rule mode: direct")
	case version != "HTTP/1.1" && version != "HTTP/1.0":
		return &refusal{http.StatusHTTPVersionNotSupported, alertDecodeError, "the request line does not end in HTTP/1.1 or HTTP/1.0"}
	case !goodMethod(method):
		return malformed("the request's method is not a word in capitals")
	case !goodTarget(target):
		return malformed("the request's target holds characters that a URL may not hold")
	}
	h.method, h.target, h.minor = method, target, int(version[len(version)-1]-'0')
	return nil
}

// goodMethod is stricter than RFC 9110, section 9.1: no common method has lower-case letters, and some servers treat get
// as GET.
func goodMethod(s string) bool {
	for i := range len(s) {
		if (s[i] < 'A' || s[i] > 'Z') && s[i] != '-' && s[i] != '_' {
			return false
		}
	}
	return s != "" && len(s) <= maxMethod
}

func goodTarget(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '#' {
			return false
		}
	}
	return s != ""
}

// field parses one header field (RFC 9112, section 5). A line that begins with white space would continue the previous
// one (obs-fold): it has no name, so it is rejected.
func field(line string) (name, value string, err error) {
	name, value, ok := strings.Cut(line, ":")
	if !ok || !isToken(name) {
		return "", "", malformed("a header field's name is not a token, or does not directly precede its colon")
	}
	value = strings.Trim(value, " \t")
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return "", "", malformed("a control character in a header field")
		}
	}
	return textproto.CanonicalMIMEHeaderKey(name), value, nil
}

func isToken(s string) bool {
	for i := range len(s) {
		if !isTokenByte(s[i]) {
			return false
		}
	}
	return s != ""
}

// isTokenByte reports whether c is a tchar of RFC 9110, section 5.6.2.
func isTokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

func (h *head) oneHost() error {
	hosts := h.header["Host"]
	if len(hosts) != 1 {
		return malformed("the request has %d Host fields, not one", len(hosts))
	}
	h.host = hosts[0]
	delete(h.header, "Host")
	return nil
}

// framing determines the length of the body. It rejects what RFC 9112, sections 6.1 and 6.3 allow servers to repair,
// because servers differ in that.
func (h *head) framing() error {
	codings, lengths := h.header["Transfer-Encoding"], h.header["Content-Length"]
	delete(h.header, "Transfer-Encoding")
	delete(h.header, "Content-Length")
	switch {
	case len(codings) > 0 && len(lengths) > 0:
		return malformed("the request has both Content-Length and Transfer-Encoding")
	case len(codings) > 1 || len(codings) == 1 && !strings.EqualFold(codings[0], "chunked"):
		return malformed("the request's Transfer-Encoding is not chunked, once")
	case len(codings) == 1 && h.minor == 0:
		return malformed("a request of HTTP/1.0 with Transfer-Encoding")
	case len(codings) == 1:
		h.length = -1
		return nil
	case len(lengths) == 0:
		return nil
	case len(lengths) > 1:
		return malformed("the request has more than one Content-Length")
	}
	n, ok := contentLength(lengths[0])
	if !ok {
		return malformed("the request's Content-Length is not a number")
	}
	h.length = n
	return nil
}

// contentLength parses decimal digits only.
func contentLength(s string) (int64, bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && len(s) <= maxLengths
}
