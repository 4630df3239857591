package project

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/custody-project/custody/guest/channel"
)

// Variable is a plain environment variable of a step. Its value is not secret: the record contains it.
type Variable struct {
	Name, Value  string
	Line, Column int // in the project file, from 1; 0 for other sources
}

// String returns NAME=VALUE.
func (v Variable) String() string { return v.Name + "=" + v.Value }

// Bounds of a step's plain variables together, and of the value of one in bytes.
const (
	maxVariables = 128
	maxValue     = 8 * kib
	maxEnv       = 32 * kib
)

// ownVariables are set by Custody in each step.
var ownVariables = []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "SHELL", "TERM"}

// trustVariables are set if a rule opens TLS.
var trustVariables = func() (names []string) {
	for _, kv := range channel.TrustEnv() {
		name, _, _ := strings.Cut(kv, "=")
		names = append(names, name)
	}
	return names
}()

// env reads a mapping of names to values.
func (d *decoder) env(n ast.Node, to *[]Variable) error {
	list, err := d.entries(n, "env")
	if err != nil {
		return err
	}
	for _, e := range list {
		v := Variable{Name: e.key}
		if hint := plainVariable(v.Name); hint != "" {
			return d.err(e.at, fmt.Sprintf("env cannot set %q", v.Name), hint)
		}
		if err := d.text(e.value, "the value of "+v.Name, &v.Value); err != nil {
			return err
		}
		if hint := plainValue(v.Value); hint != "" { // the value may be long, or a secret
			return d.err(e.value, "the value of "+v.Name+" cannot be used", hint)
		}
		if t := e.at.GetToken(); t != nil && t.Position != nil {
			v.Line, v.Column = t.Position.Line, t.Position.Column
		}
		*to = append(*to, v)
	}
	return nil
}

// ParseVariables parses variables of a command line: NAME=VALUE, or NAME for the value that lookup returns.
func ParseVariables(args []string, lookup func(name string) (string, bool)) ([]Variable, error) {
	var list []Variable
	for _, arg := range args {
		name, value, given := strings.Cut(arg, "=")
		if hint := plainVariable(name); hint != "" {
			return nil, fmt.Errorf("the variable %q cannot be set: %s", name, hint)
		}
		if slices.ContainsFunc(list, func(v Variable) bool { return v.Name == name }) {
			return nil, fmt.Errorf("the variable %s is given twice", name)
		}
		if !given {
			var ok bool
			if value, ok = lookup(name); !ok {
				return nil, fmt.Errorf("the variable %s is not set here: write %s=VALUE, or export it", name, name)
			}
		}
		if hint := plainValue(value); hint != "" {
			return nil, fmt.Errorf("the value of the variable %s cannot be used: %s", name, hint)
		}
		list = append(list, Variable{Name: name, Value: value})
	}
	return list, nil
}

// Variables returns the plain variables of a step, ordered by name: those of the file, overridden by those of the step,
// overridden by more. A nil step is a command outside the file. binds are the secrets that the step gets. The
// error names the variable that cannot be set, and why.
func (f *File) Variables(step *Step, binds []string, more []Variable) ([]Variable, error) {
	layers := [][]Variable{f.Env, nil, more}
	if step != nil {
		layers[1] = step.Env
	}
	var list []Variable
	for _, layer := range layers {
		for _, v := range layer {
			list = append(slices.DeleteFunc(list, func(o Variable) bool { return o.Name == v.Name }), v)
		}
	}
	slices.SortFunc(list, func(a, b Variable) int { return strings.Compare(a.Name, b.Name) })
	if err := f.settable(list, binds); err != nil {
		return nil, err
	}
	return list, nil
}

// settable returns an *Error without a file name if the variables cannot be set together.
func (f *File) settable(list []Variable, binds []string) error {
	taken := map[string]string{}
	for _, name := range binds {
		s := f.Secrets[name]
		taken[s.Deliver.Env], taken[s.Deliver.Token] = name, name
	}
	policy, err := f.Policy()
	if err != nil {
		return err
	}
	size := 0
	for _, v := range list {
		refuse := func(message, hint string) error {
			return &Error{Line: v.Line, Column: v.Column, Message: "the variable " + v.Name + " " + message, Hint: hint}
		}
		if secret, ok := taken[v.Name]; ok {
			return refuse(fmt.Sprintf("is already set from the secret %q", secret), "rename one of the two")
		}
		if policy.OpensTLS() && slices.Contains(trustVariables, v.Name) {
			return refuse("is already set by Custody, because a rule opens TLS", "remove it: steps trust the gateway through it")
		}
		if size += len(v.String()) + 1; size > maxEnv {
			return refuse(fmt.Sprintf("brings the variables of a step to more than %s", bytesize(maxEnv)), "put large values in a file")
		}
	}
	if len(list) > maxVariables {
		last := list[maxVariables]
		return &Error{Line: last.Line, Column: last.Column, Message: fmt.Sprintf("a step has %d variables", len(list)), Hint: fmt.Sprintf("set at most %d", maxVariables)}
	}
	return nil
}

// checkEnv checks the variables of each step of the file, and without steps those of a command without secrets.
func (d *decoder) checkEnv(f *File) error {
	check := func(s *Step, binds []string) error {
		_, err := f.Variables(s, binds, nil)
		if e := new(Error); errors.As(err, &e) {
			e.File = d.file
		}
		return err
	}
	for i := range f.Steps {
		if err := check(&f.Steps[i], f.Binds(f.Steps[i])); err != nil {
			return err
		}
	}
	if len(f.Steps) == 0 {
		return check(nil, nil)
	}
	return nil
}

func plainVariable(name string) string {
	if slices.Contains(ownVariables, name) {
		return "give another name: Custody sets " + strings.Join(ownVariables, ", ") + " itself"
	}
	return variable(name)
}

func plainValue(s string) string {
	switch {
	case strings.ContainsRune(s, 0):
		return "remove the zero byte"
	case len(s) > maxValue:
		return fmt.Sprintf("give at most %s: large values belong in a file", bytesize(maxValue))
	}
	return ""
}
