package project

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/custody-project/custody/internal/yamlnode"
	"github.com/custody-project/custody/netpolicy"
)

// ruleDecoder reads egress rules: those of a file, or those of a bound, which have no credentials and may have "**" for
// every name.
type ruleDecoder struct {
	*reader
	credential func(n ast.Node, to *string) error // reads the name of a credential; nil for the rules of a bound
}

func (d ruleDecoder) rules(to *[]netpolicy.Rule, n ast.Node) error {
	return d.items(n, "egress", func(n ast.Node) error {
		r, err := d.rule(n)
		*to = append(*to, r)
		return err
	})
}

// policy reads the rules of a bound.
func (d ruleDecoder) policy(to **netpolicy.Policy, n ast.Node) error {
	var rules []netpolicy.Rule
	if err := d.rules(&rules, n); err != nil {
		return err
	}
	var err error
	if *to, err = netpolicy.New(rules); err != nil {
		return ruleError(d.file, err)
	}
	return nil
}

func (d ruleDecoder) rule(n ast.Node) (netpolicy.Rule, error) {
	var r netpolicy.Rule
	r.Line, r.Column = place(n)
	allows, parse := false, netpolicy.ParsePattern
	known := fields{
		"allow": func(n ast.Node) error {
			allows = true
			return read(d.reader, n, "allow", &r.Pattern, parse)
		},
		"ports": func(n ast.Node) error { return d.ports(&r.Ports, n) },
		"mode": func(n ast.Node) error {
			return d.checked(n, "mode", (*string)(&r.Mode), oneOf(string(netpolicy.Gateway), string(netpolicy.Direct)))
		},
		"http": func(n ast.Node) error {
			r.HTTP = &netpolicy.HTTP{}
			return d.http(r.HTTP, n)
		},
		"addresses":  func(n ast.Node) error { return readAll(d.reader, n, "addresses", &r.Addresses, netpolicy.ParseRange) },
		"credential": func(n ast.Node) error { return d.credential(n, &r.Credential) },
	}
	if d.credential == nil {
		parse = netpolicy.ParseBound
		delete(known, "credential")
	}
	if err := d.mapping(n, "an egress rule", known); err != nil {
		return r, err
	}
	if !allows {
		return r, d.err(n, "an egress rule allows nothing", `give it "allow: host.name"`)
	}
	normal, err := r.Normal()
	if err != nil {
		return r, ruleError(d.file, err)
	}
	return normal, nil
}

// ports are read like other lists, but a bare number gets a specific error.
func (d ruleDecoder) ports(to *[]netpolicy.Port, n ast.Node) error {
	return d.items(n, "ports", func(n ast.Node) error {
		if i, ok := yamlnode.Integer(n); ok {
			return d.err(n, shown(n)+" is not a port", fmt.Sprintf("write tcp/%d or udp/%d", i, i))
		}
		return one(d.reader, n, "ports", to, netpolicy.ParsePort)
	})
}

func (d ruleDecoder) http(h *netpolicy.HTTP, n ast.Node) error {
	known := fields{
		"methods": func(n ast.Node) error { return d.texts(n, "methods", &h.Methods, remedy(netpolicy.CheckMethod)) },
		"paths":   func(n ast.Node) error { return d.texts(n, "paths", &h.Paths, remedy(netpolicy.CheckPath)) },
		"redact": func(n ast.Node) error {
			h.Redact = new(bool)
			return d.boolean(n, "redact", h.Redact)
		},
	}
	if d.credential == nil {
		delete(known, "redact")
	}
	return d.mapping(n, "http", known)
}

// ruleError adds the file and the rule's position to an error of package netpolicy.
func ruleError(file string, err error) error {
	e := new(netpolicy.RuleError)
	if !errors.As(err, &e) {
		return &Error{File: file, Message: err.Error()}
	}
	return &Error{File: file, Line: e.Rule.Line, Column: e.Rule.Column, Message: e.Message, Hint: e.Hint}
}

// place returns the position where a rule begins: its first key, or the brace before it.
func place(n ast.Node) (line, column int) {
	t := n.GetToken()
	if m, ok := n.(*ast.MappingValueNode); ok {
		t = m.Key.GetToken()
	} else if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		t = m.Values[0].Key.GetToken()
	}
	if t == nil || t.Position == nil {
		return 0, 0
	}
	return t.Position.Line, t.Position.Column
}

// read reads a string that parse accepts; parse's errors are remedies.
func read[T any](d *reader, n ast.Node, what string, to *T, parse func(string) (T, error)) error {
	var s string
	if err := d.text(n, what, &s); err != nil {
		return err
	}
	v, err := parse(s)
	if err != nil {
		return d.err(n, fmt.Sprintf("%s cannot be %q", what, s), err.Error())
	}
	*to = v
	return nil
}

func readAll[T any](d *reader, n ast.Node, what string, to *[]T, parse func(string) (T, error)) error {
	return d.items(n, what, func(n ast.Node) error { return one(d, n, what, to, parse) })
}

func one[T any](d *reader, n ast.Node, list string, to *[]T, parse func(string) (T, error)) error {
	var v T
	err := read(d, n, "an item of "+list, &v, parse)
	*to = append(*to, v)
	return err
}

// remedy converts a function whose errors are remedies to a check of this package.
func remedy(check func(string) error) func(string) string {
	return func(s string) string {
		if err := check(s); err != nil {
			return err.Error()
		}
		return ""
	}
}

// resolver checks the notation of an upstream DNS server: udp, tcp or tls, an
// address, a port unless it is the default, and for tls the name on the
// certificate unless it is the address.
func resolver(s string) string {
	scheme, rest, _ := strings.Cut(s, "://")
	at, name, named := strings.Cut(rest, "#")
	addr, ok := server(at)
	plain, isName := netpolicy.Name(name)
	switch {
	case scheme != "udp" && scheme != "tcp" && scheme != "tls":
		return "write udp://10.0.0.53, tcp://10.0.0.53:53 or tls://9.9.9.9#dns.quad9.net"
	case !ok || addr.Zone() != "" || addr.Is4In6() || addr.IsUnspecified() || addr.IsMulticast():
		return "a server is given by its address, such as 10.0.0.53, 10.0.0.53:5353 or [2001:db8::53]:53"
	case named && scheme != "tls":
		return `only tls has the name on the server's certificate after "#"`
	case named && (!isName || plain != name):
		return `after "#" must be a host name, in lower case`
	}
	return ""
}

// server reads an address with or without a port.
func server(s string) (netip.Addr, bool) {
	if at, err := netip.ParseAddrPort(s); err == nil {
		return at.Addr(), at.Port() != 0
	}
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		s = s[1 : len(s)-1]
	}
	addr, err := netip.ParseAddr(s)
	return addr, err == nil
}
