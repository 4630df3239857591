package redact

// Sealed is a redacted and encoded event. Only Redactor.Seal makes one, so a function with a Sealed parameter cannot be
// called with unredacted bytes by mistake.
type Sealed struct {
	body  []byte
	found []string
}

// Found returns the sorted names of the values that were masked, or whose markers were in the event.
func (s Sealed) Found() []string { return s.found }

// Bytes returns the sealed JSON object. The caller must not change it.
func (s Sealed) Bytes() []byte { return s.body }
