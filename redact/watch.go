package redact

import "slices"

// Watch looks for values in a text that arrives in pieces and is passed on as it is.
// It finds what a Stream masks, at any split. It is not safe for concurrent use;
// values may be added meanwhile.
type Watch struct {
	redactor *Redactor
	rules    *ruleset
	buf      []byte // what is held back
	state    uint32
	scanned  int
	spans    []span
}

// Watch returns a Watch at the beginning of a text.
func (r *Redactor) Watch() *Watch {
	return &Watch{redactor: r, rules: r.rules.Load()}
}

// Write takes the next piece of text. It returns the stretches that are values in some form,
// or markers, as they stand in the text; one may be returned again with more of it. held
// is how many bytes at the end can belong to a value that is not whole yet.
func (w *Watch) Write(p []byte) (found [][]byte, held int) {
	w.refresh()
	a := w.rules.auto
	if a == nil {
		return nil, 0
	}
	w.buf = append(w.buf, p...)
	found = w.scan(max(a.decided(w.buf), w.scanned))
	w.drop(a.hold(w.buf, w.scanned, w.state))
	return found, len(w.buf)
}

// End returns what is found at the end of the text.
func (w *Watch) End() (found [][]byte) {
	w.refresh()
	if w.rules.auto == nil {
		return nil
	}
	found = w.scan(len(w.buf))
	w.buf, w.spans, w.scanned, w.state = nil, nil, 0, 0
	return found
}

func (w *Watch) refresh() {
	if now := w.redactor.rules.Load(); now != w.rules {
		w.rules, w.state, w.scanned, w.spans = now, 0, 0, nil
	}
}

func (w *Watch) scan(to int) (found [][]byte) {
	w.state, w.spans = scan(w.rules.auto, w.state, w.buf, w.scanned, to, w.spans)
	w.scanned = to
	for _, m := range w.spans {
		found = append(found, slices.Clone(w.buf[max(0, m.start):m.end]))
	}
	return found
}

// drop forgets the first n bytes, and the spans that end in them.
func (w *Watch) drop(n int) {
	w.buf = w.buf[:copy(w.buf, w.buf[n:])]
	w.scanned -= n
	w.spans = slices.DeleteFunc(w.spans, func(m span) bool { return m.end <= n })
	for i := range w.spans {
		w.spans[i].start -= n
		w.spans[i].end -= n
	}
}
