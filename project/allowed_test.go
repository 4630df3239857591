package project

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// allowed parses the value of projects in host.yaml, as host.yaml is read.
func allowed(text string) (Allowed, error) {
	var host struct {
		Projects Allowed `yaml:"projects"`
	}
	err := yaml.NewDecoder(bytes.NewReader([]byte("projects: "+text)), yaml.Strict(), yaml.DisallowUnknownField()).Decode(&host)
	return host.Projects, err
}

func TestBeyond(t *testing.T) {
	const secrets = `secrets: {e: {from: "env:E"}, f: {from: "file:f"}, c: {from: "cmd:c"}, v: {from: "vault:kv/data/a/b#x"}, t: {from: "vault:kv/data/a", deliver: {token: T}}}`
	for name, c := range map[string]struct {
		allowed, file string
		want          []string // prefixes of lines
	}{
		"no bounds":         {"{}", secrets + "\negress: [{allow: a.com}]\nresolvers: [\"udp://192.0.2.1\"]", nil},
		"no sources":        {"{sources: []}", secrets, []string{"secret c: a source of kind cmd; projects.sources allows none", "secret e: ", "secret f: ", "secret t: ", "secret v: "}},
		"some sources":      {"{sources: [vault, file]}", secrets, []string{"secret c: ", "secret e: "}},
		"no secrets":        {"{sources: [], vault: []}", "", nil},
		"no paths":          {"{vault: []}", secrets, []string{`secret t: the Vault path "kv/data/a"; projects.vault allows none`, `secret v: the Vault path "kv/data/a/b"`}},
		"a path":            {"{vault: [kv/data/a]}", secrets, []string{"secret v: "}},
		"paths below":       {"{vault: [kv/data/a/*]}", secrets, []string{"secret t: "}},
		"a beginning":       {"{vault: [kv/data/a*]}", secrets, nil},
		"two paths":         {"{vault: [kv/data/a, kv/data/a/b]}", secrets, nil},
		"every path":        {`{vault: ["kv/*"]}`, secrets, nil},
		"dots":              {"{vault: [kv/a/*]}", `secrets: {a: {from: "vault:kv/a/../b#x"}, b: {from: "vault:kv/a/./b#x"}, c: {from: "vault:kv/a//b#x"}}`, []string{"secret a: ", "secret b: ", "secret c: "}},
		"no egress":         {"{egress: []}", `egress: [{allow: a.com}]`, []string{"egress: a.com tcp/443: no rule"}},
		"egress":            {`{egress: [{allow: "*.a.com"}]}`, `egress: [{allow: x.a.com}, {allow: "*.a.com"}]`, nil},
		"a whole domain":    {`{egress: [{allow: "*.a.com"}]}`, `egress: [{allow: "*.b.a.com"}, {allow: "*.c.com"}]`, []string{"egress: *.c.com tcp/443: "}},
		"any name":          {`{egress: [{allow: "**"}]}`, `egress: [{allow: a.com}, {allow: a.com, ports: [tcp/80]}, {allow: 192.0.2.0/24, mode: direct}]`, []string{"egress: a.com tcp/80: ", "egress: 192.0.2.0/24 tcp/443 direct: "}},
		"special addresses": {`{egress: [{allow: a.com, addresses: [10.0.0.0/8]}, {allow: b.com}]}`, `egress: [{allow: a.com, addresses: [10.1.0.0/16]}, {allow: b.com, addresses: [10.1.0.0/16]}]`, []string{"egress: b.com"}},
		"a credential":      {`{egress: [{allow: a.com, http: {}}]}`, "egress: [{allow: a.com, http: {}, credential: k}]\nsecrets: {k: {from: \"env:K\", deliver: {header: x-key}}}", nil},
		"resolvers":         {`{egress: []}`, `resolvers: ["udp://192.0.2.1"]`, []string{"resolvers: udp://192.0.2.1; projects.resolvers allows none"}},
		"some resolvers":    {`{resolvers: ["udp://192.0.2.1"]}`, `resolvers: ["udp://192.0.2.1", "udp://192.0.2.2"]`, []string{"resolvers: udp://192.0.2.2; "}},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := allowed(c.allowed)
			if err != nil {
				t.Fatal(err)
			}
			f, err := Parse(Name, []byte("version: 1\n"+c.file))
			if err != nil {
				t.Fatal(err)
			}
			got, err := f.Beyond(a)
			if err != nil || !slices.EqualFunc(got, c.want, strings.HasPrefix) {
				t.Errorf("got %q %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestAllowedRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"{sources: [env, git]}":                     `line 1, column 27: an item of sources cannot be "git"; give env or file or cmd or vault`,
		"{source: [env]}":                           `unknown key "source" in projects; did you mean "sources"?`,
		"{sources: env}":                            "sources must be a list",
		"{vault: [/kv/a]}":                          "an item of vault cannot be",
		"{vault: [kv/../a]}":                        "an item of vault cannot be",
		"{vault: ['*/a']}":                          "an item of vault cannot be",
		"{vault: ['*']}":                            "an item of vault cannot be",
		"{egress: [{allow: a.com, credential: k}]}": `unknown key "credential" in an egress rule`,
		"{egress: [{allow: a.com, http: {redact: false}}]}":        `unknown key "redact" in http`,
		"{egress: [{allow: '*.com'}]}":                             "a whole top-level domain cannot be allowed",
		"{egress: [{allow: a.com}, {allow: a.com, mode: direct}]}": "both through the gateway",
		"{egress: [{allow: '**'}, {allow: '**', mode: direct}]}":   "both through the gateway",
		"{resolvers: [192.0.2.1]}":                                 "an item of resolvers cannot be",
		"{sources: [env], sources: [env]}":                         `mapping key "sources" already defined`,
		"[env]":                                                    "projects must be a mapping",
	} {
		if _, err := allowed(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestSources(t *testing.T) {
	f, err := Parse(Name, []byte("version: 1\nsecrets: {b: {from: \"env:PRIVATE\"}, a: {from: \"vault:kv/private#x\"}}"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(f.Sources(), " "); got != "a=vault b=env" {
		t.Errorf("got %s", got)
	}
}
