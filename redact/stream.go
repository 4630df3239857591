package redact

import (
	"bytes"
	"slices"
)

// Stream masks values in a text that arrives in pieces, with the same result as Bytes on the whole text, wherever it is
// split. It is not safe for concurrent use. Values may be added to its Redactor meanwhile, and are masked from the bytes
// on that are still held back.
//
//	 released |        held back        |
//	----------+-------------------------+
//	          |  could begin a match    | <- p
//	----------+-------------------------+
//	          0                      len(buf)
//
// Write releases the text before any possible match, with markers for the spans that end there. A span that extends
// further then begins before 0: its bytes are removed, and its marker is released when its end is known. The held-back
// data is bounded by the longest form of a value (with the filler allowed in it), not by the text.
//
// Detectors are applied after that, see tail. A Stream that cannot scan writes one notice and withholds all further
// text.
type Stream struct {
	redactor *Redactor
	scanner  scanner
	buf      []byte
	shown    int // how much of buf Pause has released
	spans    []span
	found    []string
	tail     tail
	failed   bool
}

// Stream returns a Stream for a new text.
func (r *Redactor) Stream() *Stream {
	return &Stream{redactor: r, scanner: newScanner(r.rules.Load()), tail: tail{redactor: r}}
}

// Fork returns a Stream in the same state, which is independent from then on.
func (s *Stream) Fork() *Stream {
	f := *s
	f.buf, f.spans, f.found = bytes.Clone(s.buf), slices.Clone(s.spans), slices.Clone(s.found)
	f.scanner.pending, f.scanner.found = slices.Clone(s.scanner.pending), slices.Clone(s.scanner.found)
	f.tail.text = bytes.Clone(s.tail.text)
	return &f
}

// Holds reports whether text is held back.
func (s *Stream) Holds() bool {
	return len(s.buf)+len(s.spans) > 0 || s.tail.from < len(s.tail.text)
}

// Level reports whether two Streams that were given the same text have released the same part of it.
func (s *Stream) Level(with *Stream) bool {
	return s.shown == 0 && with.shown == 0 && len(s.buf) == len(with.buf) && len(s.spans) == len(with.spans) &&
		len(s.tail.text)-s.tail.from == len(with.tail.text)-with.tail.from
}

// Found returns the sorted names of the values that were masked so far, or whose markers were in the text.
func (s *Stream) Found() []string { return s.found }

// Write processes the next piece of text and returns the part of the text so far that can be released, which may be
// empty. The result is p itself while the Redactor has no values, otherwise separate memory.
func (s *Stream) Write(p []byte) []byte {
	return s.closed(func() []byte {
		return s.tail.write(s.write(p), false)
	})
}

// Flush returns the rest at the end of the stream. Afterwards the Stream can be reused.
func (s *Stream) Flush() []byte { return s.flush(false) }

// FlushCut is Flush for a truncated stream, for instance because its writer was killed: like Cut it also masks the
// beginning of a value at the end.
func (s *Stream) FlushCut() []byte { return s.flush(true) }

func (s *Stream) flush(cut bool) []byte {
	out := s.closed(func() []byte {
		s.refresh()
		s.scanner.end(s.buf, cut)
		rest := s.release(len(s.buf))
		s.scanner = newScanner(s.scanner.rules)
		return s.tail.write(rest, true)
	})
	s.failed = false
	return out
}

// Pause returns held-back text for display to a person, for example the echo of a key: all of it except a match, or 4
// and more symbols that may begin one. If a writer pauses after 3 symbols of a value, those 3 are shown before the
// marker of the value; in a dump of words, the word in which the value begins is shown; and detectors find nothing
// across a pause. It is for terminals after a short silence, not for streams that are stored.
func (s *Stream) Pause() []byte {
	return s.closed(func() []byte {
		return s.tail.write(s.pause(), true)
	})
}

// closed runs f and withholds everything if it fails.
func (s *Stream) closed(f func() []byte) (out []byte) {
	if s.failed {
		return nil
	}
	defer func() {
		if recover() != nil {
			*s = Stream{
				redactor: s.redactor, scanner: newScanner(s.redactor.rules.Load()), tail: tail{redactor: s.tail.redactor},
				found: s.found, failed: true,
			}
			out = []byte(withheld)
		}
	}()
	return f()
}

func (s *Stream) write(p []byte) []byte {
	s.refresh()
	if s.scanner.rules.index == nil {
		return p
	}
	s.buf = append(s.buf, p...)
	s.scanner.scan(s.buf)
	return s.release(s.scanner.hold(s.buf))
}

func (s *Stream) pause() []byte {
	s.refresh()
	if len(s.scanner.found)+len(s.scanner.pending)+len(s.spans) > 0 || s.scanner.rules.index == nil {
		return nil
	}
	show := len(s.buf)
	if n := s.scanner.rules.index.beginning(s.scanner.window); n >= minCut {
		show, _ = back(s.buf, show, n)
		word, _ := s.scanner.passage(s.buf).wordBefore(show)
		show = min(digitsBefore(s.buf, show, maxLeft), word)
	}
	if show <= s.shown {
		return nil
	}
	out := bytes.Clone(s.buf[s.shown:show])
	s.shown = show
	return out
}

// refresh uses the values that were added since the last call: it scans the held-back text again. A span whose beginning
// has been released cannot be found again, and is kept.
func (s *Stream) refresh() {
	now := s.redactor.rules.Load()
	if now == s.scanner.rules {
		return
	}
	s.scanner = scannerAfter(now, s.scanner.prev)
	s.scanner.scan(s.buf)
}

// release removes buf[:hold] and returns it masked.
func (s *Stream) release(hold int) []byte {
	for _, m := range s.scanner.take(hold) {
		s.spans = join(s.spans, m)
	}
	out, at, done := make([]byte, 0, hold+64), min(s.shown, hold), 0
	for _, m := range s.spans {
		out = append(out, s.buf[at:max(at, min(m.start, hold))]...)
		at = max(at, min(m.end, hold))
		if m.end > hold {
			break
		}
		out = append(out, m.value.marker...)
		done++
	}
	out = append(out, s.buf[at:hold]...)
	s.found = names(s.found, s.spans[:done])
	s.forget(hold, done)
	return out
}

// forget removes n bytes and the first done spans.
func (s *Stream) forget(n, done int) {
	s.scanner.forget(s.buf, n)
	s.buf = s.buf[:copy(s.buf, s.buf[n:])]
	s.shown = max(0, s.shown-n)
	s.spans = s.spans[:copy(s.spans, s.spans[done:])]
	for i := range s.spans {
		s.spans[i].start -= n
		s.spans[i].end -= n
	}
}
