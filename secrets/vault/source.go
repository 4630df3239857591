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

// source is a parsed binding's from: vault:PATH#FIELD, or vault:PATH for a token.
type source struct{ path, field string }

// maxPath is longer than any path in use.
const maxPath = 1024

// parseSource parses a binding's source. Its path is that of Vault's API (for a KV v2 engine: MOUNT/data/NAME). It
// rejects characters that are patterns in a policy, Vault's own paths, and identity/, where nothing can be revoked.
func parseSource(from string, isToken bool) (source, error) {
	text, ok := strings.CutPrefix(from, "vault:")
	if !ok {
		return source{}, errors.New("its source is not Vault's: write vault:PATH#FIELD")
	}
	path, field, has := strings.Cut(text, "#")
	switch {
	case isToken && has:
		return source{}, errors.New("a token reads all fields of a path: write vault:PATH, without a field")
	case !isToken && field == "":
		return source{}, errors.New("its source has no field: write vault:PATH#FIELD")
	}
	return source{path, field}, checkPath(path)
}

func checkPath(path string) error {
	if path == "" || len(path) > maxPath {
		return errors.New("its source has no path: write vault:PATH#FIELD")
	}
	if i := strings.IndexFunc(path, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }); i >= 0 || strings.ContainsAny(path, `*+{}?%\`) {
		return fmt.Errorf("the path %q has a character with a special meaning: name one path, without * + { } ? %% or \\", path)
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
		return fmt.Errorf("the path %q is one of Vault's own: steps can only have secrets of secret engines", path)
	}
	if len(parts) < 2 {
		return fmt.Errorf("the path %q names an engine, and nothing in it: write vault:MOUNT/NAME#FIELD", path)
	}
	return nil
}

// plan has the secrets of a step, grouped by the token that may read them.
type plan struct {
	reads  []string          // distinct paths
	fields map[string]source // by the binding's name
	tokens map[string]string // path by the name of a binding that is delivered as a token
}

// planOf groups the bindings of a step.
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

// policy returns a policy that allows reading exactly these paths, in Vault's JSON format
// (https://developer.hashicorp.com/vault/docs/concepts/policies), which needs no custom quoting.
func policy(paths []string) string {
	type rule struct {
		Capabilities []string `json:"capabilities"`
	}
	rules := map[string]rule{}
	for _, p := range paths {
		rules[p] = rule{[]string{"read"}}
	}
	text, err := json.Marshal(map[string]any{"path": rules})
	if err != nil { // cannot happen: it has only strings
		panic(err)
	}
	return string(text)
}
