package clickhouse

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
)

// TestClasses: docs/clickhouse.md lists each kind of the table in the class of its records.
func TestClasses(t *testing.T) {
	b, err := os.ReadFile("../../docs/clickhouse.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range append(audit.Kinds(), "newer") {
		class := classOf(kind)
		m := regexp.MustCompile("(?m)^\\| `" + string(class) + "` \\| (.*) \\|$").FindSubmatch(b)
		if m == nil {
			t.Fatalf("clickhouse.md has no class %s", class)
		}
		listed := strings.FieldsFunc(string(m[1]), func(r rune) bool { return strings.ContainsRune(" ,:", r) })
		if kind.Known() && !slices.Contains(listed, string(kind)) {
			t.Errorf("clickhouse.md does not have the kind %s in the class %s", kind, class)
		}
	}
}
