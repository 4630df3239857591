package project

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/custody-project/custody/netpolicy"
)

// WithEgress returns a file's text with other egress rules and nothing else
// changed. A rule that stays keeps its position, its text and the comments above it; new
// ones are appended. Empty text makes a new file.
func WithEgress(name string, text []byte, rules []netpolicy.Rule) ([]byte, error) {
	if len(text) == 0 {
		text = []byte(fmt.Sprintf("version: %d\n", Version))
	}
	f, err := Parse(name, text)
	if err != nil {
		return nil, err
	}
	s, err := findEgress(name, text)
	if err != nil {
		return nil, err
	}
	items := s.items(f.Egress)
	var kept []string
	var fresh []netpolicy.Rule
	for _, r := range rules {
		i := slices.IndexFunc(f.Egress, func(old netpolicy.Rule) bool { return old.String() == r.String() })
		if i < 0 || items == nil {
			fresh = append(fresh, r)
		}
	}
	for i, item := range items {
		if slices.ContainsFunc(rules, func(r netpolicy.Rule) bool { return r.String() == f.Egress[i].String() }) {
			kept = append(kept, item...)
		}
	}
	body := s.compose(kept, fresh, items != nil)
	out := []byte(strings.Join(slices.Concat(s.before, body, s.after), ""))
	if err := f.sameBut(rules, name, out); err != nil {
		return nil, err
	}
	return out, nil
}

// sameBut parses a changed file: only the intended change may differ.
func (f *File) sameBut(rules []netpolicy.Rule, name string, text []byte) error {
	odd := errors.New(name + ": its layout cannot be edited by a program; make the change by hand")
	g, err := Parse(name, text)
	if err != nil {
		return odd
	}
	got, err := g.Policy()
	if err != nil {
		return odd
	}
	want, err := netpolicy.New(rules)
	if err != nil {
		return err
	}
	before := *f
	before.Egress, g.Egress, before.SHA256, g.SHA256 = nil, nil, "", ""
	if got.String() != want.String() || !reflect.DeepEqual(before, g) {
		return odd
	}
	return nil
}

// section is the part of a file with the egress rules, as lines with their line ends.
type section struct {
	before, lines, after []string
	first                int // index of the first of lines
}

// findEgress splits a file's lines. Without egress rules the section is empty, at the end.
func findEgress(name string, text []byte) (section, error) {
	lines := strings.SplitAfter(string(text), "\n")
	if last := len(lines) - 1; lines[last] == "" {
		lines = lines[:last]
	} else {
		lines[last] += "\n"
	}
	d := &reader{file: name}
	body, err := d.document(text)
	if err != nil {
		return section{}, err
	}
	if m, ok := body.(*ast.MappingNode); ok && m.IsFlowStyle {
		return section{}, d.err(body, "the file is one pair of braces", "put each key on a separate line so that a program can change the rules")
	}
	keys, err := d.entries(body, "the file")
	if err != nil {
		return section{}, err
	}
	from, to := len(lines), len(lines)
	for i, k := range keys {
		if k.key == "egress" {
			from = k.at.GetToken().Position.Line - 1
			if i+1 < len(keys) {
				to = keys[i+1].at.GetToken().Position.Line - 1
			}
		}
	}
	if from > to || to > len(lines) {
		return section{}, d.err(body, "the lines of its egress rules cannot be found", "end lines with a newline")
	}
	for to > from+1 && isFiller(lines[to-1]) {
		to--
	}
	return section{before: lines[:from], lines: lines[from:to], after: lines[to:], first: from + 1}, nil
}

// isFiller reports whether a line belongs to the next part: a comment at the
// left margin, a document separator or an empty line.
func isFiller(line string) bool {
	s := strings.TrimRight(line, " \t\r\n")
	return s == "" || s[0] == '#' || s == "---" || s == "..."
}

// items splits the section's lines among the rules, each of which begins on a separate
// line with a dash. Comments belong to the rule below them. It returns nil if the section has
// another layout.
func (s section) items(rules []netpolicy.Rule) [][]string {
	var starts []int
	for _, r := range rules {
		at := r.Line - s.first
		for at > 0 && !isDash(s.lines[at]) {
			at--
		}
		if at <= 0 || at >= len(s.lines) || len(starts) > 0 && at <= starts[len(starts)-1] {
			return nil
		}
		starts = append(starts, at)
	}
	var items [][]string
	for i, at := range starts {
		end := len(s.lines)
		if i+1 < len(starts) {
			end = s.above(starts[i+1])
		}
		items = append(items, s.lines[s.above(at):end])
	}
	return items
}

func isDash(line string) bool { return strings.HasPrefix(strings.TrimLeft(line, " "), "-") }

// above returns the index of the first of the comments and empty lines directly above a line.
func (s section) above(at int) int {
	for at > 1 {
		if above := strings.TrimSpace(s.lines[at-1]); above != "" && above[0] != '#' {
			break
		}
		at--
	}
	return at
}

// compose formats the section again.
func (s section) compose(kept []string, fresh []netpolicy.Rule, block bool) []string {
	if len(kept) == 0 && len(fresh) == 0 {
		return nil
	}
	out, indent := []string{"egress:\n"}, "  "
	if block && len(s.lines) > 1 {
		out[0] = s.lines[0]
		if i := slices.IndexFunc(s.lines, isDash); i > 0 {
			indent = s.lines[i][:strings.IndexByte(s.lines[i], '-')]
		}
	}
	out = append(out, kept...)
	for _, r := range fresh {
		out = append(out, strings.SplitAfter(yamlOf(r, indent), "\n")...)
	}
	return out
}

// yamlOf writes a rule as an item of a list.
func yamlOf(r netpolicy.Rule, indent string) string {
	var b strings.Builder
	key := func(name, value string) { fmt.Fprintf(&b, "%s  %s: %s\n", indent, name, value) }
	fmt.Fprintf(&b, "%s- allow: %s\n", indent, yamlWord(r.Pattern.String()))
	var ports, ranges, http []string
	for _, p := range r.Ports {
		ports = append(ports, p.String())
	}
	for _, a := range r.Addresses {
		ranges = append(ranges, a.String())
	}
	if !slices.Equal(ports, []string{"tcp/443"}) {
		key("ports", yamlList(ports))
	}
	if r.Mode == netpolicy.Direct {
		key("mode", string(r.Mode))
	}
	if r.HTTP != nil {
		if len(r.HTTP.Methods) > 0 {
			http = append(http, "methods: "+yamlList(r.HTTP.Methods))
		}
		if len(r.HTTP.Paths) > 0 {
			http = append(http, "paths: "+yamlList(r.HTTP.Paths))
		}
		if redacts := r.Redacts(); redacts != (r.Credential != "") {
			http = append(http, fmt.Sprintf("redact: %t", redacts))
		}
		key("http", "{"+strings.Join(http, ", ")+"}")
	}
	if len(ranges) > 0 {
		key("addresses", yamlList(ranges))
	}
	if r.Credential != "" {
		key("credential", yamlWord(r.Credential))
	}
	return b.String()
}

func yamlList(items []string) string {
	words := make([]string, len(items))
	for i, s := range items {
		words[i] = yamlWord(s)
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// yamlWord quotes text that YAML could parse as something else than this string.
func yamlWord(s string) string {
	plain := strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/") == ""
	number := strings.Trim(s, "0123456789.+-xXabcdefABCDEF_oO") == ""
	meaning := slices.Contains([]string{"null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf", ".nan", ".inf"}, strings.ToLower(s))
	if plain && !number && !meaning && !strings.HasPrefix(s, "-") {
		return s
	}
	return strconv.Quote(s)
}
