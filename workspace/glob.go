package workspace

import (
	"fmt"
	"regexp"
	"strings"
)

// Parts of regular expressions.
const (
	anything = `.*`
	inName   = `[^/]*`
	anyByte  = `.`
	oneOf    = `[^/]`
	nothing  = `[^\x00-\x{10FFFF}]` // matches nothing
)

// translate converts a git pattern (wildmatch) to a regular expression. In a path, "*" does not match
// "/", but "**" as a complete path element does. The expression matches in time linear in the name's length.
func translate(pattern string, isPath bool) (*regexp.Regexp, error) {
	t := translator{rest: pattern, isPath: isPath, begun: true}
	t.out.WriteString(`(?s)\A(?:`)
	for t.rest != "" {
		t.next()
	}
	t.out.WriteString(`)\z`)
	return regexp.Compile(t.out.String())
}

type translator struct {
	out    strings.Builder
	rest   string // the part of the pattern that has not been translated
	isPath bool
	begun  bool // whether this is the pattern's beginning or follows a "/"
}

// next translates the next element of the pattern.
func (t *translator) next() {
	c := t.rest[0]
	begun := t.begun
	t.rest, t.begun = t.rest[1:], false
	switch c {
	case '*':
		t.star(begun)
	case '?':
		t.out.WriteString(t.pick(oneOf, anyByte))
	case '[':
		t.set()
	case '\\':
		if t.rest == "" {
			t.out.WriteString(nothing)
			return
		}
		t.literal(t.rest[0])
		t.begun = t.rest[0] == '/'
		t.rest = t.rest[1:]
	default:
		t.literal(c)
		t.begun = c == '/'
	}
}

func (t *translator) pick(inPath, otherwise string) string {
	if t.isPath {
		return inPath
	}
	return otherwise
}

func (t *translator) literal(c byte) { t.out.WriteString(regexp.QuoteMeta(latin1(string([]byte{c})))) }

// star translates a star, which next has removed, and the stars that follow it.
func (t *translator) star(begun bool) {
	more := len(t.rest)
	t.rest = strings.TrimLeft(t.rest, "*")
	more -= len(t.rest)
	alone := begun && (t.rest == "" || t.rest[0] == '/' || strings.HasPrefix(t.rest, `\/`))
	switch {
	case !t.isPath:
		t.out.WriteString(anything)
	case more == 0 || !alone:
		t.out.WriteString(inName)
	case strings.HasPrefix(t.rest, "/"): // a/**/b is also a/b
		t.out.WriteString(`(?:` + anything + `/)?`)
		t.rest, t.begun = t.rest[1:], true
	default:
		t.out.WriteString(anything)
	}
}

// set translates a bracket expression, whose opening bracket next has removed.
func (t *translator) set() {
	in, rest, ok := parseSet(t.rest)
	if t.rest = rest; !ok {
		t.out.WriteString(nothing)
		t.rest = ""
		return
	}
	if t.isPath {
		in['/'] = false
	}
	var ranges strings.Builder
	for first := 0; first < len(in); first++ {
		last := first
		for in[first] && last+1 < len(in) && in[last+1] {
			last++
		}
		if in[first] {
			fmt.Fprintf(&ranges, `\x%02x-\x%02x`, first, last)
		}
		first = last
	}
	if ranges.Len() == 0 {
		t.out.WriteString(nothing)
		return
	}
	t.out.WriteString("[" + ranges.String() + "]")
}

// parseSet parses a bracket expression up to its closing bracket. ok is false if there is none, or if a class does not exist.
func parseSet(p string) (in [256]bool, rest string, ok bool) {
	negated := p != "" && (p[0] == '!' || p[0] == '^')
	if negated {
		p = p[1:]
	}
	for first, before := true, -1; ; first = false { // before: a byte that a range can begin with
		if p == "" {
			return in, "", false
		}
		c := p[0]
		switch {
		case c == ']' && !first:
			if negated {
				for i := range in {
					in[i] = !in[i]
				}
			}
			return in, p[1:], true
		case c == '-' && before >= 0 && len(p) > 1 && p[1] != ']':
			last := p[1]
			p = p[2:]
			if last == '\\' {
				if p == "" {
					return in, "", false
				}
				last, p = p[0], p[1:]
			}
			for b := before; b <= int(last); b++ {
				in[b] = true
			}
			before = -1
			continue
		case strings.HasPrefix(p, "[:"):
			end := strings.IndexByte(p[2:], ']')
			if end < 0 {
				return in, "", false
			}
			if end > 0 && p[2+end-1] == ':' {
				class := classes[p[2:2+end-1]]
				if class == nil {
					return in, "", false
				}
				for b := range in {
					in[b] = in[b] || b < 0x80 && class(byte(b))
				}
				p, before = p[2+end+1:], -1
				continue
			}
		case c == '\\':
			if p = p[1:]; p == "" {
				return in, "", false
			}
			c = p[0]
		}
		in[c], before, p = true, int(c), p[1:]
	}
}

func between(first, last byte) func(byte) bool {
	return func(c byte) bool { return first <= c && c <= last }
}

func either(tests ...func(byte) bool) func(byte) bool {
	return func(c byte) bool {
		for _, is := range tests {
			if is(c) {
				return true
			}
		}
		return false
	}
}

func among(set string) func(byte) bool {
	return func(c byte) bool { return strings.IndexByte(set, c) >= 0 }
}

var (
	isLower = between('a', 'z')
	isUpper = between('A', 'Z')
	isDigit = between('0', '9')
	isPunct = either(between('!', '/'), between(':', '@'), between('[', '`'), between('{', '~'))
)

// classes are the character classes, such as [:alpha:].
var classes = map[string]func(byte) bool{
	"alnum": either(isLower, isUpper, isDigit), "alpha": either(isLower, isUpper), "blank": among(" \t"),
	"cntrl": either(between(0, 0x1f), between(0x7f, 0x7f)), "digit": isDigit, "graph": between('!', '~'), "lower": isLower, "print": between(' ', '~'),
	"punct": isPunct, "space": among(" \t\n\v\f\r"), "upper": isUpper, "xdigit": either(isDigit, between('a', 'f'), between('A', 'F')),
}
