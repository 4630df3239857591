package redact

// Sealed is an encoded event after redaction. Only Redactor.Seal makes one, so
// whatever accepts a Sealed cannot be handed unredacted bytes by mistake.
type Sealed struct {
	body  []byte
	found []string
}

// Found returns the names of the values that were masked, or whose markers were
// there before, sorted, each once.
func (s Sealed) Found() []string { return s.found }

// Bytes returns the JSON object that was sealed. The caller must not change it.
func (s Sealed) Bytes() []byte { return s.body }
