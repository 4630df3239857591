package project

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/custody-project/custody/netpolicy"
)

// secretName reads the name of a secret that the file must define.
func (d *decoder) secretName(n ast.Node, what string, to *string) error {
	if err := d.checked(n, what, to, word); err != nil {
		return err
	}
	name := *to
	d.later = append(d.later, func(f *File) error {
		if _, ok := f.Secrets[name]; ok {
			return nil
		}
		return d.err(n, fmt.Sprintf("%s names the secret %q, which does not exist", what, name), "define it under secrets")
	})
	return nil
}

// secretDecoder reads the secrets of a file.
type secretDecoder struct{ *reader }

func (d secretDecoder) all(to *map[string]Secret, n ast.Node) error {
	list, err := d.entries(n, "secrets")
	if err != nil {
		return err
	}
	*to = make(map[string]Secret, len(list))
	for _, e := range list {
		if hint := word(e.key); hint != "" {
			return d.err(e.at, fmt.Sprintf("a secret cannot be named %q", e.key), hint)
		}
		s, err := d.secret(e)
		if err != nil {
			return err
		}
		(*to)[e.key] = s
	}
	return nil
}

func (d secretDecoder) secret(e entry) (Secret, error) {
	var s Secret
	err := d.mapping(e.value, "a secret", fields{
		"from": func(n ast.Node) error { return d.source(n, &s.From) },
		"deliver": func(n ast.Node) error {
			return d.mapping(n, "deliver", fields{
				"header": func(n ast.Node) error { return d.checked(n, "header", &s.Deliver.Header, header) },
				"env":    func(n ast.Node) error { return d.checked(n, "env", &s.Deliver.Env, variable) },
				"file":   func(n ast.Node) error { return d.checked(n, "file", &s.Deliver.File, secretFile) },
				"token":  func(n ast.Node) error { return d.checked(n, "token", &s.Deliver.Token, variable) },
			})
		},
		"hosts": func(n ast.Node) error { return readAll(d.reader, n, "hosts", &s.Hosts, netpolicy.ParsePattern) },
	})
	if err != nil {
		return s, err
	}
	if message, hint := s.impossible(); message != "" {
		return s, d.err(e.at, fmt.Sprintf("the secret %q %s", e.key, message), hint)
	}
	s.Line, s.Column = place(e.at)
	return s, nil
}

// impossible finds contradictions in a secret.
func (s *Secret) impossible() (message, hint string) {
	path, isVault := strings.CutPrefix(s.From, "vault:")
	_, field, hasField := strings.Cut(path, "#")
	token := s.Deliver.Token != ""
	switch {
	case s.From == "":
		return "has no source", `give it "from: env:NAME"`
	case token && s.Deliver != Deliver{Token: s.Deliver.Token}:
		return "has a token and another delivery", "give deliver: {token} alone"
	case token && (!isVault || hasField):
		return "is a Vault token, but its source is not a Vault path", "write from: vault:PATH, without a field: the path that the token may read"
	case isVault && !token && (!hasField || field == ""):
		return "does not name a field of the path", "write from: vault:PATH#FIELD"
	case s.Deliver.Header != "" && len(s.Hosts) > 0:
		return "has hosts beside a header", "remove hosts: a header goes to the hosts of the rules that name the secret as their credential"
	}
	return "", ""
}

// SourceKinds returns the kinds of sources.
func SourceKinds() []string { return []string{"env", "file", "cmd", "vault"} }

// Source returns the kind of the secret's source, one of SourceKinds, and the rest of the source.
func (s *Secret) Source() (kind, which string) {
	kind, which, _ = strings.Cut(s.From, ":")
	return kind, which
}

// Sources lists the file's secrets with the kind of each source, such as git=vault, in order.
func (f *File) Sources() (list []string) {
	for name, s := range f.Secrets {
		kind, _ := s.Source()
		list = append(list, name+"="+kind)
	}
	slices.Sort(list)
	return list
}

// source checks a source of a value. The file may have the value itself
// instead, so the error does not quote it.
func (d secretDecoder) source(n ast.Node, to *string) error {
	if err := d.text(n, "from", to); err != nil {
		return err
	}
	if kind, rest, _ := strings.Cut(*to, ":"); slices.Contains(SourceKinds(), kind) && rest != "" {
		return nil
	}
	return d.err(n, "from is not a source of a value", "write env:NAME, file:PATH, cmd:COMMAND or vault:PATH#FIELD; the value itself does not belong in this file")
}

// Binds returns the names of the secrets that a step gets, in order: those that it names, and
// those for a header that no step names.
func (f *File) Binds(step Step) []string {
	var names []string
	for name, s := range f.Secrets {
		named := func(st Step) bool { return slices.Contains(st.Secrets, name) }
		if named(step) || s.Deliver.Header != "" && !slices.ContainsFunc(f.Steps, named) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// BindsAsked returns, in order, the names of the secrets that a command outside the file binds: those that were
// requested, and those without a delivery, which are masked and which no command gets. It returns an error for a name that
// the file does not define.
func (f *File) BindsAsked(asked []string) ([]string, error) {
	names := slices.Clone(asked)
	known := slices.Sorted(maps.Keys(f.Secrets))
	for _, name := range asked {
		switch {
		case len(known) == 0:
			return nil, fmt.Errorf("there is no secret %q: the project's file defines none", name)
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("there is no secret %q: the project's file defines %s", name, strings.Join(known, ", "))
		}
	}
	for _, name := range known {
		if f.Secrets[name].Deliver == (Deliver{}) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Clash describes two of the named secrets that would be delivered to the same
// place, and is empty if there are none.
func (f *File) Clash(names []string) string {
	taken := map[string]string{}
	for _, name := range names {
		d := f.Secrets[name].Deliver
		for _, place := range []string{"the variable " + d.Env, "the variable " + d.Token, "the file " + d.File} {
			if strings.HasSuffix(place, " ") {
				continue
			}
			if other, twice := taken[place]; twice {
				return fmt.Sprintf("the secrets %q and %q are both delivered to %s: give one another place, or bind only one to a step", other, name, place)
			}
			taken[place] = name
		}
	}
	return ""
}

// credential reads the name of the secret that the gateway inserts into a rule's requests.
func (d *decoder) credential(n ast.Node, to *string) error {
	if err := d.secretName(n, "credential", to); err != nil {
		return err
	}
	name := *to
	d.later = append(d.later, func(f *File) error {
		if f.Secrets[name].Deliver.Header == "" {
			return d.err(n, fmt.Sprintf("the secret %q is a credential, but has no header", name), "give the secret deliver: {header: x-api-key} or the header that the host expects")
		}
		return nil
	})
	return nil
}

// Checks of the names and targets of secrets.

// reserved are headers whose meaning a credential would change.
var reserved = []string{"host", "connection", "content-length", "content-encoding", "content-type", "transfer-encoding", "te", "trailer", "upgrade", "expect", "accept-encoding", "keep-alive", "proxy-connection"}

func header(s string) string {
	if slices.Contains(reserved, strings.ToLower(s)) {
		return "give a header that carries credentials, such as x-api-key: " + s + " has another meaning"
	}
	return matches(headers, s, "give a header's name, such as x-api-key")
}

func variable(s string) string {
	if strings.HasPrefix(s, "CUSTODY_") {
		return "give another name: those that begin with CUSTODY_ are Custody's own"
	}
	return matches(variables, s, "give a variable's name, such as GIT_TOKEN")
}

func secretFile(s string) string {
	if s == "env" {
		return `give another name: "env" is the file with the step's variables`
	}
	return relative(s)
}
