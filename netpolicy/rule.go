package netpolicy

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Mode is how a rule's traffic leaves the sandbox.
type Mode string

// The modes.
const (
	Gateway Mode = "gateway" // through the gateway, which checks the name; the default
	Direct  Mode = "direct"  // through the kernel, without inspection
)

// Port is a transport and a port number.
type Port struct {
	Proto  string // tcp or udp
	Number uint16
}

// String returns the port in the notation of project files, such as tcp/443.
func (p Port) String() string { return fmt.Sprintf("%s/%d", p.Proto, p.Number) }

// ParsePort parses a port in the notation of project files. The error states what to write instead.
func ParsePort(s string) (Port, error) {
	proto, number, _ := strings.Cut(s, "/")
	i, err := strconv.ParseUint(number, 10, 16)
	p := Port{proto, uint16(i)}
	if err != nil || !p.valid() || p.String() != s { // no +443, no 0443
		return Port{}, errors.New("write tcp/443 or udp/53")
	}
	return p, nil
}

func (p Port) valid() bool { return p.Number != 0 && (p.Proto == "tcp" || p.Proto == "udp") }

// HTTP restricts a rule to requests; an empty list allows all.
type HTTP struct {
	Methods []string // valid for CheckMethod
	Paths   []string // valid for CheckPath
	// Redact is whether credentials are masked in responses before the guest receives them; nil, which Normal resolves,
	// means: if the rule has a credential.
	Redact *bool
}

// Rule allows traffic to the destinations that its pattern matches, on its ports.
type Rule struct {
	Pattern Pattern
	Ports   []Port
	Mode    Mode
	HTTP    *HTTP // nil: TLS is not opened
	// Addresses are ranges with a special purpose (private, loopback, ...) to which the name may resolve; see Special.
	Addresses  []netip.Prefix
	Credential string // name of a secret, or empty

	Line, Column int // the rule's position in its file; not part of its normal form
}

// String returns the rule's normal form, which is also its name in the record. ParseRule parses it.
func (r *Rule) String() string {
	var b strings.Builder
	b.WriteString(r.Pattern.String())
	for _, p := range r.Ports {
		b.WriteString(" " + p.String())
	}
	if r.Mode == Direct {
		b.WriteString(" direct")
	}
	if r.HTTP != nil {
		b.WriteString(" http")
		list(&b, "methods", r.HTTP.Methods)
		list(&b, "paths", r.HTTP.Paths)
		if redact := r.HTTP.Redact; redact != nil && *redact != (r.Credential != "") {
			fmt.Fprintf(&b, " redact=%t", *redact)
		}
	}
	var ranges []string
	for _, a := range r.Addresses {
		ranges = append(ranges, a.String())
	}
	list(&b, "addresses", ranges)
	if r.Credential != "" {
		b.WriteString(" credential=" + r.Credential)
	}
	return b.String()
}

func list(b *strings.Builder, name string, items []string) {
	if len(items) > 0 {
		fmt.Fprintf(b, " %s=%q", name, items)
	}
}

// Redacts reports whether credentials are masked in the responses to requests of this rule.
func (r *Rule) Redacts() bool {
	if r.HTTP == nil || r.HTTP.Redact == nil {
		return r.Credential != ""
	}
	return *r.HTTP.Redact
}

func (r *Rule) hasPort(p Port) bool { return slices.Contains(r.Ports, p) }

// Normal returns the rule in its normal form, with defaults filled in and lists sorted. If the rule is not valid the
// error is a *RuleError.
func (r Rule) Normal() (Rule, error) {
	n := r
	if n.Mode == "" {
		n.Mode = Gateway
	}
	if len(n.Ports) == 0 {
		n.Ports = []Port{{"tcp", 443}}
	}
	n.Ports = sorted(n.Ports, func(a, b Port) int { return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Number, b.Number)) })
	n.Addresses = sorted(n.Addresses, func(a, b netip.Prefix) int { return cmp.Compare(a.String(), b.String()) })
	if n.HTTP != nil {
		redacts := n.Redacts()
		n.HTTP = &HTTP{Methods: sorted(n.HTTP.Methods, strings.Compare), Paths: sorted(n.HTTP.Paths, strings.Compare), Redact: &redacts}
	}
	for _, check := range []func(*Rule) (message, hint string){(*Rule).malformed, (*Rule).impossible} {
		if message, hint := check(&n); message != "" {
			return Rule{}, &RuleError{r, message, hint}
		}
	}
	return n, nil
}

func sorted[S ~[]E, E comparable](s S, by func(a, b E) int) S {
	return slices.Compact(slices.SortedFunc(slices.Values(s), by))
}

// malformed checks each part of a rule alone.
func (r *Rule) malformed() (message, hint string) {
	if again, err := ParseBound(r.Pattern.String()); err != nil || again != r.Pattern {
		return "the rule allows nothing", "give it a host name or a range of addresses"
	}
	if r.Mode != Gateway && r.Mode != Direct {
		return fmt.Sprintf("%q is not a mode", r.Mode), "give gateway or direct"
	}
	for _, p := range r.Ports {
		if !p.valid() {
			return fmt.Sprintf("%q is not a port", p), "write tcp/443 or udp/53"
		}
	}
	for _, a := range r.Addresses {
		if again, err := ParseRange(a.String()); err != nil || again != a {
			return fmt.Sprintf("%q is not a range of addresses", a), "write 10.0.0.0/8 or fd00::/8"
		}
	}
	if r.Credential != "" && !isWord(r.Credential, alnum, "._-", 64) {
		return fmt.Sprintf("%q is not the name of a credential", r.Credential), "use letters, digits, '.', '_' and '-'"
	}
	if r.HTTP != nil {
		return r.HTTP.malformed()
	}
	return "", ""
}

func (h *HTTP) malformed() (message, hint string) {
	for _, m := range h.Methods {
		if err := CheckMethod(m); err != nil {
			return fmt.Sprintf("%q cannot be allowed as a method", m), err.Error()
		}
	}
	for _, p := range h.Paths {
		if err := CheckPath(p); err != nil {
			return fmt.Sprintf("%q cannot be allowed as a path", p), err.Error()
		}
	}
	return "", ""
}

// impossible checks for parts of a rule that contradict each other.
func (r *Rule) impossible() (message, hint string) {
	prefix, isRange := r.Pattern.Prefix()
	named := r.Addresses
	if isRange {
		named = []netip.Prefix{prefix}
	}
	switch {
	case isRange && r.Mode != Direct:
		return "a range of addresses has no name that a gateway could check", "give the rule mode: direct, or allow a name"
	case isRange && len(r.Addresses) > 0:
		return "a rule for a range of addresses cannot have addresses", "the range itself names them: remove addresses"
	case r.Mode == Direct && (r.HTTP != nil || r.Credential != ""):
		return "a rule with mode direct cannot have http or credential", "a direct stream is not inspected: use mode gateway, or remove them"
	case r.Mode == Gateway && slices.ContainsFunc(r.Ports, func(p Port) bool { return p.Proto != "tcp" }):
		return "the gateway carries TCP only", "give the rule mode: direct for UDP"
	case r.Mode == Gateway && r.hasPort(Port{"tcp", ResolverPort}):
		return "the gateway cannot listen where the sandbox's resolver does", "give the rule mode: direct, or another port than tcp/53"
	case r.Credential != "" && r.HTTP == nil:
		return "a credential can be added only to requests that the gateway reads", "give the rule http, with the methods and paths that need it"
	case r.Mode == Direct && slices.ContainsFunc(named, inside):
		return "the sandbox uses these addresses itself", "choose a range outside of " + Synthetic.String() + " and " + Link6.String()
	}
	return "", ""
}

// inside reports whether a range contains addresses that have another meaning within the sandbox.
func inside(p netip.Prefix) bool {
	return p.Overlaps(Synthetic) && p.Bits() >= Synthetic.Bits() || p.Overlaps(Link6) && p.Bits() >= Link6.Bits()
}

const (
	capitals = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	alnum    = capitals + "abcdefghijklmnopqrstuvwxyz0123456789"
)

// isWord reports whether s has 1 to most characters of a set, and begins with one of those in first.
func isWord(s, first, others string, most int) bool {
	return s != "" && len(s) <= most && strings.Contains(first, s[:1]) && strings.Trim(s, first+others) == ""
}

// neverMethods cannot be allowed by a rule with http: CONNECT opens a tunnel that cannot be inspected, and TRACE returns
// the headers that the gateway added to the request.
var neverMethods = []string{"CONNECT", "TRACE", "TRACK"}

// CheckMethod returns the error in a method of a rule, or nil.
func CheckMethod(s string) error {
	if slices.Contains(neverMethods, s) {
		return errors.New("a gateway cannot let it through safely: remove it")
	}
	if upper := strings.ToUpper(s); upper != s && isWord(upper, capitals, "-", 32) {
		return fmt.Errorf("write methods in capitals: %s", upper)
	}
	if !isWord(s, capitals, "-", 32) {
		return errors.New("write methods in capitals, such as POST")
	}
	return nil
}

// methods are registered by RFCs or common in servers.
var methods = []string{
	"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "QUERY", // HTTP
	"ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "COPY", "LABEL", "LINK", "LOCK", "MERGE", "MKACTIVITY", "MKCALENDAR", "MKCOL",
	"MKREDIRECTREF", "MKWORKSPACE", "MOVE", "ORDERPATCH", "PROPFIND", "PROPPATCH", "REBIND", "REPORT", "SEARCH", "UNBIND", "UNCHECKOUT",
	"UNLINK", "UNLOCK", "UPDATE", "UPDATEREDIRECTREF", "VERSION-CONTROL", // WebDAV and its extensions
	"LIST", "NOTIFY", "PURGE", "SUBSCRIBE", "UNSUBSCRIBE", // of Vault, UPnP and caches
}

// CheckPath returns the error in a path of a rule, or nil. It is a whole path, or a prefix followed by "*".
func CheckPath(s string) error {
	stem := strings.TrimSuffix(s, "*")
	switch {
	case !strings.HasPrefix(s, "/"):
		return errors.New("begin it with a slash")
	case strings.Contains(stem, "*"):
		return errors.New(`"*" matches the rest of a path, so it must be at its end`)
	case len(s) > maxPath:
		return errors.New("it is too long for a rule")
	case !ClearPath(stem):
		return errors.New("servers parse it in different ways: write it without a query, escapes of characters with a meaning in paths, and empty or dot segments")
	}
	return nil
}

const maxPath = 2048

// RuleError reports an invalid rule.
type RuleError struct {
	Rule    Rule // as passed in
	Message string
	Hint    string
}

// Error returns the message and the hint.
func (e *RuleError) Error() string { return e.Message + "; " + e.Hint }
