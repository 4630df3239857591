package redact_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/custody-project/custody/redact"
)

// TestDigests: only the digest of a value alone is masked in events.
func TestDigests(t *testing.T) {
	r := redact.New(make([]byte, 32))
	const value, line = "correct horse battery", "staple-of-the-line"
	if err := r.AddAll(map[string][]byte{"api": []byte(value), "line": []byte(line + "\n")}); err != nil {
		t.Fatal(err)
	}
	marker := func(name, value string) string { return "[REDACTED:" + name + ":" + r.Tag([]byte(value)) + "]" }
	for _, c := range []struct{ name, content, want string }{
		{"the value", value, marker("api", value)},
		{"with a newline", value + "\n", marker("api", value)},
		{"with that of DOS", value + "\r\n", marker("api", value)},
		{"a value that has a newline", line + "\n", marker("line", line+"\n")},
		{"the same without", line, marker("line", line+"\n")},
		{"the same with that of DOS", line + "\r\n", marker("line", line+"\n")},
		{"with two newlines", value + "\n\n", ""},
		{"among other text", "key=" + value, ""},
		{"nothing", "", ""},
	} {
		sum := sha256.Sum256([]byte(c.content))
		for _, digest := range []string{hex.EncodeToString(sum[:]), strings.ToUpper(hex.EncodeToString(sum[:]))} {
			event := struct {
				SHA256 string   `json:"sha256"`
				List   []string `json:"list"`
				Longer string   `json:"longer"`
			}{digest, []string{digest}, "sha256:" + digest}
			want := c.want
			if want == "" {
				want = digest
			}
			longer := event.Longer
			sealed, err := r.Seal(&event)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(sealed.Bytes(), &event); err != nil {
				t.Fatal(err)
			}
			if event.SHA256 != want || event.List[0] != want || event.Longer != longer {
				t.Errorf("%s: %q, %q and %q, want %q", c.name, event.SHA256, event.List[0], event.Longer, want)
			}
			if len(sealed.Found()) > 0 {
				t.Errorf("%s: found %v", c.name, sealed.Found())
			}
		}
	}
}
