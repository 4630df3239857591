package audit_test

import (
	"encoding/json"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/custody-project/custody/audit"
)

// FuzzText wants every string of bytes back, and valid UTF-8 encoded just as
// encoding/json does it.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "plain text", "a\"b\\c", "<&>", "tab\t\x7f", "grüße \u2028", "\xff\xfe", "{\"base64\":\"\"}"} {
		f.Add(s)
	}
	for c := range 256 {
		f.Add(string([]byte{'a', byte(c)}))
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := json.Marshal(audit.Text(s))
		if err != nil {
			t.Fatal(err)
		}
		if want, _ := json.Marshal(s); utf8.ValidString(s) && string(b) != string(want) {
			t.Errorf("%q is encoded as %s, want %s", s, b, want)
		}
		var back audit.Text
		if err := json.Unmarshal(b, &back); err != nil || string(back) != s {
			t.Errorf("%q comes back as %q, %v", s, back, err)
		}
	})
}

// TestTexts: strings with any bytes are the same after they were JSON.
func TestTexts(t *testing.T) {
	for _, want := range []audit.Texts{nil, {}, {"a", "", "\xff\x00", `"<é>`}} {
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got audit.Texts
		if err := json.Unmarshal(b, &got); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q became %s and %q: %v", want, b, got, err)
		}
	}
}
