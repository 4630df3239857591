package gateway

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/custody-project/custody/redact"
)

// mask takes the values of secrets out of an answer before the guest sees it.
type mask struct {
	red    *redact.Redactor // nil: the answer passes as it is
	stream *redact.Stream   // of the body
	count  int              // of what was masked
}

// ask changes the fields of a request so that its answer can be masked: whole and not encoded. Parts
// of an answer could each hold a part of a value (RFC 9110, section 14).
func (m *mask) ask(header http.Header) {
	if m.red == nil {
		return
	}
	header["Accept-Encoding"] = []string{"identity"}
	delete(header, "Range")
	delete(header, "If-Range")
	delete(header, "A-Im") // parts of another kind, RFC 3229
}

// header masks fields. One whose name holds a value is left out.
func (m *mask) header(header http.Header) {
	if m.red == nil {
		return
	}
	for name, values := range header {
		if m.text(name) != name {
			delete(header, name)
			continue
		}
		for i, v := range values {
			values[i] = m.text(v)
		}
	}
}

func (m *mask) text(s string) string {
	out := masked(m.red, s)
	if out != s {
		m.count += strings.Count(out, marker) - strings.Count(s, marker)
	}
	return out
}

// masked returns s without the values that red knows.
func masked(red *redact.Redactor, s string) string {
	stream := red.Plain()
	return string(stream.Write([]byte(s))) + string(stream.Flush())
}

// marker is how the redactor's markers begin.
const marker = "[REDACTED:"

// piece returns what may be passed on of a body, after the next piece of it.
func (m *mask) piece(p []byte) []byte {
	if m.stream == nil {
		return p
	}
	return m.counted(m.stream.Write(p))
}

// rest returns the end of a body.
func (m *mask) rest() []byte {
	if m.stream == nil {
		return nil
	}
	return m.counted(m.stream.Flush())
}

func (m *mask) counted(out []byte) []byte {
	if len(m.stream.Found()) > 0 {
		m.count += bytes.Count(out, []byte(marker))
	}
	return out
}

// body returns an answer's body as it can be masked. For an encoding that cannot be undone, the guest gets only the
// reason.
func (m *mask) body(resp *http.Response, method string) (io.Reader, *refusal) {
	if m.red == nil {
		return resp.Body, nil
	}
	if resp.StatusCode == http.StatusPartialContent || resp.StatusCode == http.StatusIMUsed {
		return nil, failed("the host sent a part of an answer, in which a secret's value could not be found: it is withheld")
	}
	m.stream = m.red.Plain()
	codings := slices.DeleteFunc(options(resp.Header["Content-Encoding"]), func(s string) bool { return s == "identity" })
	if len(codings) == 0 || bodiless(method, resp) {
		return resp.Body, nil
	}
	r, err := decode(codings, resp.Body)
	if err != nil {
		return nil, failed("the answer is encoded in a way in which a secret's value could not be found (Content-Encoding): it is withheld")
	}
	delete(resp.Header, "Content-Encoding")
	resp.ContentLength = -1
	return r, nil
}

// bodiless reports whether an answer has a header only (RFC 9112, section 6.3).
func bodiless(method string, resp *http.Response) bool {
	return method == http.MethodHead || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified || resp.ContentLength == 0
}

var errCoding = errors.New("unknown content coding")

// decode undoes a content coding (RFC 9110, section 8.4.1). It has read the first bytes
// when it returns, so that what is not in that coding is known for it.
func decode(codings []string, body io.Reader) (io.Reader, error) {
	if len(codings) != 1 {
		return nil, errCoding
	}
	var r io.Reader
	var err error
	switch codings[0] {
	case "gzip", "x-gzip":
		r, err = gzip.NewReader(body)
	case "deflate":
		r, err = inflate(body)
	default:
		err = errCoding
	}
	if err == io.EOF { // there is nothing to decode
		return bytes.NewReader(nil), nil
	}
	if err != nil {
		return nil, err
	}
	first := make([]byte, 4<<10)
	n := 0
	for n == 0 && err == nil {
		n, err = r.Read(first)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return io.MultiReader(bytes.NewReader(first[:n]), r), nil
}

// inflate reads zlib's format (RFC 1950), or what it contains: servers send both as deflate.
func inflate(body io.Reader) (io.Reader, error) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(body, head); err != nil {
		return nil, err
	}
	whole := io.MultiReader(bytes.NewReader(head), body)
	if head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
		return zlib.NewReader(whole)
	}
	return flate.NewReader(whole), nil
}
