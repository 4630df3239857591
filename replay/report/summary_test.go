package report

import (
	"errors"
	"strings"
	"testing"
)

// TestSummary: a line for each control with its status, then what speaks against controls.
func TestSummary(t *testing.T) {
	r := build(t, input("pci", newTape("r-1").done()))
	r.Against = []Objection{{Controls: []string{r.Controls[0].ID, "x"}, Text: "a record was lost"}}
	var out strings.Builder
	if err := r.Summary(&out); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "Evidence toward "+r.Framework.Title+", from "+r.Scope.Text+".\n") {
		t.Errorf("got %.200q", out.String())
	}
	for _, c := range r.Controls {
		found := false
		for line := range strings.Lines(out.String()) {
			f := strings.Fields(line)
			found = found || len(f) > 2 && f[0] == c.ID && strings.HasPrefix(strings.ToLower(strings.Join(f[1:], " ")), string(c.Status)+" ") && strings.HasSuffix(line, c.Title+"\n")
		}
		if !found {
			t.Errorf("no line of control %s, %s", c.ID, c.Status)
		}
	}
	if want := "\n\nagainst " + r.Controls[0].ID + ", x: a record was lost\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("got %q, want %q at its end", out.String(), want)
	}
	if err := r.Summary(full{}); !errors.Is(err, errFull) {
		t.Errorf("an error of the writer: %v", err)
	}
}

var errFull = errors.New("no space left")

// full is a writer without space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }
