package secrets

// Values returns the names of the secrets whose value stands in text, in any encoding
// that the redactor knows. Placeholders and markers are none.
func (i *Issuer) Values(text []byte) []string { return i.cfg.Redactor.Find(i.unmarked(text)) }
