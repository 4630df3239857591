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

// mask masks the values of secrets in a response before the guest receives it.
type mask struct {
	red    *redact.Redactor // nil: the response is not masked
	stream *redact.Stream   // of the body
	count  int              // masked values
}

// ask changes the fields of a request so that its response can be masked: complete and not encoded. The parts of a
// partial response could each contain a part of a value (RFC 9110, section 14).
func (m *mask) ask(header http.Header) {
	if m.red == nil {
		return
	}
	header["Accept-Encoding"] = []string{"identity"}
	delete(header, "Range")
	delete(header, "If-Range")
	delete(header, "A-Im") // another kind of parts, RFC 3229
}

// header masks fields. It removes a field whose name contains a value.
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

// masked returns s with the values that red has replaced by markers.
func masked(red *redact.Redactor, s string) string {
	stream := red.Plain()
	return string(stream.Write([]byte(s))) + string(stream.Flush())
}

// marker is the start of the redactor's markers.
const marker = "[REDACTED:"

// piece returns the masked data that can be passed on after the next piece of a body.
func (m *mask) piece(p []byte) []byte {
	if m.stream == nil {
		return p
	}
	return m.counted(m.stream.Write(p))
}

// rest returns the masked end of a body.
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

// body returns a response's body in a form that can be masked. If its encoding cannot be undone, the guest receives only
// the reason.
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

// bodiless reports whether a response has no body (RFC 9112, section 6.3).
func bodiless(method string, resp *http.Response) bool {
	return method == http.MethodHead || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified || resp.ContentLength == 0
}

var errCoding = errors.New("unknown content coding")

// decode undoes a content coding (RFC 9110, section 8.4.1). It reads the first bytes before it returns, so that it
// detects data in another coding.
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

// inflate reads zlib's format (RFC 1950) or raw deflate: servers send both as deflate.
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
