package sample_test

import (
	"strings"
	"testing"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/format/cef"
	"github.com/custody-project/custody/export/format/ecs"
	"github.com/custody-project/custody/export/format/native"
	"github.com/custody-project/custody/export/format/ocsf"
	"github.com/custody-project/custody/export/internal/sample"
)

// TestMarked: in every format, an event of every kind has its mark, with the highest severity, and none has one without it.
func TestMarked(t *testing.T) {
	var formats []export.Format
	for _, version := range ocsf.Versions() {
		f, err := ocsf.New(version)
		if err != nil {
			t.Fatal(err)
		}
		formats = append(formats, f)
	}
	severity := map[string]string{"ocsf": `"severity":"Critical"`, "ecs": `"level":"alert"`, "native": `"severity":1`, "cef": "|10|"}
	for _, f := range append(formats, ecs.New(), cef.New(), native.New(), export.JSON{}) {
		for _, s := range sample.Marked() {
			line, err := f.Append(nil, s.Event)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.ToLower(string(line))
			for _, want := range []string{"verification", "fails", s.Mark.Text, strings.ToLower(severity[f.Name()])} {
				if !strings.Contains(text, want) {
					t.Errorf("%s %s has no %q: %s", f.Name(), s.Name, want, line)
				}
			}
			s.Mark = nil
			if line, err = f.Append(nil, s.Event); err != nil || strings.Contains(strings.ToLower(string(line)), "verification") {
				t.Errorf("%s %s has a mark without a reason: %v %s", f.Name(), s.Name, err, line)
			}
		}
	}
}
