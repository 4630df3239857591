package project

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/custody-project/custody/netpolicy"
)

// Allowed bounds what a host allows project files to request. A nil field sets no bound.
type Allowed struct {
	// Sources are kinds of sources of secrets: env, file, cmd, vault.
	Sources []string
	// Vault lists the Vault paths of secrets; one that ends in "*" allows all with that prefix.
	Vault []string
	// Egress allows the egress rules that are within it.
	Egress *netpolicy.Policy
	// Resolvers are the servers that a file may name. With Egress, nil is none: a resolver's answers decide
	// which addresses a rule for a name allows.
	Resolvers []string
}

// UnmarshalYAML reads the value of projects in host.yaml, as strictly as a project file is read.
func (a *Allowed) UnmarshalYAML(n ast.Node) error {
	var r reader
	*a = Allowed{}
	err := r.mapping(n, "projects", fields{
		"sources": func(n ast.Node) error {
			a.Sources = []string{}
			return r.texts(n, "sources", &a.Sources, oneOf(SourceKinds()...))
		},
		"vault": func(n ast.Node) error {
			a.Vault = []string{}
			return r.texts(n, "vault", &a.Vault, vaultPaths)
		},
		"egress": func(n ast.Node) error { return ruleDecoder{reader: &r}.policy(&a.Egress, n) },
		"resolvers": func(n ast.Node) error {
			a.Resolvers = []string{}
			return r.texts(n, "resolvers", &a.Resolvers, resolver)
		},
	})
	if e := new(Error); errors.As(err, &e) {
		return fmt.Errorf("line %d, column %d: %s; %s", e.Line, e.Column, e.Message, e.Hint)
	}
	return err
}

// vaultPaths checks a path, or a prefix followed by "*".
func vaultPaths(s string) string {
	stem := strings.TrimSuffix(s, "*")
	if !clearPath(stem) || strings.Contains(stem, "*") {
		return `write a path of Vault's as sources have it, such as secret/data/agents/git, or its beginning, such as secret/data/agents/*`
	}
	return ""
}

// clearPath reports whether a Vault path, or a prefix of one, has no segments that lead elsewhere.
func clearPath(s string) bool {
	parts := strings.Split(strings.TrimSuffix(s, "/"), "/")
	return !slices.ContainsFunc(parts, func(p string) bool { return p == "" || p == "." || p == ".." })
}

// Beyond lists what the file requests and a does not allow, one per line.
func (f *File) Beyond(a Allowed) ([]string, error) {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	for name, s := range f.Secrets {
		kind, path := s.Source()
		path, _, _ = strings.Cut(path, "#")
		switch {
		case a.Sources != nil && !slices.Contains(a.Sources, kind):
			add("secret %s: a source of kind %s; projects.sources allows %s", name, kind, listed(a.Sources))
		case a.Vault != nil && kind == "vault" && !a.hasPath(path):
			add("secret %s: the Vault path %q; projects.vault allows %s", name, path, listed(a.Vault))
		}
	}
	slices.Sort(list)
	if a.Egress != nil {
		policy, err := f.Policy()
		if err != nil {
			return nil, err
		}
		for _, e := range policy.Within(a.Egress) {
			add("egress: %s", e)
		}
	}
	for _, r := range f.Resolvers {
		if (a.Egress != nil || a.Resolvers != nil) && !slices.Contains(a.Resolvers, r) {
			add("resolvers: %s; projects.resolvers allows %s", r, listed(a.Resolvers))
		}
	}
	return list, nil
}

func (a *Allowed) hasPath(path string) bool {
	return clearPath(path) && slices.ContainsFunc(a.Vault, func(allowed string) bool {
		stem, open := strings.CutSuffix(allowed, "*")
		return path == allowed || open && strings.HasPrefix(path, stem)
	})
}

func listed(items []string) string {
	if len(items) == 0 {
		return "none"
	}
	return strings.Join(items, ", ")
}
