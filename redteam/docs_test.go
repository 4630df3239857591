package redteam

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of probes into docs/redteam.md")

// TestPage: the published page has the current list of probes. `go test ./redteam -run Page -update` writes it.
func TestPage(t *testing.T) {
	const path, mark = "../docs/redteam.md", "## The probes\n"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text, table, ok := strings.Cut(string(b), mark)
	if !ok {
		t.Fatalf("%s has no %q", path, mark)
	}
	var want strings.Builder
	probes, controls := 0, 0
	group := ""
	for _, p := range Probes("") {
		if p.Control {
			controls++
		} else {
			probes++
		}
		if g, _, _ := strings.Cut(p.ID, "/"); g != group {
			group = g
			fmt.Fprintf(&want, "\n### %s\n\n| probe | what it tries | bypass |\n| --- | --- | --- |\n", group)
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s |\n", p.ID, p.Title, p.Bypass)
	}
	if *update {
		if err := os.WriteFile(path, []byte(text+mark+want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		table = want.String()
	}
	if table != want.String() {
		t.Errorf("the table in %s is not current; go test ./redteam -run Page -update writes it", path)
	}
	if count := fmt.Sprintf("%d probes and %d controls", probes, controls); !strings.Contains(text, count) {
		t.Errorf("%s does not contain %q", path, count)
	}
}
