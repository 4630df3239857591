package redact

import "strings"

// A marker is a form of its value and is replaced by itself, so that redacting
// twice changes nothing and what was masked before is found again.
const (
	markerHead = "[REDACTED:"
	maxMarker  = len(markerHead) + maxName + len(":01234567]")
)

var markEntry = entry{key: 0x5b72656461637465, form: form{inner: mark, symbols: windowSize}.pack()} // "[redacte"

// readMarker reads a marker from its beginning; it is too short to go on where it stopped.
func (c *candidate) readMarker(t []byte) verdict {
	n, ok := markerLen(t[c.start:])
	switch {
	case n > 0:
		v, known := c.markers.Load(string(t[c.start : c.start+n]))
		if !known {
			return dead
		}
		c.value, c.end = v.(*value), c.start+n
		return found
	case ok:
		return reading
	}
	return dead
}

// markerLen returns the length of the marker that t begins with, or 0 and
// whether more text could make it one.
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
