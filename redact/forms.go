package redact

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// encodings is the version of the set of forms; it is part of Digest and must change with the set.
const encodings = "custody-redact-9"

// windowSize is the number of symbols of a form that must match before it is read. The shortest value has as many; only
// one with blanks can have fewer.
const windowSize = 8

// prefixSize is the number of symbols of a value, or of its encoding, that determine the first windowSize symbols of a
// further encoding, at every alignment.
const prefixSize = 14

// written is the beginning of a value in one encoding.
type written struct {
	kind kind
	off  uint8
	text []byte
	only bool // not encoded again
}

// writers are the writers of all kinds.
type writers struct {
	text   []writer // escapes, which may be nested in each other
	inner  []writer // encodings of a value that may be encoded again
	single []writer // encodings that are supported only for the value itself
	outer  []writer
}

var all = func() (s writers) {
	s.text = slices.Concat(percents(), escapes(), entities(), shells(), doubles())
	s.inner = slices.Concat(s.text, []writer{
		{kind: hexa, write: every("", lowerHex, "")}, {kind: hexa, write: every("", upperHex, "")},
		{kind: hexa, write: every("", lowerHex, " ")}, {kind: hexa, write: every("", upperHex, " ")},
		{kind: u16le, write: wide(binary.LittleEndian)}, {kind: u16be, write: wide(binary.BigEndian)},
	})
	s.single = slices.Concat(quotedPrintables(), []writer{
		{kind: hexa, write: every("", lowerHex, ":")}, {kind: hexa, write: every("", lowerHex, "-")},
		{kind: hexa, write: every("0x", lowerHex, "")}, {kind: hexa, write: every("0x", lowerHex, ",")},
		{kind: hexa, write: short("")}, {kind: hexa, write: short(",")},
	})
	s.outer = []writer{
		{kind: hexa, write: every("", lowerHex, "")},
		{kind: u16le, write: wide(binary.LittleEndian)}, {kind: u16be, write: wide(binary.BigEndian)},
	}
	for _, c := range []struct {
		kind     kind
		alphabet string
		other    string // also written when it is encoded again
	}{
		{b64, alphabet64, alphabet64[:62] + "-_"},
		{b32, alphabet32, string(bytes.ToLower([]byte(alphabet32)))},
		{b32h, alphabet32h, string(bytes.ToLower([]byte(alphabet32h)))},
	} {
		_, group := c.kind.bits()
		for off := range group {
			one := writer{kind: c.kind, off: uint8(off), write: digits(c.kind, off, c.alphabet)}
			two := writer{kind: c.kind, off: uint8(off), write: digits(c.kind, off, c.other)}
			s.inner = append(s.inner, one, two)
			if s.outer = append(s.outer, one); c.kind == b64 {
				s.outer = append(s.outer, two)
			}
		}
	}
	return s
}()

// entry states that text that begins with key may continue as a form of a value.
type entry struct {
	key   uint64 // the first symbols, the first in the highest bits
	value uint32 // index into ruleset.values
	form  packed
}

func (e entry) symbols() int { return int(e.form.unpack().symbols) }

// forms returns the entries of all forms of v, without repeats.
func (v *value) forms() []entry {
	f := former{value: v}
	for _, w := range v.inner() {
		f.outer(w)
	}
	f.literal()
	return sorted(f.list)
}

// sorted sorts the list like shelves and removes repeats.
func sorted(list []entry) []entry {
	slices.SortFunc(list, compareEntries)
	return slices.Compact(list)
}

func compareEntries(a, b entry) int {
	if x, y := hash(a.key), hash(b.key); x != y {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(uint64(a.value)<<32|uint64(a.form), uint64(b.value)<<32|uint64(b.form))
}

// prefix truncates p after n symbols, but not within a character.
func prefix(p []byte, n int) []byte {
	for i, b := range p {
		if n <= 0 && b&0xc0 != 0x80 {
			return p[:i]
		}
		if !isFiller(b) {
			n--
		}
	}
	return p
}

// inner lists the value, and its encodings.
func (v *value) inner() []written {
	p := prefix(v.raw, prefixSize)
	list := append([]written{{raw, 0, p, false}}, v.prefixed()...)
	for i, w := range slices.Concat(all.inner, all.single) {
		text := w.write(nil, p)
		// An encoding that does not change this value is not another form, unless it breaks lines.
		if w.kind != quoted && bytes.Equal(text, p) && bytes.Equal(w.write(nil, v.raw), v.raw) {
			continue
		}
		n := written{w.kind, w.off, prefix(text, prefixSize), i >= len(all.inner)}
		if !slices.ContainsFunc(list, func(o written) bool {
			return o.kind == n.kind && o.off == n.off && o.only == n.only && bytes.Equal(o.text, n.text)
		}) {
			list = append(list, n)
		}
	}
	return list
}

// literal adds the forms that are compared without decoding.
func (f *former) literal() {
	for i, l := range literals {
		text := f.value.beginning(i)
		if len(text) == 0 {
			continue
		}
		w := written{kind: lit, off: uint8(i), text: text}
		f.add(raw, 0, w, text)
		for _, style := range l.rows {
			f.add(rows, style, w, text)
		}
	}
}

type former struct {
	value *value
	list  []entry
	buf   []byte
}

// outer adds the entries for w in all encodings, and without one.
func (f *former) outer(w written) {
	switch w.kind {
	case raw:
		f.add(raw, 0, w, w.text)
		f.add(rows, rowBare, w, w.text)
		f.escaped(w, w.kind)
	case quoted:
		f.add(quoted, 0, written{kind: raw, text: w.text}, w.text)
		return
	case hexa, b64, b32, b32h:
		f.add(anyEsc, 0, w, w.text)
		for style := rowBars; style <= rowGap && w.kind == hexa; style++ {
			f.add(rows, style, w, w.text)
		}
		if w.only {
			return
		}
		f.escaped(w, anyEsc)
	default:
		f.escaped(w, w.kind)
	}
	for _, o := range all.outer {
		if w.kind != raw || o.kind == u16le || o.kind == u16be {
			f.write(o, o.kind, w)
		}
	}
}

// escaped adds w with escapes: of kind anyEsc if possible, otherwise of their own kind.
func (f *former) escaped(w written, k kind) {
	simple, ascii := letters(w.text), isASCII(w.text)
	for _, o := range all.text {
		switch {
		case o.again, o.beyond && ascii: // another writes the same, except for case
		case k != anyEsc:
			f.write(o, o.kind, w)
		case o.all || !simple:
			f.write(o, anyEsc, w)
		}
	}
}

func (f *former) write(o writer, k kind, w written) {
	f.buf = o.write(f.buf[:0], w.text)
	off := o.off
	if k == anyEsc {
		off = 0
	}
	f.add(k, off, w, f.buf)
}

// add adds the entry for w in encoding k, which begins with text.
func (f *former) add(k kind, off uint8, w written, text []byte) {
	n := form{outer: k, outerOff: off, inner: w.kind, innerOff: w.off & 7, single: k == raw || k == anyEsc || k == rows || w.kind == raw}
	switch {
	case w.kind == lit:
		n.first = w.off
	case off > 0 && k.padded():
		n.first = w.text[0]
	}
	if !n.skip(text) {
		return
	}
	key := uint64(0)
	for _, b := range text {
		if isFiller(b) {
			continue
		}
		key = key<<8 | uint64(lower(b))
		if n.symbols++; n.symbols == windowSize {
			break
		}
	}
	f.list = append(f.list, entry{key, f.value.id, n.pack()})
}

// skip stores the filler at the beginning of text, which is not in the window, but which decoders must process. It
// returns false if that cannot be stored: for values in UTF-16 that begin with four dots or a character such as U+2020.
func (f *form) skip(text []byte) bool {
	wide := f.outer == u16le || f.outer == u16be
	for i, b := range text {
		switch {
		case !isFiller(b):
			return true
		case wide:
			f.first = b
			f.lead++
			if i > 0 {
				return false
			}
		case b == '.':
			if f.lead++; f.lead > 3 {
				return false
			}
		}
	}
	return true
}
