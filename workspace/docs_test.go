package workspace

import (
	"os"
	"strings"
	"testing"
)

// TestListed: docs/operations.md lists all names that are not copied out unchanged or that are considered private.
func TestListed(t *testing.T) {
	b, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ToLower(string(b))
	for _, names := range []map[string]string{files, patterns, folders, privateFiles, privateIn, privateFolders, privateSuffixes} {
		for name := range names {
			if !strings.Contains(text, "`"+name+"`") {
				t.Errorf("docs/operations.md does not list %s", name)
			}
		}
	}
}
