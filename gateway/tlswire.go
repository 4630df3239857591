package gateway

import (
	"encoding/binary"
	"io"
)

// The parts of TLS records (RFC 8446, section 5.1) that the gateway parses.
const (
	recordHeader  = 5
	recordPayload = 1 << 14 // the maximum of an unencrypted record

	typeChangeCipherSpec = 20
	typeAlert            = 21
	typeHandshake        = 22
	typeApplicationData  = 23
)

// alert is a description of RFC 8446, section 6.
type alert byte

const (
	alertDecodeError      alert = 50
	alertAccessDenied     alert = 49
	alertInternalError    alert = 80
	alertUnrecognizedName alert = 112
)

// record returns a record with the alert, at level fatal.
func (a alert) record() []byte { return []byte{typeAlert, 3, 3, 0, 2, 2, byte(a)} }

// readRecord reads exactly one record, and appends it to raw. The bytes of raw from at on are the start of the record,
// which was read before. It returns the extended raw.
func readRecord(r io.Reader, raw []byte, at, longest int) ([]byte, error) {
	raw, err := fill(r, raw, at+recordHeader)
	if err != nil {
		return raw, err
	}
	head := raw[at:]
	size := int(binary.BigEndian.Uint16(head[3:]))
	switch {
	case head[1] != 3 || head[2] > 4:
		return raw, malformed("not a record of TLS: version %d.%d", head[1], head[2])
	case size > longest:
		return raw, malformed("a TLS record of %d bytes, at most %d", size, longest)
	}
	return fill(r, raw, at+recordHeader+size)
}

// fill appends to b from r until b has n bytes.
func fill(r io.Reader, b []byte, n int) ([]byte, error) {
	have := len(b)
	if have >= n {
		return b, nil
	}
	b = append(b, make([]byte, n-have)...)
	got, err := io.ReadFull(r, b[have:])
	return b[:have+got], err
}

// wire parses numbers and vectors of the presentation language (RFC 8446, section 3) from the start of a message. Its
// methods return false if the message is too short.
type wire []byte

func (w *wire) take(n int) (wire, bool) {
	if n > len(*w) {
		return nil, false
	}
	head := (*w)[:n]
	*w = (*w)[n:]
	return head, true
}

func (w *wire) number(size int) (int, bool) {
	b, ok := w.take(size)
	n := 0
	for _, c := range b {
		n = n<<8 | int(c)
	}
	return n, ok
}

// vector takes a vector that is preceded by its length in size bytes.
func (w *wire) vector(size int) (wire, bool) {
	n, ok := w.number(size)
	if !ok {
		return nil, false
	}
	return w.take(n)
}
