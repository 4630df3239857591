package llm

import "bytes"

// events takes server-sent events apart (WHATWG HTML, section 9.2.6, "Interpreting an
// event stream") and hands the data of each on while it arrives; it holds nothing back.
// Names, ids and retry times of events are of no use here.
//
//	       field name        ':'           value         end of line
//	begin -----------> name -----> space ----------> value ----------> begin
//	  |                  | not "data"                                    ^
//	  | ':'              v               end of line                     |
//	  +----------------> skip -------------------------------------------+
//	  | end of line, after data: the event is whole
//
// Lines end with LF, CR or CR LF. What stands after the last empty line is no event.
type events struct {
	data  func(p []byte) // a piece of an event's data
	whole func()         // the event whose data was handed on has ended

	state lineState
	name  []byte // of the field, up to one byte more than "data" has
	bom   int    // how much of a byte order mark was seen, -1 where none can be any more
	cr    bool   // the last byte was a CR: an LF now belongs to it
	begun bool   // the event has data
}

type lineState byte

const (
	inName  lineState = iota // also at a line's begin
	inSpace                  // behind "data:", where one space is left out
	inValue                  // of data
	inRest                   // of a line that does not matter
)

const byteOrderMark = "\xEF\xBB\xBF"

// Write implements io.Writer; it never fails.
func (e *events) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if e.bom >= 0 {
			if p = e.mark(p); len(p) == 0 {
				break
			}
		}
		switch c := p[0]; {
		case c == '\n' && e.cr:
			e.cr, p = false, p[1:]
			continue
		case c == '\n' || c == '\r':
			e.cr, p = c == '\r', p[1:]
			e.line()
			continue
		}
		e.cr = false
		p = e.within(p)
	}
	return n, nil
}

// mark leaves out a byte order mark at the stream's begin.
func (e *events) mark(p []byte) []byte {
	for e.bom < len(byteOrderMark) && len(p) > 0 {
		if p[0] != byteOrderMark[e.bom] {
			// It was none: what was taken for one is the begin of a field's name that no one knows.
			if e.bom > 0 {
				e.state = inRest
			}
			e.bom = -1
			return p
		}
		e.bom, p = e.bom+1, p[1:]
	}
	if e.bom == len(byteOrderMark) {
		e.bom = -1
	}
	return p
}

// within takes bytes up to the line's end, or to the next state.
func (e *events) within(p []byte) []byte {
	switch e.state {
	case inName:
		if p[0] != ':' {
			if len(e.name) <= len("data") {
				e.name = append(e.name, p[0])
			}
			return p[1:]
		}
		e.state = inRest
		if string(e.name) == "data" {
			e.state = inSpace
		}
		return p[1:]
	case inSpace:
		e.state = inValue
		e.begin()
		if p[0] == ' ' {
			p = p[1:]
		}
		return p
	}
	end := bytes.IndexAny(p, "\r\n")
	if end < 0 {
		end = len(p)
	}
	if e.state == inValue && end > 0 {
		e.data(p[:end])
	}
	return p[end:]
}

// begin is called once for each line of data. Lines are joined by LF.
func (e *events) begin() {
	if e.begun {
		e.data([]byte{'\n'})
	}
	e.begun = true
}

// line ends a line.
func (e *events) line() {
	switch {
	case e.state == inName && len(e.name) == 0:
		if e.begun {
			e.whole()
		}
		e.begun = false
	case e.state == inSpace, e.state == inName && string(e.name) == "data": // without a value
		e.begin()
	}
	e.state, e.name = inName, e.name[:0]
}
