package workspace

import (
	"os"
	"strings"
	"testing"
)

// TestListed: the page that lists what is not copied out under its own name, and what is taken for private, lists all of it.
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
