package redact

import (
	"strings"
	"sync"
)

// A marker is a form of its value and is replaced by itself, so that redacting twice changes nothing, and values that
// were masked before are found again.
const (
	markerHead = "[REDACTED:"
	maxMarker  = len(markerHead) + maxName + len(":01234567]")
)

var markEntry = entry{key: 0x5b72656461637465, form: form{inner: mark, symbols: windowSize}.pack()} // "[redacte"

// markers are the markers of all values. They are safe for concurrent use.
type markers struct {
	values sync.Map // string to *value
}

func (m *markers) add(v *value) { m.values.Store(v.marker, v) }

// read reads a marker that t begins with, always from its beginning. It returns the value and the marker's length if
// there is one.
func (m *markers) read(t []byte) (v *value, n int, is verdict) {
	n, ok := markerLen(t)
	switch {
	case n > 0:
		known, ok := m.values.Load(string(t[:n]))
		if !ok {
			return nil, 0, dead
		}
		return known.(*value), n, found
	case ok:
		return nil, 0, reading
	}
	return nil, 0, dead
}

// markerLen returns the length of the marker that t begins with, or 0 and whether more text could make it one.
func markerLen(t []byte) (n int, ok bool) {
	for i, b := range t[:min(len(t), maxMarker)] {
		switch {
		case i < len(markerHead):
			if b != markerHead[i] {
				return 0, false
			}
		case b == ']':
			return i + 1, true
		case b != ':' && strings.IndexByte(nameChars, b) < 0:
			return 0, false
		}
	}
	return 0, len(t) < maxMarker
}
