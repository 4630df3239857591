package proof

import (
	"fmt"
	"strings"
	"testing"
)

// TestParseSelection: single seqs and ranges select what they name, and anything else is refused.
func TestParseSelection(t *testing.T) {
	for texts, want := range map[string]string{
		"3":                   "3",
		"2-4":                 "2 3 4",
		"1,5-6,3":             "1 3 5 6",
		"2-4,3-5":             "2 3 4 5",
		"0-1":                 "1",
		"5-3":                 "error",
		"":                    "error",
		"a":                   "error",
		"1-":                  "error",
		"-1":                  "error",
		"1-2-3":               "error",
		"+1":                  "error",
		"9999999999999999999": "error",
	} {
		s, err := ParseSelection(strings.Split(texts, ","))
		var got []string
		if err != nil {
			got = []string{"error"}
		}
		for seq := uint64(1); err == nil && seq < 10; seq++ {
			if s.Shows(seq) {
				got = append(got, fmt.Sprint(seq))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q selects %v, %v; want %s", texts, got, err, want)
		}
		if err == nil && s.What != "seq "+strings.ReplaceAll(texts, ",", ", ") {
			t.Errorf("%q is described as %q", texts, s.What)
		}
	}
}
