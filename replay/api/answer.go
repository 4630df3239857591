package api

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/custody-project/custody/store"
)

// answer writes v as JSON.
func answer(w http.ResponseWriter, v any) error { return answerWith(w, http.StatusOK, v) }

func answerWith(w http.ResponseWriter, status int, v any) error {
	var buf bytes.Buffer // so that an encoding error can still be answered
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // the response is never a page
	if err := enc.Encode(v); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(buf.Bytes()) // an error: the client has gone
	return nil
}

// appendRecord appends a row to dst: the record's bytes exactly as they were recorded.
//
//	{"seq":17,"record":{...}}
//	{"seq":18,"erased":"<leaf, hex>"}
//	{"seq":19,"unreadable":"<base64>"}   bytes that are not JSON: the store was changed
//	{"seq":20,"verification":{...},"record":{...}}   not signed by a host
func appendRecord(dst []byte, row store.Row) []byte {
	dst = append(dst, `{"seq":`...)
	dst = strconv.AppendUint(dst, row.Seq, 10)
	if row.Mark != nil {
		if text, err := encode(row.Mark); err == nil { // a Mark consists of strings
			dst = append(append(dst, `,"verification":`...), text...)
		}
	}
	return append(appendBody(dst, row), '}')
}

// appendBody writes the member with the record.
func appendBody(dst []byte, row store.Row) []byte {
	switch {
	case row.Erased != nil:
		dst = append(dst, `,"erased":"`...)
		dst = hex.AppendEncode(dst, row.Erased[:])
		return append(dst, '"')
	case !embeddable(row.Body):
		dst = append(dst, `,"unreadable":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, row.Body)
		return append(dst, '"')
	}
	dst = append(dst, `,"record":`...)
	return append(dst, row.Body...)
}

// embeddable reports whether a body can be embedded in JSON, and in a line of an event stream, unchanged.
func embeddable(body []byte) bool {
	return len(body) > 0 && body[0] == '{' && !bytes.ContainsAny(body, "\r\n") && json.Valid(body)
}

// exact is a response that is assembled in pieces, so that it contains records byte for byte.
type exact struct {
	w   *bufio.Writer
	buf []byte
}

func beginExact(w http.ResponseWriter) *exact {
	w.Header().Set("Content-Type", "application/json")
	return &exact{w: bufio.NewWriterSize(w, 1<<16)}
}

func (x *exact) raw(text string) { _, _ = x.w.WriteString(text) }

func (x *exact) row(row store.Row) {
	x.buf = appendRecord(x.buf[:0], row)
	_, _ = x.w.Write(x.buf)
}

// member writes a member of an object after another one.
func (x *exact) member(name string, v any) error {
	text, err := encode(v)
	if err != nil {
		return err
	}
	x.raw(`,"` + name + `":`)
	_, _ = x.w.Write(text)
	return nil
}

func (x *exact) end() { _ = x.w.Flush() }

// encode is json.Marshal without its escapes for pages.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}
