package pattern

import (
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// rule is a gitleaks rule. It never changes; its expression is compiled on first use, since a run needs few of them.
type rule struct {
	id      string
	generic bool // other rules have precedence
	group   int  // of the secret; 0: the first that is not empty
	entropy float64
	allow   []*allowlist // the rule's and the global ones

	source    string
	fromStart bool // the expression asserts the beginning of the text
	once      sync.Once
	re        *regexp.Regexp
	onceAt    sync.Once
	reAt      *regexp.Regexp
}

func (r *rule) regexp() *regexp.Regexp {
	r.once.Do(func() { r.re = regexp.MustCompile(r.source) }) // New has parsed it
	return r.re
}

// anchored matches the expression only after the first rune of a text, which is the context for assertions.
func (r *rule) anchored() *regexp.Regexp {
	r.onceAt.Do(func() { r.reAt = regexp.MustCompile(`\A(?s:.)(?:` + r.source + `)`) })
	return r.reAt
}

// The text to which an allowlist's expressions are applied.
const (
	onSecret = ""
	onMatch  = "match"
	onLine   = "line"
)

// allowlist recognizes text that is not a secret: if all of its conditions apply, or one of them.
type allowlist struct {
	target  string
	and     bool
	stop    stopwords
	sources []string
	once    sync.Once
	re      *regexp.Regexp
}

// newAllowlist returns nil for an allowlist that never applies here, since there are neither paths nor commits.
func newAllowlist(a rawAllowlist) (*allowlist, error) {
	out := &allowlist{target: a.RegexTarget, sources: a.Regexes, stop: newStopwords(a.StopWords)}
	if out.target == "secret" {
		out.target = onSecret
	}
	if !slices.Contains([]string{onSecret, onMatch, onLine}, out.target) {
		return nil, fmt.Errorf("allowlist: unknown regexTarget %q", a.RegexTarget)
	}
	switch strings.ToUpper(a.Condition) {
	case "", "OR", "||":
	case "AND", "&&":
		out.and = true
	default:
		return nil, fmt.Errorf("allowlist: unknown condition %q", a.Condition)
	}
	if len(a.Regexes)+len(a.StopWords) == 0 || out.and && len(a.Paths)+len(a.Commits) > 0 {
		return nil, nil
	}
	if _, err := syntax.Parse(out.joined(), syntax.Perl); err != nil {
		return nil, fmt.Errorf("allowlist: %w", err)
	}
	return out, nil
}

// joined joins the expressions as gitleaks does: a flag at the start of one applies to those after it.
func (a *allowlist) joined() string { return "(?:" + strings.Join(a.sources, "|") + ")" }

func (a *allowlist) regexp() *regexp.Regexp {
	a.once.Do(func() { a.re = regexp.MustCompile(a.joined()) }) // newAllowlist has parsed it
	return a.re
}

func (a *allowlist) allows(secret, match, line []byte) bool {
	target := secret
	switch a.target {
	case onMatch:
		target = match
	case onLine:
		target = line
	}
	listed := func() bool { return len(target) > 0 && a.regexp().Match(target) }
	if !a.and {
		return a.stop.in(secret) || len(a.sources) > 0 && listed()
	}
	return (len(a.stop) == 0 || a.stop.in(secret)) && (len(a.sources) == 0 || listed())
}

// stopwords are words that secrets do not contain, by their first two bytes.
type stopwords map[[2]byte][]string

func newStopwords(list []string) stopwords {
	s := stopwords{}
	for _, w := range list {
		if w = strings.ToLower(w); len(w) >= 2 {
			k := [2]byte{w[0], w[1]}
			s[k] = append(s[k], w)
		}
	}
	return s
}

func (s stopwords) in(secret []byte) bool {
	if len(s) == 0 {
		return false
	}
	low := strings.ToLower(string(secret))
	for i := 0; i+1 < len(low); i++ {
		for _, w := range s[[2]byte{low[i], low[i+1]}] {
			if strings.HasPrefix(low[i:], w) {
				return true
			}
		}
	}
	return false
}

// entropy returns Shannon's entropy in bits per rune, computed like gitleaks: with the number of bytes as the total.
func entropy(s []byte) (bits float64) {
	var few [utf8.RuneSelf]int
	many := map[rune]int{}
	for _, r := range string(s) {
		if r < utf8.RuneSelf {
			few[r]++
		} else {
			many[r]++
		}
	}
	add := func(n int) {
		if n > 0 {
			f := float64(n) / float64(len(s))
			bits -= f * math.Log2(f)
		}
	}
	for _, n := range few {
		add(n)
	}
	for _, n := range many {
		add(n)
	}
	return bits
}
