package redact

// Plain is Stream for a text that someone works with: it masks values, and what
// detectors would only take for secrets stays. Nothing is held back for their sake.
func (r *Redactor) Plain() *Stream {
	s := r.Stream()
	s.tail = tail{redactor: &Redactor{}}
	return s
}
