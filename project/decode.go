package project

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/internal/yamlnode"
	"github.com/docker/go-units"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Error is an error in a file, with its position and remedy.
type Error struct {
	File         string
	Line, Column int // from 1; 0 for the whole file
	Message      string
	Hint         string // may be empty
}

// Error returns file:line:column: message; hint.
func (e *Error) Error() string {
	at := e.File
	if e.Line > 0 {
		at = fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column)
	}
	if e.Hint == "" {
		return at + ": " + e.Message
	}
	return at + ": " + e.Message + "; " + e.Hint
}

// reader reads the values of a YAML file. It walks the syntax tree instead of decoding into tagged structs, because
// an error about a value has the value's position.
type reader struct {
	file string // as errors name it
	// at, if it is set, gets the lines and columns of keys, such as limits.cpus.
	at map[string][2]int
}

func (r *reader) err(n ast.Node, message, hint string) error {
	if n == nil {
		return r.errAt(nil, message, hint)
	}
	return r.errAt(n.GetToken(), message, hint)
}

func (r *reader) errAt(t *token.Token, message, hint string) error {
	e := &Error{File: r.file, Message: message, Hint: hint}
	if t != nil && t.Position != nil {
		e.Line, e.Column = t.Position.Line, t.Position.Column
	}
	return e
}

// document returns the body of the only document in b.
func (r *reader) document(b []byte) (ast.Node, error) {
	if len(b) > maxFile {
		return nil, r.err(nil, fmt.Sprintf("the file has more than %d bytes", maxFile), "a project's file lists rules, not data")
	}
	f, err := r.parse(string(b))
	if err != nil {
		return nil, err
	}
	var body ast.Node
	for _, doc := range f.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			return nil, r.err(doc.Body, "a second document starts here", `keep one document and remove the text after "---"`)
		}
		body = doc.Body
	}
	if body == nil || body.Type() == ast.NullType {
		return nil, r.err(nil, "the file is empty", `it needs at least the line "version: 1"`)
	}
	return body, nil
}

// maxNesting is the maximum nesting of brackets and dashes. The parser is
// recursive, and this file needs five levels.
const maxNesting = 32

func (r *reader) parse(s string) (f *ast.File, err error) {
	// The parser is a library's and its input is untrusted: a panic counts as a bad file.
	defer func() {
		if p := recover(); p != nil {
			f, err = nil, r.err(nil, "the file cannot be parsed as YAML", "reduce it until the offending line is found")
		}
	}()
	tokens := lexer.Tokenize(s)
	if err := r.plain(tokens); err != nil {
		return nil, err
	}
	f, err = parser.Parse(tokens, 0)
	if e := yaml.Error(nil); errors.As(err, &e) {
		return nil, r.errAt(e.GetToken(), e.GetMessage(), "")
	} else if err != nil {
		return nil, r.err(nil, err.Error(), "")
	}
	return f, nil
}

// plain refuses the parts of YAML with which a file could mean something else than it appears to.
func (r *reader) plain(tokens token.Tokens) error {
	open, dashes := 0, 0
	for _, t := range tokens {
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			return r.errAt(t, "anchors, aliases and merge keys are not allowed", "write the value out where it is used")
		case token.TagType, token.DirectiveType:
			return r.errAt(t, "tags and directives are not allowed", "remove it")
		case token.MappingKeyType:
			return r.errAt(t, `a key marked with "?" is not allowed`, `write it as "key: value"`)
		case token.MappingStartType, token.SequenceStartType:
			open++
		case token.MappingEndType, token.SequenceEndType:
			open--
		case token.InvalidType:
			return r.errAt(t, t.Error, "")
		}
		if dashes++; t.Type != token.SequenceEntryType {
			dashes = 0
		}
		if open > maxNesting || dashes > maxNesting || t.Position != nil && t.Position.IndentLevel > maxNesting {
			return r.errAt(t, "the file is nested too deeply", "custody.yaml needs five levels")
		}
	}
	return nil
}

// entry is a key of a mapping with its value.
type entry struct {
	key   string
	at    ast.Node
	value ast.Node
}

func (r *reader) entries(n ast.Node, what string) ([]entry, error) {
	m, ok := n.(ast.MapNode)
	if !ok {
		return nil, r.err(n, fmt.Sprintf("%s must be a mapping, not %s", what, kind(n)), `write "key: value" pairs`)
	}
	var out []entry
	for it := m.MapRange(); it.Next(); {
		var key string
		if err := r.text(it.Key(), "a key", &key); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(e entry) bool { return e.key == key }) {
			return nil, r.err(it.Key(), fmt.Sprintf("%q is given twice in %s", key, what), "keep one of them")
		}
		if it.Value() == nil || it.Value().Type() == ast.NullType {
			return nil, r.err(it.Key(), fmt.Sprintf("%q has no value", key), "give it one or remove it")
		}
		out = append(out, entry{key, it.Key(), it.Value()})
	}
	return out, nil
}

// fields are the keys that a mapping may have, with their readers.
type fields map[string]func(ast.Node) error

func (r *reader) mapping(n ast.Node, what string, known fields) error {
	list, err := r.entries(n, what)
	if err != nil {
		return err
	}
	for _, e := range list {
		read, ok := known[e.key]
		if !ok {
			return r.unknown(e, what, known)
		}
		if t := e.at.GetToken(); r.at != nil && t != nil && t.Position != nil {
			r.at[strings.TrimPrefix(what+"."+e.key, "the file.")] = [2]int{t.Position.Line, t.Position.Column}
		}
		if err := read(e.value); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) unknown(e entry, what string, known fields) error {
	var keys []string
	for k := range known {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	hint := "known keys are " + strings.Join(keys, ", ")
	if k := nearest(e.key, keys); k != "" {
		hint = fmt.Sprintf("did you mean %q?", k)
	}
	return r.err(e.at, fmt.Sprintf("unknown key %q in %s", e.key, what), hint)
}

func (r *reader) items(n ast.Node, what string, read func(ast.Node) error) error {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		return r.err(n, fmt.Sprintf("%s must be a list, not %s", what, kind(n)), `write "- item" lines or [a, b]`)
	}
	for _, v := range s.Values {
		if v == nil || v.Type() == ast.NullType {
			return r.err(v, "an item of "+what+" is empty", "remove it")
		}
		if err := read(v); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) text(n ast.Node, what string, to *string) error {
	switch n := n.(type) {
	case *ast.StringNode:
		*to = n.Value
	case *ast.LiteralNode:
		*to = n.Value.Value
	default:
		return r.err(n, fmt.Sprintf("%s must be a string, not %s", what, kind(n)), "put it in quotes")
	}
	if strings.ContainsRune(*to, 0) {
		return r.err(n, what+" contains a zero byte", "remove it")
	}
	return nil
}

func (r *reader) texts(n ast.Node, what string, to *[]string, check func(string) string) error {
	return r.items(n, what, func(n ast.Node) error {
		var s string
		if err := r.checked(n, "an item of "+what, &s, check); err != nil {
			return err
		}
		*to = append(*to, s)
		return nil
	})
}

// checked reads a string that check accepts.
func (r *reader) checked(n ast.Node, what string, to *string, check func(string) string) error {
	if err := r.text(n, what, to); err != nil {
		return err
	}
	if hint := check(*to); hint != "" {
		return r.err(n, fmt.Sprintf("%s cannot be %q", what, *to), hint)
	}
	return nil
}

func (r *reader) boolean(n ast.Node, what string, to *bool) error {
	b, ok := n.(*ast.BoolNode)
	if !ok {
		return r.err(n, fmt.Sprintf("%s must be true or false, not %s", what, kind(n)), "write it without quotes")
	}
	*to = b.Value
	return nil
}

func (r *reader) integer(n ast.Node, what string, least, most int64, to *int) error {
	i, ok := yamlnode.Integer(n)
	if !ok {
		return r.err(n, fmt.Sprintf("%s must be a whole number, not %s", what, kind(n)), "write it without quotes or unit")
	}
	if i < least || i > most {
		return r.err(n, fmt.Sprintf("%s is %d", what, i), fmt.Sprintf("give %d to %d", least, most))
	}
	*to = int(i)
	return nil
}

// size reads a number of bytes: plain or with a binary unit, in the syntax of docker/go-units.
func (r *reader) size(n ast.Node, what string, least, most int64, to *int64) error {
	i, ok := yamlnode.Integer(n)
	if s, isText := n.(*ast.StringNode); isText {
		v, err := units.RAMInBytes(s.Value)
		i, ok = v, err == nil
		if ok && v < 0 { // more than an int64
			i = math.MaxInt64
		}
	}
	if !ok {
		return r.err(n, fmt.Sprintf("%s must be a size, not %s", what, shown(n)), "write 512MiB, 2GiB or a number of bytes")
	}
	if i < least || i > most {
		return r.err(n, fmt.Sprintf("%s is %s", what, shown(n)), fmt.Sprintf("give %s to %s", bytesize(least), bytesize(most)))
	}
	*to = i
	return nil
}

func bytesize(n int64) string {
	if n < 1024 {
		return fmt.Sprint(n)
	}
	return units.CustomSize("%.4g%s", float64(n), 1024, []string{"B", "KiB", "MiB", "GiB", "TiB"})
}

func (r *reader) duration(n ast.Node, what string, to *time.Duration) error {
	s, ok := n.(*ast.StringNode)
	if !ok {
		return r.err(n, fmt.Sprintf("%s must be a duration with a unit, not %s", what, shown(n)), "write 90s, 15m or 1h30m")
	}
	v, err := time.ParseDuration(s.Value)
	if err != nil {
		return r.err(n, fmt.Sprintf("%s must be a duration, not %q", what, s.Value), "write 90s, 15m or 1h30m")
	}
	if v <= 0 {
		return r.err(n, fmt.Sprintf("%s is %s", what, s.Value), "give more than 0")
	}
	*to = v
	return nil
}

// shown returns a scalar as in the file, anything else as the name of its kind.
func shown(n ast.Node) string {
	if s, ok := n.(ast.ScalarNode); ok && s.GetToken() != nil {
		return fmt.Sprintf("%q", s.GetToken().Value)
	}
	return kind(n)
}

func kind(n ast.Node) string {
	switch n.(type) {
	case nil:
		return "nothing"
	case ast.MapNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "a string"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return "true or false"
	case *ast.NullNode:
		return "nothing"
	}
	return strings.ToLower(n.Type().String())
}

// nearest returns the key with the fewest edits from s, if they are few.
func nearest(s string, keys []string) string {
	best, found := 3, ""
	for _, k := range keys {
		if n := edits(s, k); n < best && n < len(k) {
			best, found = n, k
		}
	}
	return found
}

// edits returns the Levenshtein distance, computed row by row.
func edits(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
