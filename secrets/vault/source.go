package vault

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/custody-project/custody/secrets"
)

// source is what a binding's from says: vault:PATH#FIELD, or vault:PATH for a token.
type source struct{ path, field string }

// maxPath is longer than any path in use.
const maxPath = 1024

// parseSource reads a binding's source. A path is as Vault's API has it (of a KV v2
// engine: MOUNT/data/NAME). What a policy would take for a pattern is refused, as are
// Vault's own paths and identity/, where nothing can be revoked.
func parseSource(from string, isToken bool) (source, error) {
	text, ok := strings.CutPrefix(from, "vault:")
	if !ok {
		return source{}, errors.New("its source is not Vault's: write vault:PATH#FIELD")
	}
	path, field, has := strings.Cut(text, "#")
	switch {
	case isToken && has:
		return source{}, errors.New("a token reads a whole path: write vault:PATH, without a field")
	case !isToken && field == "":
		return source{}, errors.New("its source does not say which field: write vault:PATH#FIELD")
	}
	return source{path, field}, checkPath(path)
}

func checkPath(path string) error {
	if path == "" || len(path) > maxPath {
		return errors.New("its source names no path of Vault's: write vault:PATH#FIELD")
	}
	if i := strings.IndexFunc(path, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }); i >= 0 || strings.ContainsAny(path, `*+{}?%\`) {
		return fmt.Errorf("the path %q has a character that means more than itself: name one path, without * + { } ? %% or \\", path)
	}
	parts := strings.Split(path, "/")
	for _, part := range parts {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("the path %q is not in its shortest form: write it without a / at its ends, //, . and ..", path)
		}
	}
	switch parts[0] {
	case "v1":
		return fmt.Errorf("the path %q begins with v1: write it without", path)
	case "sys", "auth", "cubbyhole", "identity":
		return fmt.Errorf("the path %q is one of Vault's own: steps get secrets of secret engines alone", path)
	}
	if len(parts) < 2 {
		return fmt.Errorf("the path %q names an engine, and nothing in it: write vault:MOUNT/NAME#FIELD", path)
	}
	return nil
}

// plan is what a step binds, grouped by the login that may read it.
type plan struct {
	reads  []string          // paths, each read once
	fields map[string]source // by the binding's name
	tokens map[string]string // path by the name of a binding that is delivered as a token
}

// planOf sorts the bindings of a step.
func planOf(bindings []secrets.Binding) (plan, error) {
	p := plan{fields: map[string]source{}, tokens: map[string]string{}}
	for _, b := range bindings {
		isToken := b.Deliver.Token != ""
		src, err := parseSource(b.From, isToken)
		if err != nil {
			return p, fmt.Errorf("secret %s: %w", b.Name, err)
		}
		if isToken {
			p.tokens[b.Name] = src.path
			continue
		}
		p.fields[b.Name] = src
		if !slices.Contains(p.reads, src.path) {
			p.reads = append(p.reads, src.path)
		}
	}
	return p, nil
}

// policy is one that allows the reading of exactly these paths, in Vault's JSON form
// (https://developer.hashicorp.com/vault/docs/concepts/policies), which needs no quoting of ours.
func policy(paths []string) string {
	type rule struct {
		Capabilities []string `json:"capabilities"`
	}
	rules := map[string]rule{}
	for _, p := range paths {
		rules[p] = rule{[]string{"read"}}
	}
	text, err := json.Marshal(map[string]any{"path": rules})
	if err != nil { // strings alone
		panic(err)
	}
	return string(text)
}
