package audit

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Text is a string of bytes as the guest gave them. Valid UTF-8 is a JSON
// string; anything else is {"base64":"..."}, so that no byte is lost.
type Text string

type encodedText struct {
	Base64 *string `json:"base64"`
}

// MarshalJSON implements json.Marshaler.
func (t Text) MarshalJSON() ([]byte, error) {
	if b, ok := t.appendASCII(make([]byte, 0, len(t)+len(t)/16+2)); ok {
		return b, nil
	}
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	s := base64.StdEncoding.EncodeToString([]byte(t))
	return json.Marshal(encodedText{Base64: &s})
}

// appendASCII appends t as a JSON string as encoding/json writes it, and reports whether it can: it must be ASCII. Most text is, and
// encoding is the costliest part of writing an event to the disk.
func (t Text) appendASCII(b []byte) ([]byte, bool) {
	from, done := len(b), 0
	b = append(b, '"')
	for i := range len(t) {
		c := t[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&' {
			continue
		}
		if c >= utf8.RuneSelf {
			return b[:from], false
		}
		b = append(b, t[done:i]...)
		b, done = appendEscape(b, c), i+1
	}
	return append(append(b, t[done:]...), '"'), true
}

// appendEscape appends the escape of an ASCII character.
func appendEscape(b []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	if k := strings.IndexByte("\"\\\b\f\n\r\t", c); k >= 0 {
		return append(b, '\\', "\"\\bfnrt"[k])
	}
	return append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}

// plain reports whether t is the same in JSON: printable ASCII that encoding/json does not escape.
func (t Text) plain() bool {
	for i := range len(t) {
		switch c := t[i]; {
		case c < ' ' || c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Text) UnmarshalJSON(b []byte) error {
	if n := len(b); n > 1 && b[0] == '"' && b[n-1] == '"' && Text(b[1:n-1]).plain() { // most text, at a tenth of the cost
		*t = Text(b[1 : n-1])
		return nil
	}
	if len(b) > 0 && b[0] == '"' {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		*t = Text(s)
		return nil
	}
	var e encodedText
	if err := json.Unmarshal(b, &e); err != nil || e.Base64 == nil {
		return fmt.Errorf("text is neither a string nor an object with base64: %.40q", b)
	}
	raw, err := base64.StdEncoding.DecodeString(*e.Base64)
	if err != nil {
		return fmt.Errorf("decode text: %w", err)
	}
	*t = Text(raw)
	return nil
}

// Texts are strings that JSON keeps as a list of Text.
type Texts []string

// MarshalJSON implements json.Marshaler.
func (t Texts) MarshalJSON() ([]byte, error) {
	if t == nil {
		return []byte("null"), nil
	}
	list := make([]Text, len(t))
	for i, s := range t {
		list[i] = Text(s)
	}
	return json.Marshal(list)
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Texts) UnmarshalJSON(b []byte) error {
	var list []Text
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	*t = nil
	for _, s := range list {
		*t = append(*t, string(s))
	}
	return nil
}
