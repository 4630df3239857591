package redact

// Sealed is an encoded event after redaction. Only Redactor.Seal makes one, so
// whatever accepts a Sealed cannot be handed unredacted bytes by mistake.
type Sealed struct {
	body []byte
}

// Bytes returns the JSON object that was sealed. The caller must not change it.
func (s Sealed) Bytes() []byte { return s.body }
