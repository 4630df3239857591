package redact

import "slices"

// Held returns how many of the bytes written last are held back. Those before them can
// belong to no value that is still to be found.
func (s *Stream) Held() int { return len(s.buf) }

// Seen is Found with the values that are known to stand in what was written, and whose
// ends are not clear yet.
func (s *Stream) Seen() []string { return s.rules.names(slices.Clone(s.found), s.spans) }
