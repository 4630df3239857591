package replay

import (
	"strings"
	"unicode/utf8"
)

// screen is what a terminal shows, as far as its size does not matter:
// lines that are written over by carriage returns, cursor moves and erasure.
// Colours are left out, and so is every sequence that it does not know. It is no
// terminal: lines are not wrapped, and where the size matters it takes 24 rows.
//
//	text -- ESC --> escape -- [ --> csi -- final byte --> text
//	                  `-- ] P X ^ _ --> str -- BEL, ESC \ --> text
type screen struct {
	lines    [][]rune
	row, col int
	top      int // the row that cursor addresses count from
	height   int
	saved    [2]int
	main     *screen // under the alternate screen, nil when that is not shown
	state    parsing
	params   []byte
}

type parsing uint8

const (
	inText parsing = iota
	inEscape
	inCharset // one more byte
	inCSI
	inString
	inStringEscape
)

// Bounds of a screen: no text can make it larger or slower.
const (
	screenRows    = 200  // kept, the last ones
	screenColumns = 1024 // of a line
	screenHeight  = 24
	maxParams     = 64
)

func newScreen() *screen { return &screen{lines: [][]rune{nil}, height: screenHeight} }

// write shows text. What is not UTF-8 is shown as U+FFFD.
func (s *screen) write(text string) {
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		text = text[n:]
		s.rune(r)
	}
}

func (s *screen) rune(r rune) {
	switch s.state {
	case inText:
		s.plain(r)
	case inEscape:
		s.escape(r)
	case inCharset:
		s.state = inText
	case inCSI:
		switch {
		case r >= 0x40 && r <= 0x7e:
			s.state = inText
			s.csi(r)
		case r == 0x1b:
			s.state = inEscape
		case r < 0x20:
			s.control(r)
		case r > 0x7e:
			s.state = inText
		case len(s.params) < maxParams:
			s.params = append(s.params, byte(r))
		}
	case inString:
		switch r {
		case 0x07, 0x9c:
			s.state = inText
		case 0x1b:
			s.state = inStringEscape
		}
	case inStringEscape:
		s.state = inString
		if r == '\\' {
			s.state = inText
		}
	}
}

func (s *screen) plain(r rune) {
	switch {
	case r == 0x1b:
		s.state = inEscape
	case r == 0x9b:
		s.state, s.params = inCSI, s.params[:0]
	case r < 0x20:
		s.control(r)
	case r == 0x7f || r >= 0x80 && r < 0xa0:
	default:
		s.put(r)
	}
}

func (s *screen) control(r rune) {
	switch r {
	case '\n', 0x0b, 0x0c:
		s.down()
		s.col = 0 // the program's own \r has gone before it, or the terminal's driver put one in
	case '\r':
		s.col = 0
	case '\b':
		s.col = max(0, s.col-1)
	case '\t':
		s.col = min((s.col/8+1)*8, screenColumns-1)
	}
}

func (s *screen) escape(r rune) {
	s.state = inText
	switch r {
	case '[':
		s.state, s.params = inCSI, s.params[:0]
	case ']', 'P', 'X', '^', '_':
		s.state = inString
	case '(', ')', '*', '+', '#', '%', ' ':
		s.state = inCharset
	case '7':
		s.saved = [2]int{s.row - s.top, s.col}
	case '8':
		s.move(s.saved[0], s.saved[1])
	case 'D':
		s.down()
	case 'E':
		s.down()
		s.col = 0
	case 'M':
		s.row = max(s.top, s.row-1)
	case 'c':
		s.clear(2)
		s.move(0, 0)
	case 0x1b:
		s.state = inEscape
	}
}

// csi carries out a control sequence (ECMA-48, section 8.3; xterm's private ones).
func (s *screen) csi(final rune) {
	private := len(s.params) > 0 && s.params[0] >= '<'
	a, b := s.param(0), s.param(1)
	if private {
		if (final == 'h' || final == 'l') && (a == 1049 || a == 1047 || a == 47) {
			s.alternate(final == 'h')
		}
		return
	}
	n := max(a, 1)
	switch final {
	case 'A', 'F':
		s.row = max(s.top, s.row-n)
	case 'B', 'E':
		s.to(s.row - s.top + n)
	case 'C', 'a':
		s.col = min(s.col+n, screenColumns-1)
	case 'D':
		s.col = max(0, s.col-n)
	case 'G', '`':
		s.col = min(n-1, screenColumns-1)
	case 'H', 'f':
		s.move(n-1, max(b, 1)-1)
	case 'd':
		s.to(n - 1)
	case 'J':
		s.clear(a)
	case 'K':
		s.erase(a)
	case 'X':
		line := s.line()
		for i := s.col; i < min(s.col+n, len(*line)); i++ {
			(*line)[i] = ' '
		}
	case 'P':
		if line := s.line(); s.col < len(*line) {
			*line = append((*line)[:s.col], (*line)[min(s.col+n, len(*line)):]...)
		}
	case 's':
		s.saved = [2]int{s.row - s.top, s.col}
	case 'u':
		s.move(s.saved[0], s.saved[1])
	}
	if final == 'E' || final == 'F' {
		s.col = 0
	}
}

// param returns the i-th number of a sequence, 0 if it has none.
func (s *screen) param(i int) (n int) {
	text := strings.TrimLeft(string(s.params), "<=>?")
	for ; i > 0; i-- {
		_, text, _ = strings.Cut(text, ";")
	}
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			break
		}
		n = min(n*10+int(c-'0'), 9999)
	}
	return n
}

func (s *screen) alternate(on bool) {
	switch {
	case on && s.main == nil:
		under := *s
		*s = *newScreen()
		s.main = &under
	case !on && s.main != nil:
		*s = *s.main
		s.state = inText
	}
}

func (s *screen) line() *[]rune { return &s.lines[s.row] }

func (s *screen) put(r rune) {
	if s.col >= screenColumns {
		return
	}
	line := s.line()
	for len(*line) <= s.col {
		*line = append(*line, ' ')
	}
	(*line)[s.col] = r
	s.col++
}

// down goes to the next line, which is made if there is none.
func (s *screen) down() {
	s.row++
	s.grow()
	s.top = max(s.top, s.row-s.height+1)
}

// to goes to a row counted from the top, within the screen.
func (s *screen) to(row int) {
	if row >= s.height {
		s.height = min(row+1, screenRows/2) // it knows better how high its terminal is
	}
	s.row = s.top + min(max(row, 0), s.height-1)
	s.grow()
}

func (s *screen) move(row, col int) {
	s.to(row)
	s.col = min(max(col, 0), screenColumns-1)
}

// grow makes the lines up to the cursor's, and forgets the oldest.
func (s *screen) grow() {
	for len(s.lines) <= s.row {
		s.lines = append(s.lines, nil)
	}
	if n := len(s.lines) - 2*screenRows; n >= 0 { // now and then
		n += screenRows
		s.lines = append([][]rune(nil), s.lines[n:]...)
		s.row, s.top = s.row-n, max(0, s.top-n)
	}
}

func (s *screen) clear(how int) {
	switch how {
	case 0:
		s.erase(0)
		for i := s.row + 1; i < len(s.lines); i++ {
			s.lines[i] = nil
		}
	case 1:
		s.erase(1)
		for i := s.top; i < s.row; i++ {
			s.lines[i] = nil
		}
	case 2, 3:
		for i := s.top; i < len(s.lines); i++ {
			s.lines[i] = nil
		}
	}
}

func (s *screen) erase(how int) {
	line := s.line()
	switch {
	case how == 0 && s.col < len(*line):
		*line = (*line)[:s.col]
	case how == 1:
		for i := 0; i <= s.col && i < len(*line); i++ {
			(*line)[i] = ' '
		}
	case how == 2:
		*line = nil
	}
}

// last returns the last lines that are shown, without empty ones at the end.
func (s *screen) last(limit int) []string {
	end := len(s.lines)
	for end > 0 && len(strings.TrimRight(string(s.lines[end-1]), " ")) == 0 {
		end--
	}
	var shown []string
	for _, line := range s.lines[max(0, end-limit):end] {
		shown = append(shown, strings.TrimRight(string(line), " "))
	}
	return shown
}
