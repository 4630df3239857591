package redact

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// encodings names the set of forms; it is part of Digest and changes with the set.
const encodings = "custody-redact-8"

// windowSize is how many symbols of a form must have been seen before it is
// read. The shortest value has as many; only one with blanks in it can have fewer.
const windowSize = 8

// prefixSize is the number of symbols of a value, or of its encoding, that determine the first windowSize symbols of a
// further encoding, at every alignment.
const prefixSize = 14

// written is a value's beginning in one encoding.
type written struct {
	kind kind
	off  uint8
	text []byte
	only bool // not encoded again
}

// scribes are the writers of all kinds.
type scribes struct {
	text   []writer // escapes, as they may be nested with each other
	inner  []writer // what a value may be encoded with before it is encoded again
	single []writer // what is only promised for the value itself
	outer  []writer
}

var all = func() (s scribes) {
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
		other    string // written as well when it is encoded again
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

// entry states that text which begins with key may go on as a form of a value.
type entry struct {
	key   uint64 // the first symbols, the first of them highest
	value uint32 // index into ruleset.values
	form  packed
}

func (e entry) symbols() int { return int(e.form.unpack().symbols) }

// forms returns the entries of all forms of v, each once.
func (v *value) forms() []entry {
	f := former{value: v}
	for _, w := range v.inner() {
		f.outer(w)
	}
	f.literal()
	return sorted(f.list)
}

// sorted sorts the list as shelves are and drops repeats.
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

// prefix cuts p after n symbols, but not within a character.
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

// inner lists the value as it is and encoded once.
func (v *value) inner() []written {
	p := prefix(v.raw, prefixSize)
	list := append([]written{{raw, 0, p, false}}, v.prefixed()...)
	for i, w := range slices.Concat(all.inner, all.single) {
		text := w.write(nil, p)
		// An encoding that leaves this value alone is no other form of it, unless it breaks lines.
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

// literal adds the forms that are compared as they are written.
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

// outer adds the entries for w encoded by everything there is, and by nothing.
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

// escaped adds w with escapes: of kind anyEsc if it is that, of their own kind else.
func (f *former) escaped(w written, k kind) {
	simple, ascii := letters(w.text), isASCII(w.text)
	for _, o := range all.text {
		switch {
		case o.again, o.beyond && ascii: // another writes the same, but for case
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

// add adds the entry for w that was encoded by k, whose text begins so.
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

// skip notes filler at the beginning of text, which is not in the window, but
// which decoders must see. It reports whether that can be noted: of values that
// begin with four dots or a character such as U+2020 it cannot, in UTF-16.
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
