package redact

import "bytes"

// Watch searches for values in a text that arrives in pieces and is passed on unchanged. It finds what a Stream masks,
// at any split. It is not safe for concurrent use; values may be added meanwhile. It panics if the text cannot be
// scanned.
type Watch struct {
	redactor *Redactor
	scanner  scanner
	buf      []byte // the held-back text
}

// Watch returns a Watch for a new text.
func (r *Redactor) Watch() *Watch {
	return &Watch{redactor: r, scanner: newScanner(r.rules.Load())}
}

// Write processes the next piece of text. It returns the parts of the text that are values in some form, or markers.
// held is the number of bytes at the end that can belong to an incomplete value.
func (w *Watch) Write(p []byte) (found [][]byte, held int) {
	w.refresh()
	if w.scanner.rules.index == nil {
		return nil, 0
	}
	w.buf = append(w.buf, p...)
	w.scanner.scan(w.buf)
	found = w.take()
	hold := w.scanner.hold(w.buf)
	w.scanner.forget(w.buf, hold)
	w.buf = w.buf[:copy(w.buf, w.buf[hold:])]
	return found, len(w.buf)
}

// End returns the parts found at the end of the text.
func (w *Watch) End() (found [][]byte) {
	w.refresh()
	w.scanner.end(w.buf, false)
	found = w.take()
	w.buf, w.scanner = nil, newScanner(w.scanner.rules)
	return found
}

// refresh uses the values that were added since the last call: it scans the held-back text again.
func (w *Watch) refresh() {
	if now := w.redactor.rules.Load(); now != w.scanner.rules {
		w.scanner = scannerAfter(now, w.scanner.prev)
		w.scanner.scan(w.buf)
	}
}

func (w *Watch) take() (found [][]byte) {
	for _, m := range w.scanner.take(len(w.buf)) {
		found = append(found, bytes.Clone(w.buf[m.start:m.end]))
	}
	return found
}
