package verdict_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit/proof/verdict"
)

// TestFindings checks that each finding is listed once, with a unique name and number.
func TestFindings(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "verdict.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if c, ok := n.(*ast.CompositeLit); ok {
			if id, ok := c.Type.(*ast.Ident); ok && id.Name == "Finding" {
				made++
			}
		}
		return true
	})
	names, texts, last := map[string]bool{}, map[string]bool{}, 9
	for _, f := range verdict.Findings() {
		if names[f.Name()] || texts[f.Error()] || f.Status() <= last || f.Status() > 99 {
			t.Errorf("%s, %d: out of order or there twice", f.Name(), f.Status())
		}
		if !regexp.MustCompile(`^[a-z]+(-[a-z]+)+$`).MatchString(f.Name()) || strings.HasSuffix(f.Error(), ".") {
			t.Errorf("%q, %q", f.Name(), f.Error())
		}
		names[f.Name()], texts[f.Error()], last = true, true, f.Status()
	}
	if made != len(names) {
		t.Errorf("%d findings, %d of them are listed", made, len(names))
	}
	v := verdict.Verdict{Outcome: verdict.ErrDoesNotHold, Finding: verdict.ErrAltered}
	if v.Name() != "record-altered" || v.Status() != 10 {
		t.Errorf("%s, %d", v.Name(), v.Status())
	}
}
