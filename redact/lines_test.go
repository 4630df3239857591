package redact

import (
	"fmt"
	"strings"
	"testing"
)

// A value of several lines is found with any text between them, up to maxBetween symbols, and in each encoding of such a
// text.
func TestLines(t *testing.T) {
	values := []string{pem, "aabaabaaab\naabaabaac\naabaabaab\nx"}
	r := redactor(t, map[string]string{"v0": values[0], "v1": values[1]})
	m := func(i int) string { return fmt.Sprintf("[REDACTED:v%d:%s]", i, r.Tag([]byte(values[i]))) }
	quote := func(prefix string) string { return strings.ReplaceAll(pem, "\n", "\n"+prefix) }
	far := strings.Repeat("z", maxBetween)
	diff := "-" + strings.ReplaceAll(pem, "\n", "\n-") + "\n+" + quote("+") + "\n"
	cases := []struct{ in, want string }{
		{diff, "-" + m(0) + "\n+" + m(0) + "\n"},
		{"key: |\n    " + quote("    ") + "\nnext: 1\n", "key: |\n    " + m(0) + "\nnext: 1\n"},
		{"x" + quote(far) + "y", "x" + m(0) + "y"},
		{"x" + quote(far+"z") + "y", "x" + quote(far+"z") + "y"},
		{`{"diff": "+` + strings.ReplaceAll(pem, "\n", `\n+`) + `\n"}`, `{"diff": "+` + m(0) + `\n"}`},
		{"- aabaabaaab\n- aabaabaabaac\n- aabaaabaabaab\n- x!", "- " + m(1) + "!"},
		{"aabaabaaab\naabaabaab\nx", "aabaabaaab\naabaabaab\nx"},
		{strings.ReplaceAll(pem, "m", "n"), strings.ReplaceAll(pem, "m", "n")},
	}
	for _, c := range cases {
		if got := r.String(c.in); got != c.want {
			t.Errorf("%q became %q, want %q", c.in, got, c.want)
		}
		for _, cuts := range [][]int{{1}, {2, 61}, {17}} {
			if got := string(pieces(r, []byte(c.in), cuts)); got != c.want {
				t.Errorf("%q in pieces of %v became %q, want %q", c.in, cuts, got, c.want)
			}
		}
	}
	for n := minCut; n < len(diff)/2-1; n++ {
		if got := r.Cut(diff[:1+n]); n > 30 && got != "-"+m(0) {
			t.Fatalf("%q cut became %q", diff[:1+n], got)
		}
	}
}
