package redact

import (
	"encoding/binary"
	"strconv"
)

// word describes how a dump writes words of bytes of a little-endian machine: od -tx4, hexdump, xxd -e. A value may
// begin within a word: only the words that have only its bytes are compared, and those before and after them, which have
// bytes of the value and of its neighbours, are masked.
//
//	bytes       k q z h  u n t e  r 2 - h  u n t e  r 2 ! !
//	od -tx4     687a716b 65746e75 682d3272 65746e75 21213272
//	            masked   compared                   masked
type word struct {
	size   int // in bytes: 2, 4 or 8
	base   int
	signed bool
}

func (w word) write(dst, p []byte) []byte {
	width := map[int]int{16: 2 * w.size, 8: (8*w.size + 2) / 3}[w.base]
	for ; len(p) >= w.size; p = p[w.size:] {
		var room [8]byte
		copy(room[:], p[:w.size])
		n := binary.LittleEndian.Uint64(room[:])
		if w.signed {
			unused := 64 - 8*w.size
			dst = strconv.AppendInt(dst, int64(n<<unused)>>unused, w.base)
			continue
		}
		s := strconv.FormatUint(n, w.base)
		for range width - len(s) {
			dst = append(dst, '0')
		}
		dst = append(dst, s...)
	}
	return dst
}

// wordDumps are words of all sizes and bases, at each place in a word.
func wordDumps() (list []literal) {
	for _, size := range []int{2, 4, 8} {
		for skip := range size {
			for _, w := range []word{{size, 16, false}, {size, 8, false}, {size, 10, false}, {size, 10, true}} {
				l := literal{write: w.write, rows: []uint8{rowBars}, beyond: w.signed, size: size, skip: skip}
				if w.base == 16 {
					l.rows = append(l.rows, rowGap)
				}
				list = append(list, l)
			}
		}
	}
	return list
}

const (
	maxWord    = 24  // digits of a word, or of an address
	minAddress = 6   // digits of an address
	maxLine    = 300 // bytes of a dump's row
)

// address looks at a line for the address that begins a dump's row, and returns where the row's bytes begin. With
// open the line ends before that is clear.
func address(line []byte) (begin int, ok, open bool) {
	at := 0
	for at < len(line) && at <= maxWord && nibble(line[at]) < 16 {
		at++
	}
	if at == len(line) {
		return at, false, at <= maxWord
	}
	if at < minAddress || at > maxWord {
		return 0, false, false
	}
	if line[at] == ':' {
		if at++; at == len(line) {
			return at, false, true
		}
	}
	from := at
	for at < len(line) && isBlankInLine(line[at]) {
		at++
	}
	return at, at > from, false
}

func isBlankInLine(b byte) bool { return b == ' ' || b == '\t' }

// passage is a text whose beginning may be gone.
type passage struct {
	text []byte
	prev byte // the byte before text, a line break at the beginning
}

func (c passage) before(i int) byte {
	if i == 0 {
		return c.prev
	}
	return c.text[i-1]
}

// wordBefore returns where the word begins that stands before start in a dump: at the end of the row before if start is
// the first word of a row. Of a row with an address all words are taken, as text may follow them. It returns start if
// there is none. From keep on the text shows that.
func (c passage) wordBefore(start int) (begin, keep int) {
	end := c.blanksBefore(start)
	if end < start && c.before(end) != '\n' {
		word, head := c.numberBefore(end)
		switch {
		case word == end:
			return start, start
		case !head || end-word < minAddress:
			return word, word
		}
		end = word
	}
	if end == 0 || c.before(end) != '\n' {
		return start, start
	}
	end = c.blanksBefore(end - 1)
	line := end
	for line > 0 && end-line <= maxLine && c.text[line-1] != '\n' {
		line--
	}
	if first, ok, _ := address(c.text[line:end]); ok && c.before(line) == '\n' {
		return line + first, line
	}
	if word, _ := c.numberBefore(end); end-word >= minWrapped {
		return word, word
	}
	return start, start
}

// minWrapped is how long a word must be at the end of a row without an address. Shorter ones
// are not taken for words, as the ends of lines would have to be held for them.
const minWrapped = 4

func (c passage) blanksBefore(end int) int {
	for n := 0; n < maxGap && end > 0 && isBlankInLine(c.text[end-1]); n++ {
		end--
	}
	return end
}

// numberBefore returns where the number begins that ends at end, which is end if it is none, and
// whether it begins its line.
func (c passage) numberBefore(end int) (begin int, head bool) {
	begin = end
	if begin > 0 && c.text[begin-1] == ':' {
		begin--
	}
	for begin > 0 && end-begin <= maxWord && isWordDigit(c.text[begin-1]) {
		begin--
	}
	if end-begin > maxWord || !isBlank(c.before(begin)) {
		return end, false
	}
	return begin, c.before(begin) == '\n'
}

func isWordDigit(b byte) bool { return nibble(b) < 16 || b == '-' }

// hold returns from where on the text must be held so that the word before one that begins at or after
// hold, or has hold within it, will be there.
func (c passage) hold(hold int) int {
	at := hold
	for at > 0 && hold-at <= maxWord && isWordDigit(c.text[at-1]) {
		at--
	}
	if !isBlank(c.before(at)) && c.before(at) != ':' {
		return hold
	}
	_, keep := c.wordBefore(at)
	return keep
}
