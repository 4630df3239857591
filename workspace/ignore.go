package workspace

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// IgnoreFile is the name of the file with the patterns of files that are not copied in. It is in the directory that is copied.
const IgnoreFile = ".custodyignore"

// Bounds of an IgnoreFile, in bytes.
const (
	maxIgnore  = 64 << 10
	maxPattern = 4 << 10 // PATH_MAX
)

// Ignore contains the patterns of an IgnoreFile, which has the syntax and semantics of a .gitignore
// file. Only the file in the copied directory counts, not files in subdirectories.
type Ignore struct{ rules []rule }

// rule is a line of an IgnoreFile.
type rule struct {
	keeps   bool   // the line begins with "!": entries that match are not ignored
	folders bool   // the line ends with "/": it matches directories only
	base    bool   // the line has no other "/": it matches the last element of a path
	literal string // the prefix that a path must have
	rest    *regexp.Regexp
}

// ParseIgnore parses the content of an IgnoreFile. As in git, a malformed pattern is not an error; it matches nothing.
func ParseIgnore(text []byte) (*Ignore, error) {
	if len(text) > maxIgnore {
		return nil, fmt.Errorf("%s has %d bytes, at most %d", IgnoreFile, len(text), maxIgnore)
	}
	g := &Ignore{}
	for line := range bytes.SplitSeq(bytes.TrimPrefix(text, []byte("\ufeff")), []byte("\n")) {
		line, _, _ := strings.Cut(string(bytes.TrimSuffix(line, []byte("\r"))), "\x00") // git ignores the rest of the line
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

// trimBlanks removes the spaces at the end of a line, except one after a backslash.
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

// Match reports whether a line of the IgnoreFile excludes an entry. It does not check the directories above the entry:
// the caller must skip everything below an excluded directory. g may be nil, for a directory without an IgnoreFile.
func (g *Ignore) Match(name string, folder bool) bool {
	if g == nil {
		return false
	}
	for i := len(g.rules) - 1; i >= 0; i-- { // the last line that matches counts
		if r := &g.rules[i]; r.matches(name, folder) {
			return !r.keeps
		}
	}
	return false
}

func (r *rule) matches(name string, folder bool) bool {
	if r.folders && !folder {
		return false
	}
	if r.base {
		name = path.Base(name)
	}
	rest, ok := strings.CutPrefix(name, r.literal)
	return ok && r.rest.MatchString(latin1(rest))
}

// latin1 converts each byte to a rune, because patterns and file names are sequences of bytes.
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
