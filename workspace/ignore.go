package workspace

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// IgnoreFile is the name of the file, in the directory that is copied in, that describes what is not copied.
const IgnoreFile = ".custodyignore"

// maxIgnore is far more than a list of patterns that people write.
const (
	maxIgnore  = 64 << 10
	maxPattern = 4 << 10 // what a path can have
)

// Ignore is what an IgnoreFile says. It is written as a .gitignore is, and means what that means
// to git; only the one file counts, none in a directory below.
type Ignore struct{ rules []rule }

// rule is one line of it.
type rule struct {
	keeps   bool   // the line begins with "!"
	folders bool   // it ends with "/": is about directories only
	base    bool   // it has no other "/": is about the last name of a path, wherever that is
	literal string // what a path has to begin with
	rest    *regexp.Regexp
}

// ParseIgnore reads the content of an IgnoreFile. Git knows no wrong pattern, only those that match nothing.
func ParseIgnore(text []byte) (*Ignore, error) {
	if len(text) > maxIgnore {
		return nil, fmt.Errorf("%s has %d bytes, at most %d", IgnoreFile, len(text), maxIgnore)
	}
	g := &Ignore{}
	for line := range bytes.SplitSeq(bytes.TrimPrefix(text, []byte("\ufeff")), []byte("\n")) {
		line, _, _ := strings.Cut(string(bytes.TrimSuffix(line, []byte("\r"))), "\x00") // the end of it for git
		if strings.HasPrefix(line, "#") {
			continue
		}
		if line = trimBlanks(line); line == "" {
			continue
		}
		r, err := newRule(line)
		if err != nil {
			return nil, fmt.Errorf("%s: the pattern %.80q: %w", IgnoreFile, line, err)
		}
		g.rules = append(g.rules, r)
	}
	return g, nil
}

// trimBlanks removes the blanks at the end of a line, but for one that a backslash stands before.
func trimBlanks(line string) string {
	end := len(line)
	for i := 0; i < len(line); i++ {
		if line[i] == ' ' {
			end = min(end, i)
			continue
		}
		if line[i] == '\\' {
			i++
		}
		end = len(line)
	}
	return line[:end]
}

func newRule(pattern string) (r rule, err error) {
	if len(pattern) > maxPattern {
		return r, fmt.Errorf("it has %d bytes, at most %d", len(pattern), maxPattern)
	}
	pattern, r.keeps = strings.CutPrefix(pattern, "!")
	pattern, r.folders = strings.CutSuffix(pattern, "/")
	r.base = !strings.Contains(pattern, "/")
	if !r.base {
		pattern = strings.TrimPrefix(pattern, "/")
		special := strings.IndexAny(pattern, `*?[\`)
		if special < 0 {
			special = len(pattern)
		}
		r.literal, pattern = pattern[:special], pattern[special:]
	}
	r.rest, err = translate(pattern, !r.base)
	return r, err
}

// Match reports whether an entry is left out because of a line that is about it. What is below a directory that is left out is so, too,
// which the caller sees to: git does not look there. Without an IgnoreFile, g is nil and nothing is.
func (g *Ignore) Match(name string, folder bool) bool {
	if g == nil {
		return false
	}
	for i := len(g.rules) - 1; i >= 0; i-- { // the last line that is about an entry counts
		if r := &g.rules[i]; r.about(name, folder) {
			return !r.keeps
		}
	}
	return false
}

func (r *rule) about(name string, folder bool) bool {
	if r.folders && !folder {
		return false
	}
	if r.base {
		name = path.Base(name)
	}
	rest, ok := strings.CutPrefix(name, r.literal)
	return ok && r.rest.MatchString(latin1(rest))
}

// latin1 makes a rune of each byte: patterns are about bytes, as the names of files are.
func latin1(s string) string {
	plain := true
	for i := range len(s) {
		plain = plain && s[i] < 0x80
	}
	if plain {
		return s
	}
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}
