package wire

import (
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/custody-project/custody/audit"
)

func TestLegible(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{
		{"plain text, ünïcode 文", 0, "plain text, ünïcode 文"},
		{"a\nb\r\tc", 0, `a\nb\r\tc`},
		{"\x1b[31m\x00\x7f\u0085", 0, `\x1b[31m\x00\x7f\u0085`},
		{"\xff\xfe", 0, `\xff\xfe`},
		{"\u202egpj\u200b\ufeff\u2028", 0, `\u202egpj\u200b\ufeff\u2028`},
		{`C:\x41`, 0, `C:\\x41`},
		{"\U000e0001", 0, `\U000e0001`},
		{"\ufffd", 0, `\ufffd`},
		{"0123456789", 4, "0123... [10 bytes]"},
		{"0文", 2, "0... [4 bytes]"},
		{"0123", 4, "0123"},
		{"", 0, ""},
	} {
		if got := Legible(c.text, c.limit); got != c.want {
			t.Errorf("%q: %s, want %s", c.text, got, c.want)
		}
	}
}

func TestCommandLine(t *testing.T) {
	if got := CommandLine([]audit.Text{"sh", "-c", "echo it's", ""}); got != `sh -c 'echo it'\''s' ''` {
		t.Error(got)
	}
}

// FuzzLegible: the output has no invisible characters, and can be decoded.
func FuzzLegible(f *testing.F) {
	f.Add("a\n\x1b\xff\u202e\\\"")
	f.Fuzz(func(t *testing.T, text string) {
		got := Legible(text, 0)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("%q", got)
		}
		back, err := strconv.Unquote(`"` + strings.ReplaceAll(got, `"`, `\"`) + `"`)
		if err != nil || back != text {
			t.Fatalf("%q became %q: %q, %v", text, got, back, err)
		}
		if cut := Legible(text, 5); len(text) > 5 && !strings.HasSuffix(cut, " bytes]") {
			t.Fatalf("%q", cut)
		}
	})
}
