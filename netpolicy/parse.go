package netpolicy

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ParseRule parses a rule's normal form, as in the record. It accepts nothing else: the returned rule's String is s.
func ParseRule(s string) (Rule, error) {
	bad := func(err error) (Rule, error) {
		return Rule{}, fmt.Errorf("%q is not a rule in its normal form: %w", s, err)
	}
	t := tokens{rest: s}
	r := Rule{Mode: Gateway}
	var err error
	if r.Pattern, err = ParsePattern(t.word()); err != nil {
		return bad(err)
	}
	for strings.Contains(t.peek(), "/") && !strings.Contains(t.peek(), "=") {
		p, err := ParsePort(t.word())
		if err != nil {
			return bad(err)
		}
		r.Ports = append(r.Ports, p)
	}
	if t.take("direct") {
		r.Mode = Direct
	}
	if t.take("http") {
		r.HTTP = &HTTP{Methods: t.list("methods"), Paths: t.list("paths"), Redact: t.boolean("redact")}
	}
	for _, a := range t.list("addresses") {
		prefix, err := netip.ParsePrefix(a)
		if err != nil {
			return bad(err)
		}
		r.Addresses = append(r.Addresses, prefix)
	}
	if name, ok := strings.CutPrefix(t.peek(), "credential="); ok {
		r.Credential = name
		t.word()
	}
	if t.err != nil {
		return bad(t.err)
	}
	if r, err = r.Normal(); err != nil {
		return bad(err)
	}
	if r.String() != s {
		return bad(errors.New("its normal form is " + r.String()))
	}
	return r, nil
}

// Parse parses a policy's normal form: one rule per line, in order.
func Parse(s string) (*Policy, error) {
	var rules []Rule
	for line := range strings.Lines(s) {
		r, err := ParseRule(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, err
		}
		rules = append(rules, r)
	}
	p, err := New(rules)
	if err == nil && p.String() != s {
		return nil, errors.New("the rules are not in their normal order")
	}
	return p, err
}

// tokens splits text at single spaces, except within quotes.
type tokens struct {
	rest string
	err  error
}

func (t *tokens) peek() string {
	word, _, _ := strings.Cut(t.rest, " ")
	return word
}

func (t *tokens) word() string {
	word, rest, _ := strings.Cut(t.rest, " ")
	t.rest = rest
	return word
}

func (t *tokens) take(word string) bool {
	if t.peek() != word {
		return false
	}
	t.word()
	return true
}

// boolean parses name=true or name=false if it is next.
func (t *tokens) boolean(name string) *bool {
	for _, value := range []bool{true, false} {
		if t.take(fmt.Sprintf("%s=%t", name, value)) {
			return &value
		}
	}
	return nil
}

// list parses name=["a" "b"] if it is next.
func (t *tokens) list(name string) []string {
	rest, ok := strings.CutPrefix(t.rest, name+"=[")
	if !ok {
		return nil
	}
	var items []string
	for {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			t.err = fmt.Errorf("the list of %s: %w", name, err)
			return nil
		}
		item, err := strconv.Unquote(quoted)
		if err != nil {
			t.err = fmt.Errorf("the list of %s: %w", name, err)
			return nil
		}
		items = append(items, item)
		rest = rest[len(quoted):]
		if after, closed := strings.CutPrefix(rest, "]"); closed {
			t.rest = strings.TrimPrefix(after, " ")
			return items
		}
		rest = strings.TrimPrefix(rest, " ")
	}
}
