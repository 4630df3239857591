package wire

// Array writes the elements of a JSON array.
type Array struct {
	w    *Writer
	mark int // where it began
}

// Elem begins an object as an element. End it with End.
func (a Array) Elem() Object {
	mark := len(a.w.b)
	a.w.comma()
	a.w.Notes.enter("")
	a.w.b = append(a.w.b, '{')
	return Object{a.w, mark}
}

// End ends the array. An empty array is removed.
func (a Array) End() {
	a.w.inner--
	a.w.end(a.mark, '[', ']')
}

// Room reports whether there is space for another element; if not, it records that elements are missing, the first
// of which has n bytes.
func (a Array) Room(n int) bool { return a.w.room("", n) }

// Value writes a text as an element.
func (a Array) Value(s string) {
	a.w.comma()
	a.w.text("", s)
}

// ConstValue writes a constant as an element.
func (a Array) ConstValue(s string) {
	a.w.comma()
	a.w.b = append(a.w.b, '"')
	a.w.b = append(a.w.b, s...)
	a.w.b = append(a.w.b, '"')
}

// Tagged writes a text with a constant prefix as an element.
func (a Array) Tagged(prefix, s string) {
	a.w.comma()
	a.w.b = append(a.w.b, '"')
	a.w.b = append(a.w.b, prefix...)
	a.w.escape("", s)
	a.w.b = append(a.w.b, '"')
}
