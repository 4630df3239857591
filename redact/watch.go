package redact

import "bytes"

// Watch looks for values in a text that arrives in pieces and is passed on as it is.
// It finds what a Stream masks, at any split. It is not safe for concurrent use;
// values may be added meanwhile. It panics if the text cannot be scanned.
type Watch struct {
	redactor *Redactor
	scanner  scanner
	buf      []byte // what is held back
}

// Watch returns a Watch at the beginning of a text.
func (r *Redactor) Watch() *Watch {
	return &Watch{redactor: r, scanner: newScanner(r.rules.Load())}
}

// Write takes the next piece of text. It returns the stretches that are values in some form,
// or markers, as they stand in the text. held is how many bytes at the end can belong to a
// value that is not whole yet.
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

// End returns what is found at the end of the text.
func (w *Watch) End() (found [][]byte) {
	w.refresh()
	w.scanner.end(w.buf, false)
	found = w.take()
	w.buf, w.scanner = nil, newScanner(w.scanner.rules)
	return found
}

// refresh takes over values added since the last call: what is held is scanned again.
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
