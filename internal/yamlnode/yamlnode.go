// Package yamlnode reads values of YAML nodes, for parsers that report where a mistake is.
package yamlnode

import (
	"math"

	"github.com/goccy/go-yaml/ast"
)

// Integer returns the integer in n, and false if there is none. One that does not fit is math.MaxInt64.
func Integer(n ast.Node) (int64, bool) {
	v, ok := n.(*ast.IntegerNode)
	if !ok {
		return 0, false
	}
	switch i := v.Value.(type) {
	case int64:
		return i, true
	case uint64:
		return int64(min(i, math.MaxInt64)), true
	}
	return 0, false
}
