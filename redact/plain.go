package redact

// Plain returns a Stream for interactive text: it masks values, but not the findings of detectors, and holds nothing
// back for them.
func (r *Redactor) Plain() *Stream {
	s := r.Stream()
	s.tail = tail{redactor: &Redactor{}}
	return s
}
