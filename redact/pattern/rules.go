package pattern

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp/syntax"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"
	"github.com/zricethezav/gitleaks/v8/config"
)

// version identifies how the rules are applied; it is part of Digest.
const version = "custody-pattern-1"

// nearby is the number of bytes after a keyword in which a rule is applied whose expression has no string.
const nearby = 256

// Rules are gitleaks' rules. They implement redact.Follower and are safe for concurrent use.
type Rules struct {
	rules   []*rule
	factors []*part
	words   *words
	reach   int
	digest  string

	mu   sync.Mutex
	idle []*scanner // at most one per core; guarded by mu
}

// part is a factor with the information that a scanner needs.
type part struct {
	rule   int
	before int  // maximum length of the text before a literal, in bytes
	span   int  // bytes after it that are read
	plain  bool // the literal is a keyword: any nearby text may match
	free   bool // no text need precede it

	list factor
	once sync.Once
	fore *machine // matches the expression after, forwards
	back *machine // matches the expression before, backwards
}

func (p *part) machines() (fore, back *machine) {
	p.once.Do(func() {
		p.fore = mustMachine(p.list.after)
		p.back = mustMachine([]*syntax.Regexp{reversed(concat(p.list.before))})
	})
	return p.fore, p.back
}

// mustMachine cannot fail for expressions from the parser.
func mustMachine(list []*syntax.Regexp) *machine {
	m, err := newMachine(list)
	if err != nil {
		panic("pattern: " + err.Error())
	}
	return m
}

// rawConfig is the part of gitleaks' configuration that is used. Its format is described in gitleaks' README,
// "Configuration".
type rawConfig struct {
	AllowList  rawAllowlist
	Allowlists []rawAllowlist
	Rules      []rawRule
}

type rawRule struct {
	ID          string
	Regex       string
	SecretGroup int
	Entropy     float64
	Keywords    []string
	SkipReport  bool
	AllowList   rawAllowlist
	Allowlists  []rawAllowlist
}

type rawAllowlist struct {
	TargetRules []string
	Condition   string
	Commits     []string
	Paths       []string
	RegexTarget string
	Regexes     []string
	StopWords   []string
}

// checksums are excluded by gitleaks by the paths of their files: the lines of a go.sum whose module is named after keys
// or tokens.
var checksums = rawAllowlist{RegexTarget: onMatch, Regexes: []string{`\sh1:[A-Za-z0-9+/]{43}=`}}

// New returns the rules of the gitleaks module with which this program was built. The first call takes some 20 ms; all return
// the same rules.
func New() (*Rules, error) { return defaults() }

var defaults = sync.OnceValues(func() (*Rules, error) { return parse(config.DefaultConfig) })

func parse(text string) (*Rules, error) {
	var raw rawConfig
	if err := toml.Unmarshal([]byte(text), &raw); err != nil {
		return nil, fmt.Errorf("gitleaks' rules: %w", err)
	}
	sum := sha256.Sum256([]byte(version + "\n" + text))
	rs := &Rules{digest: hex.EncodeToString(sum[:])}
	global, err := globals(append(raw.Allowlists, raw.AllowList, checksums))
	if err != nil {
		return nil, fmt.Errorf("gitleaks' rules: %w", err)
	}
	var list []occurrence
	for _, r := range raw.Rules {
		if r.Regex == "" || r.SkipReport { // for a path alone, or a part of other rules
			continue
		}
		more, err := rs.add(r, global)
		if err != nil {
			return nil, fmt.Errorf("gitleaks' rule %s: %w", r.ID, err)
		}
		list = append(list, more...)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("gitleaks' rules: there are none")
	}
	slices.SortStableFunc(list, func(a, b occurrence) int { return cmp.Compare(len(b.text), len(a.text)) })
	rs.words = newWords(list)
	return rs, nil
}

// shared is an allowlist for the rules in ids, or for all.
type shared struct {
	ids  []string
	list *allowlist
}

func globals(raw []rawAllowlist) (all []shared, err error) {
	for _, a := range raw {
		list, err := newAllowlist(a)
		if err != nil {
			return nil, err
		}
		if list != nil {
			all = append(all, shared{a.TargetRules, list})
		}
	}
	return all, nil
}

// add adds a rule and returns the occurrences of its strings.
func (rs *Rules) add(raw rawRule, global []shared) ([]occurrence, error) {
	tree, err := syntax.Parse(raw.Regex, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if raw.SecretGroup > tree.MaxCap() {
		return nil, fmt.Errorf("there is no group %d", raw.SecretGroup)
	}
	r := &rule{id: raw.ID, generic: strings.Contains(raw.ID, "generic"), group: raw.SecretGroup, entropy: raw.Entropy, source: raw.Regex}
	r.fromStart = asksForStart(tree)
	for _, a := range append(raw.Allowlists, raw.AllowList) {
		list, err := newAllowlist(a)
		if err != nil {
			return nil, err
		}
		if list != nil {
			r.allow = append(r.allow, list)
		}
	}
	for _, a := range global {
		if len(a.ids) == 0 || slices.Contains(a.ids, raw.ID) {
			r.allow = append(r.allow, a.list)
		}
	}
	rs.rules = append(rs.rules, r)
	return rs.parts(tree, raw.Keywords)
}

// parts factors the last rule.
func (rs *Rules) parts(tree *syntax.Regexp, keywords []string) ([]occurrence, error) {
	at := len(rs.rules) - 1
	found, _ := split(flatten(tree))
	if len(found) == 0 {
		if len(keywords) == 0 {
			return nil, fmt.Errorf("the rule has neither a string in its expression nor a keyword")
		}
		f := factor{}
		for _, k := range keywords {
			low := strings.ToLower(k)
			f.literals = append(f.literals, literal{low, strings.Repeat("\x00", len(low))})
		}
		rs.factors = append(rs.factors, &part{rule: at, span: nearby, plain: true, free: true, list: f})
		return rs.occurrences(f), nil
	}
	var list []occurrence
	for _, f := range found {
		p := &part{rule: at, before: width(f.before...), span: span(f.after), list: f}
		p.free = matchesEmpty(concat(f.before))
		rs.factors = append(rs.factors, p)
		list = append(list, rs.occurrences(f)...)
	}
	return list, nil
}

// occurrences also sets reach, when each literal gets its index.
func (rs *Rules) occurrences(f factor) (list []occurrence) {
	p := rs.factors[len(rs.factors)-1]
	for _, l := range f.literals {
		list = append(list, occurrence{len(rs.factors) - 1, l})
		rs.reach = max(rs.reach, p.before+len(l.text)+2*p.span+slack+lineAfter)
	}
	return list
}

func asksForStart(re *syntax.Regexp) bool {
	return re.Op == syntax.OpBeginText || re.Op == syntax.OpBeginLine || slices.ContainsFunc(re.Sub, asksForStart)
}

// matchesEmpty reports whether re matches the empty string at any position.
func matchesEmpty(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpStar, syntax.OpQuest:
		return true
	case syntax.OpRepeat:
		return re.Min == 0 || matchesEmpty(re.Sub[0])
	case syntax.OpCapture, syntax.OpPlus:
		return matchesEmpty(re.Sub[0])
	case syntax.OpConcat:
		return !slices.ContainsFunc(re.Sub, func(s *syntax.Regexp) bool { return !matchesEmpty(s) })
	case syntax.OpAlternate:
		return slices.ContainsFunc(re.Sub, matchesEmpty)
	}
	return false
}

// Digest identifies the rules and how they are applied.
func (rs *Rules) Digest() string { return rs.digest }

// Reach returns the maximum number of bytes that Follow leaves open, and of a match with its context.
func (rs *Rules) Reach() int { return rs.reach }

// scanner returns an idle scanner, or makes one: its automata grow with use.
func (rs *Rules) scanner() *scanner {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if n := len(rs.idle); n > 0 {
		s := rs.idle[n-1]
		rs.idle = rs.idle[:n-1]
		return s
	}
	return newScanner(rs)
}

// release makes s idle. It is not called after a panic, because the state of s is undefined then.
func (rs *Rules) release(s *scanner) {
	s.clear()
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(rs.idle) < runtime.GOMAXPROCS(0) {
		rs.idle = append(rs.idle, s)
	}
}
