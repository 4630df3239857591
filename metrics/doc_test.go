package metrics_test

import (
	"os"
	"regexp"
	"testing"
)

// documented parses names and types from the table in the package's comment.
func documented(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^//\t(custody_\w+)(?:\{[a-z,]+\})?\s+(\w+)`).FindAllStringSubmatch(string(text), -1) {
		listed[m[1]] = m[2]
	}
	return listed
}
