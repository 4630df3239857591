package secrets

import "github.com/custody-project/custody/redact"

// Watch searches a text that arrives in pieces with several redactors. It is not safe for concurrent use.
type Watch struct {
	parts []*redact.Watch
}

// NewWatch returns a Watch for a new text.
func NewWatch(redactors ...*redact.Redactor) *Watch {
	w := &Watch{}
	for _, r := range redactors {
		w.parts = append(w.parts, r.Watch())
	}
	return w
}

// Watch returns a Watch for the values and placeholders that Find finds.
func (i *Issuer) Watch() *Watch { return NewWatch(i.cfg.Redactor, i.placeholders.known) }

// Write processes the next piece. It returns the parts of the text in which Find may find something, and how many bytes
// at the end may begin another.
func (w *Watch) Write(b []byte) (found [][]byte, held int) {
	for _, part := range w.parts {
		f, h := part.Write(b)
		found, held = append(found, f...), max(held, h)
	}
	return found, held
}

// End returns the parts at the end of the text.
func (w *Watch) End() (found [][]byte) {
	for _, part := range w.parts {
		found = append(found, part.End()...)
	}
	return found
}
