package redteam

import (
	"strings"
	"testing"
)

// TestWriteOutcomes: the table shows what was not blocked, not recorded, or a control that does not work, and counts what holds.
func TestWriteOutcomes(t *testing.T) {
	probe := func(id string, blocked, recorded, control bool) Outcome {
		return Outcome{Probe: Probe{ID: id, Family: "dns", Control: control}, Blocked: blocked, Recorded: recorded, Detail: "\x1b[31m" + strings.Repeat("x", 2*maxDetail)}
	}
	var out strings.Builder
	err := WriteOutcomes(&out, []Outcome{
		probe("held", true, true, false), probe("open", false, true, false), probe("silent", true, false, false),
		probe("works", false, true, true), probe("broken", true, true, true),
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{"PROBE FAMILY BLOCKED RECORDED WHAT", "held dns yes yes", "open dns NO yes", "silent dns yes NO", "works dns (works) yes", "broken dns DOES NOT WORK yes"} {
		if got := strings.Join(strings.Fields(lines[i]), " "); !strings.HasPrefix(got, want) {
			t.Errorf("line %d is %q, want %q", i, got, want)
		}
		if len(lines[i]) > 2*maxDetail || strings.Contains(lines[i], "\x1b") {
			t.Errorf("line %d has %d bytes, or moves the cursor: %q", i, len(lines[i]), lines[i])
		}
	}
	if want := "1 of 3 probes blocked and recorded, 1 of 2 controls work\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("got %q, want %q at its end", out.String(), want)
	}
}

// TestWriteProbes: each probe has a line.
func TestWriteProbes(t *testing.T) {
	var out strings.Builder
	if err := WriteProbes(&out, []Probe{{ID: "dns/a", Family: "dns", Title: "asks"}, {ID: "dns/b", Family: "dns", Title: "asks twice"}}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSpace(out.String()), "\n"); len(got) != 3 || !strings.HasPrefix(got[2], "dns/b") || !strings.HasSuffix(got[2], "asks twice") {
		t.Errorf("got %q", got)
	}
}
