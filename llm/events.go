package llm

import "bytes"

// events parses server-sent events (WHATWG HTML, section 9.2.6, "Interpreting an event stream") and passes on the data
// of each as it arrives, without buffering. It ignores names, ids and retry times of events.
//
//	       field name        ':'           value         end of line
//	begin -----------> name -----> space ----------> value ----------> begin
//	  |                  | not "data"                                    ^
//	  | ':'              v               end of line                     |
//	  +----------------> skip -------------------------------------------+
//	   |                  end of line, after data: the event is complete
//
// Lines end with LF, CR or CR LF. Text after the last empty line is not an event.
type events struct {
	data  func(p []byte) // a piece of an event's data
	whole func()         // the event whose data was passed on has ended

	state lineState
	name  []byte // of the field, up to one byte more than "data"
	bom   int    // bytes of a byte order mark so far, -1 where none is possible
	cr    bool   // the last byte was a CR: a following LF belongs to it
	begun bool   // the event has data
}

type lineState byte

const (
	inName  lineState = iota // also at a line's start
	inSpace                  // after "data:", where one space is ignored
	inValue                  // of data
	inRest                   // of an ignored line
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

// mark skips a byte order mark at the stream's start.
func (e *events) mark(p []byte) []byte {
	for e.bom < len(byteOrderMark) && len(p) > 0 {
		if p[0] != byteOrderMark[e.bom] {
			// It was not a byte order mark: the bytes are the start of an unknown field's name.
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

// within processes bytes up to the line's end, or to the next state.
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
