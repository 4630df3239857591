package pattern

import "github.com/custody-project/custody/redact"

// NewRedactor returns a redactor that also masks what the rules find. tag is the key of its tags.
func NewRedactor(tag []byte) (*redact.Redactor, error) {
	patterns, err := New()
	if err != nil {
		return nil, err
	}
	return redact.New(tag, patterns), nil
}
