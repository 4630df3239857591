package project

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestEnv(t *testing.T) {
	f, err := Parse(Name, []byte("version: 1\nenv: {CI: \"true\", STAGE: all, EMPTY: \"\"}\nsteps:\n  - {name: a, run: x, env: {STAGE: one, OWN: \"1 2\"}}\n  - {name: b, run: x}\n"))
	if err != nil {
		t.Fatal(err)
	}
	more := []Variable{{Name: "CI", Value: "given"}, {Name: "MORE"}}
	for _, c := range []struct {
		step *Step
		more []Variable
		want string
	}{
		{nil, nil, "[CI=true EMPTY= STAGE=all]"},
		{&f.Steps[0], nil, "[CI=true EMPTY= OWN=1 2 STAGE=one]"},
		{&f.Steps[1], nil, "[CI=true EMPTY= STAGE=all]"},
		{&f.Steps[0], more, "[CI=given EMPTY= MORE= OWN=1 2 STAGE=one]"},
		{nil, more, "[CI=given EMPTY= MORE= STAGE=all]"},
	} {
		got, err := f.Variables(c.step, nil, c.more)
		if err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%v and %v: got %v, %v, want %s", c.step, c.more, got, err, c.want)
		}
	}
	if v := f.Steps[0].Env[0]; v.Line != 4 || v.Column != 29 {
		t.Errorf("STAGE stands at %d:%d", v.Line, v.Column)
	}
	if reach := f.Reach(); len(reach) != 0 {
		t.Errorf("plain variables reach outside the sandbox: %q", reach)
	}
}

func TestEnvErrors(t *testing.T) {
	many := strings.Builder{}
	for i := range maxVariables + 1 {
		fmt.Fprintf(&many, "  V%d: x\n", i)
	}
	large := strings.Builder{}
	for i := range 5 {
		fmt.Fprintf(&large, "  V%d: %s\n", i, strings.Repeat("x", maxValue))
	}
	secret := "secrets:\n  key: {from: \"env:K\", deliver: {env: KEY}}\n  vault: {from: \"vault:a/b\", deliver: {token: VT}}\n"
	for _, c := range []struct{ name, file, at, want string }{
		{"list", "env: [A]\n", ":2:", "env must be a mapping"},
		{"number", "env: {PORT: 80}\n", ":2:", "the value of PORT must be a string, not a number; put it in quotes"},
		{"null", "env: {PORT: }\n", ":2:", `"PORT" has no value`},
		{"duplicate", "env: {A: x, A: y}\n", ":2:", "given twice|duplicate|already"},
		{"name", "env: {\"A B\": x}\n", ":2:", `env cannot set "A B"; give a variable's name`},
		{"equals", "env: {\"A=B\": x}\n", ":2:", `env cannot set "A=B"`},
		{"own", "env: {PATH: /bin}\n", ":2:", `env cannot set "PATH"; give another name: Custody sets PATH`},
		{"reserved", "env: {CUSTODY_RUN: x}\n", ":2:", "Custody's own"},
		{"step's own", "steps:\n  - {name: a, run: x, env: {HOME: /}}\n", ":3:", `env cannot set "HOME"`},
		{"long", "env: {A: " + strings.Repeat("x", maxValue+1) + "}\n", ":2:", "the value of A cannot be used; give at most 8KiB"},
		{"many", "env:\n" + many.String(), ":131:", "129 variables; set at most 128"}, // ordered by name
		{"large", "env:\n" + large.String(), ":6:", "the variable V3 brings the variables of a step to more than 32KiB"},
		{"TLS", "egress: [{allow: a.com, http: {}}]\nenv: {SSL_CERT_FILE: x}\n", ":3:", "because a rule opens TLS"},
		{"secret of no step", secret + "env: {KEY: x}\n", "", ""},
		{"token", secret + "env: {VT: x}\nsteps:\n  - {name: a, run: x, secrets: [vault]}\n", ":5:", `already set from the secret "vault"`},
		{"secret of a step", secret + "steps:\n  - {name: a, run: x, secrets: [key], env: {KEY: x}}\n", ":6:", `already set from the secret "key"`},
		{"secret of a step, env of the file", secret + "env: {KEY: x}\nsteps:\n  - {name: a, run: x}\n  - {name: b, run: x, secrets: [key]}\n", ":5:", `the secret "key"`},
		{"secret of another step", secret + "steps:\n  - {name: a, run: x, env: {KEY: x}}\n  - {name: b, run: x, secrets: [key]}\n", "", ""},
		{"trust without TLS", "egress: [{allow: a.com}]\nenv: {SSL_CERT_FILE: x, LD_PRELOAD: /x.so}\n", "", ""},
	} {
		_, err := Parse("c.yaml", []byte("version: 1\n"+c.file))
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		e := new(Error)
		if !errors.As(err, &e) {
			t.Errorf("%s: got %v, want an *Error", c.name, err)
			continue
		}
		named := slices.ContainsFunc(strings.Split(c.want, "|"), func(s string) bool { return strings.Contains(err.Error(), s) })
		if !named || !strings.HasPrefix(err.Error(), "c.yaml") || c.name != "many" && !strings.HasPrefix(err.Error(), "c.yaml"+c.at) {
			t.Errorf("%s: got %.200q, want c.yaml%s %s", c.name, err, c.at, c.want)
		}
		if strings.Contains(err.Error(), strings.Repeat("x", 100)) {
			t.Errorf("%s: the error repeats the value", c.name)
		}
	}
}

func TestParseVariables(t *testing.T) {
	caller := map[string]string{"SET": "a=b", "EMPTY": "", "ZERO": "a\x00b"}
	lookup := func(name string) (string, bool) { v, ok := caller[name]; return v, ok }
	got, err := ParseVariables([]string{"A=1", "B=x=y", "C=", "SET", "EMPTY", "D=a,b"}, lookup)
	if want := "[A=1 B=x=y C= SET=a=b EMPTY= D=a,b]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("got %v, %v, want %s", got, err, want)
	}
	for arg, want := range map[string]string{
		"": "cannot be set", "=x": "cannot be set", "1A=x": "cannot be set", "A B": "cannot be set", "PATH=/": "Custody sets", "TERM": "Custody sets",
		"CUSTODY_X=1": "Custody's own", "UNSET": "is not set here", "FIRST=2": "given twice", "FIRST": "given twice", "ZERO": "zero byte",
		"LONG=" + strings.Repeat("x", maxValue+1): "at most 8KiB",
	} {
		if _, err := ParseVariables([]string{"FIRST=1", arg}, lookup); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: got %v, want %q", arg, err, want)
		}
	}
}
