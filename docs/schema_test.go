package docs_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"testing"

	"github.com/custody-project/custody/audit/proof/schema"
)

var update = flag.Bool("update", false, "write the form of records anew")

// TestRecordSchema: record.json, verify.py and the page accept the same fields of records as verify.
func TestRecordSchema(t *testing.T) {
	form := schema.RecordSchema()
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, form, "", "  "); err != nil {
		t.Fatal(err)
	}
	pretty.WriteByte('\n')
	for path, change := range map[string]func(was []byte) []byte{
		"record.json": func([]byte) []byte { return pretty.Bytes() },
		"verify.py": func(was []byte) []byte {
			line := regexp.MustCompile(`(?m)^RECORD = .*$`)
			return line.ReplaceAllLiteral(was, append([]byte("RECORD = "), form...))
		},
		"../replay/web/ui/src/proof/schema.json": func([]byte) []byte { return pretty.Bytes() },
	} {
		was, err := os.ReadFile(path)
		if err != nil && !*update {
			t.Fatal(err)
		}
		want := change(was)
		if bytes.Equal(was, want) {
			continue
		}
		if !*update {
			t.Errorf("%s does not have the form of records: run go test ./docs -update", path)
		} else if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Error(err)
		}
	}
}
