package project

import (
	"bytes"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/dnsproxy/upstream"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/state/lifecycle"
)

const sample = `
version: 1
project: shop
template: base
egress:
  - allow: github.com                     # tcp/443, and the TLS name must be this name
  - allow: "*.PyPI.org."
  - allow: api.anthropic.com
    http: {methods: [POST], paths: ["/v1/messages"], redact: false}
    credential: anthropic
  - allow: db.example.internal
    ports: [tcp/5432, udp/53]
    mode: direct
    addresses: [10.0.0.0/8]
  - {allow: 192.0.2.0/24, mode: direct}
resolvers: ["udp://10.0.0.53", "tls://9.9.9.9#dns.quad9.net"]
secrets:
  anthropic: {from: "vault:secret/data/agents/anthropic#key", deliver: {header: x-api-key}}
  git: {from: "env:TOKEN", deliver: {env: GIT_TOKEN, file: git/token}, hosts: [github.com]}
anomaly: end
record: {mode: degrade, files: {hash_over: 4KiB, read_over: -1}, output: 1MiB}
limits: {cpus: 2, memory: 1GiB, disk: 17MiB, pids: 8, time: 1h30m, llm_tokens: 5000, disk_rate: 50MiB, network_rate: 64KiB, silence: 1m, idle: 10m}
lifecycle: {pause: 5m, archive: 7d, delete: 30d, keep: 60d12h}
steps:
  - {name: setup, run: "pip install -r requirements.txt"}
  - name: agent
    run: |
      cd src
      python agent.py
    secrets: [git]
    workdir: src
    time: 1h
`

var https = []netpolicy.Port{{Proto: "tcp", Number: 443}}

func pattern(t *testing.T, s string) netpolicy.Pattern {
	t.Helper()
	p, err := netpolicy.ParsePattern(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestParseSample(t *testing.T) {
	got, err := Parse(Name, []byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	want := File{
		Version: 1, Project: "shop", Template: "base",
		Egress: []netpolicy.Rule{
			{Pattern: pattern(t, "github.com"), Ports: https, Mode: netpolicy.Gateway, Line: 6, Column: 5},
			{Pattern: pattern(t, "*.pypi.org"), Ports: https, Mode: netpolicy.Gateway, Line: 7, Column: 5},
			{
				Pattern: pattern(t, "api.anthropic.com"), Ports: https, Mode: netpolicy.Gateway, Line: 8, Column: 5,
				HTTP: &netpolicy.HTTP{Methods: []string{"POST"}, Paths: []string{"/v1/messages"}, Redact: new(false)}, Credential: "anthropic",
			},
			{
				Pattern: pattern(t, "db.example.internal"), Ports: []netpolicy.Port{{Proto: "tcp", Number: 5432}, {Proto: "udp", Number: 53}},
				Mode: netpolicy.Direct, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Line: 11, Column: 5,
			},
			{Pattern: pattern(t, "192.0.2.0/24"), Ports: https, Mode: netpolicy.Direct, Line: 15, Column: 5},
		},
		Resolvers: []string{"udp://10.0.0.53", "tls://9.9.9.9#dns.quad9.net"},
		Secrets: map[string]Secret{
			"anthropic": {From: "vault:secret/data/agents/anthropic#key", Deliver: Deliver{Header: "x-api-key"}, Line: 18, Column: 3},
			"git":       {From: "env:TOKEN", Deliver: Deliver{Env: "GIT_TOKEN", File: "git/token"}, Hosts: []netpolicy.Pattern{pattern(t, "github.com")}, Line: 19, Column: 3},
		},
		Anomaly:   End,
		Record:    Record{Mode: Degrade, Files: Files{HashOver: 4096, ReadOver: -1}, Output: 1 << 20},
		Limits:    Limits{CPUs: 2, Memory: 1 << 30, Disk: 17 << 20, PIDs: 8, Time: 90 * time.Minute, LLMTokens: 5000, DiskRate: 50 << 20, NetworkRate: 64 << 10, Silence: time.Minute, Idle: 10 * time.Minute},
		Lifecycle: lifecycle.Policy{Pause: 5 * time.Minute, Archive: 7 * 24 * time.Hour, Delete: 30 * 24 * time.Hour, Keep: (60*24 + 12) * time.Hour},
		Steps: []Step{
			{Name: "setup", Run: "pip install -r requirements.txt"},
			{Name: "agent", Run: "cd src\npython agent.py\n", Secrets: []string{"git"}, Workdir: "src", Time: time.Hour},
		},
	}
	want.SHA256 = got.SHA256 // of the bytes, which TestDefaults checks
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestDefaults(t *testing.T) {
	got, err := Parse(Name, []byte("version: 1"))
	want := Default()
	want.SHA256 = "1a6ddd3533d91cae4b3742d4294fb07ee863a4d667fe598f01365bd68a18bcfd" // sha256sum's, of version: 1
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	l := Default().Limits
	if l != (Limits{1, 512 << 20, 2 << 30, 256, 15 * time.Minute, 30 * time.Second, 0, 0, 0, 0}) {
		t.Errorf("limits %+v", l)
	}
	got, err = Parse(Name, []byte("version: 1\nlimits: {pids: 9}\nrecord: {files: {hash_over: 10}}"))
	if err != nil || got.Limits.PIDs != 9 || got.Limits.Memory != 512<<20 ||
		got.Record.Files != (Files{10, 8 << 20}) || got.Record.Output != 64<<20 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestErrors(t *testing.T) {
	const v = "version: 1\n"
	cases := []struct{ what, in, want string }{
		{"empty", "", "c.yaml: the file is empty; it needs"},
		{"comment", "# nothing\n", "c.yaml: the file is empty"},
		{"null", "~", "c.yaml: the file is empty"},
		{"header only", "---\n", "c.yaml: the file is empty"},
		{"list", "- a\n", "c.yaml:1:1: the file must be a mapping, not a list"},
		{"text", "hello", "must be a mapping, not a string"},
		{"no version", "project: x\n", `version is missing; begin the file with "version: 1"`},
		{"version 2", "version: 2\n", `c.yaml:1:10: version is "2"; write version: 1, the only one`},
		{"version text", "version: \"1\"\n", "write version: 1, the only one"},
		{"typo", v + "limits:\n  cpus: 1\n  memroy: 1GiB\n", `c.yaml:4:3: unknown key "memroy" in limits; did you mean "memory"?`},
		{"top typo", v + "step: []\n", `c.yaml:2:1: unknown key "step" in the file; did you mean "steps"?`},
		{"unknown", v + "network: on\n", "known keys are anomaly, egress, env, isolation, lifecycle, limits, project, record, resolvers, secrets, steps, template, version"},
		{"twice", v + "project: a\nproject: b\n", `c.yaml:3:1: `},
		{"two documents", v + "---\nproject: x\n", "c.yaml:3:8: a second document starts here"},
		{"no value", v + "egress:\n", `c.yaml:2:1: "egress" has no value`},
		{"anchor", v + "project: &a x\n", "c.yaml:2:10: anchors, aliases and merge keys are not allowed"},
		{"alias", v + "project: *a\n", "anchors, aliases"},
		{"merge", v + "limits: {<<: {}}\n", "anchors, aliases"},
		{"tag", v + "project: !!str x\n", "tags and directives"},
		{"question", v + "? [a]\n: b\n", `marked with "?"`},
		{"syntax", v + "limits: {cpus: 1\n", "c.yaml:2:9: "},
		{"tab", v + "limits:\n\tcpus: 1\n", "c.yaml:3:1: "},
		{"project", v + "project: My Shop\n", `project cannot be "My Shop"; use 1 to 63 of a-z`},
		{"number for text", v + "project: 7\n", "c.yaml:2:10: project must be a string, not a number; put it in quotes"},
		{"cpus", v + "limits: {cpus: 0}\n", "c.yaml:2:16: cpus is 0; give 1 to 256"},
		{"cpus text", v + "limits: {cpus: two}\n", "cpus must be a whole number, not a string"},
		{"cpus huge", v + "limits: {cpus: 99999999999999999999}\n", "cpus"},
		{"memory", v + "limits: {memory: 64MiB}\n", `memory is "64MiB"; give 128MiB to 1TiB`},
		{"memory huge", v + "limits: {memory: 99999999999PiB}\n", `give 128MiB to 1TiB`},
		{"memory unit", v + "limits: {memory: 64 bananas}\n", "memory must be a size"},
		{"memory list", v + "limits: {memory: [1]}\n", "memory must be a size, not a list"},
		{"memory negative", v + "limits: {memory: -5}\n", `memory is "-5"`},
		{"disk rate", v + "limits: {disk_rate: 1KiB}\n", `disk_rate is "1KiB"; give 64KiB to 1TiB`},
		{"network rate", v + "limits: {network_rate: 0}\n", `network_rate is "0"; give 64KiB to 1TiB`},
		{"disk", v + "limits: {disk: 1MiB}\n", `disk is "1MiB"; give 16MiB to 16TiB`},
		{"pids", v + "limits: {pids: 7}\n", "pids is 7; give 8 to"},
		{"time", v + "limits: {time: 0s}\n", "time is 0s; give more than 0"},
		{"silence short", v + "limits: {silence: 4s}\n", `c.yaml:2:19: silence is "4s"; give 5s to 1h0m0s`},
		{"silence long", v + "limits: {silence: 61m}\n", `silence is "61m"; give 5s to 1h0m0s`},
		{"silence text", v + "limits: {silence: never}\n", `silence must be a duration, not "never"`},
		{"idle short", v + "limits: {idle: 9s}\n", `c.yaml:2:16: idle is "9s"; give 10s or more`},
		{"time unit", v + "limits: {time: 15}\n", "write 90s, 15m or 1h30m"},
		{"time text", v + "limits: {time: soon}\n", `not "soon"`},
		{"mode", v + "record: {mode: lax}\n", `mode cannot be "lax"; give strict or degrade`},
		{"hash_over", v + "record: {files: {hash_over: -1}}\n", `hash_over is "-1"; give 0 to`},
		{"read_over", v + "record: {files: {read_over: -2}}\n", `read_over is "-2"`},
		{"no allow", v + "egress: [{mode: direct}]\n", "an egress rule allows nothing"},
		{"address", v + "egress: [{allow: 10.0.0.1}]\n", "c.yaml:2:10: a range of addresses has no name that a gateway could check; give the rule mode: direct"},
		{"host bits", v + "egress: [{allow: 10.0.0.1/8, mode: direct}]\n", `c.yaml:2:18: allow cannot be "10.0.0.1/8"; the range has bits beyond its length: write 10.0.0.0/8`},
		{"addresses", v + "egress: [{allow: a.com, addresses: [10]}]\n", "c.yaml:2:37: an item of addresses must be a string, not a number"},
		{"addresses text", v + "egress: [{allow: a.com, addresses: [lan]}]\n", `c.yaml:2:37: an item of addresses cannot be "lan"; give a range of addresses`},
		{"addresses of a range", v + "egress: [{allow: 10.0.0.0/8, mode: direct, addresses: [10.0.0.0/8]}]\n", "the range itself names them"},
		{"our addresses", v + "egress: [{allow: 198.18.0.0/24, mode: direct}]\n", "the sandbox uses these addresses itself"},
		{"udp", v + "egress:\n  - allow: a.com\n    ports: [udp/53]\n", "c.yaml:3:5: the gateway carries TCP only"},
		{"resolver's port", v + "egress:\n  - ports: [tcp/53]\n    allow: a.com\n", "c.yaml:3:5: the gateway cannot listen where"},
		{"two modes", v + "egress:\n  - allow: a.com\n  - {allow: b.com}\n  - {allow: A.com, mode: direct}\n", ": a.com is allowed both through the gateway (line 3) and directly (line 5)"},
		{"http and not", v + "egress:\n  - allow: a.com\n  - {allow: A.com, http: {}}\n", "c.yaml:3:5: a.com is allowed with http (line 4) and without (line 3) on the same port"},
		{"two credentials", v + "secrets: {a: {from: \"env:A\", deliver: {header: x-a}}, b: {from: \"env:B\", deliver: {header: x-a}}}\negress:\n  - {allow: a.com, http: {}, credential: a}\n  - {allow: a.com, http: {}, credential: b}\n", `a.com has the credential "a" (line 4) and "b" (line 5) on the same port; name the same one`},
		{"bare credential", v + "secrets: {a: {from: \"env:A\", deliver: {header: x-a}}}\negress: [{allow: a.com, credential: a}]\n", "only to requests that the gateway reads"},
		{"connect", v + "egress: [{allow: a.com, http: {methods: [CONNECT]}}]\n", `c.yaml:2:42: an item of methods cannot be "CONNECT"; a gateway`},
		{"path star", v + "egress: [{allow: a.com, http: {paths: [\"/a/*/b\"]}}]\n", "it must be at its end"},
		{"path dots", v + "egress: [{allow: a.com, http: {paths: [\"/a/../*\"]}}]\n", "servers parse it in different ways"},
		{"resolver", v + "resolvers: [10.0.0.53]\n", `c.yaml:2:13: an item of resolvers cannot be "10.0.0.53"; write udp://`},
		{"wildcard", v + "egress: [{allow: \"a.*.com\"}]\n", "give a host name"},
		{"all", v + "egress: [{allow: \"*\"}]\n", "give a host name"},
		{"port", v + "egress: [{allow: a.com, ports: [443]}]\n", `"443" is not a port; write tcp/443`},
		{"port name", v + "egress: [{allow: a.com, ports: [tcp/https]}]\n", "write tcp/443 or udp/53"},
		{"port zero", v + "egress: [{allow: a.com, ports: [tcp/0]}]\n", "write tcp/443 or udp/53"},
		{"direct http", v + "egress: [{allow: a.com, mode: direct, http: {methods: [GET]}}]\n", "is not inspected"},
		{"method", v + "egress: [{allow: a.com, http: {methods: [get]}}]\n", "capitals"},
		{"path", v + "egress: [{allow: a.com, http: {paths: [x]}}]\n", "slash"},
		{"credential", v + "egress: [{allow: a.com, http: {}, credential: nope}]\n", `the secret "nope", which does not exist; define it`},
		{"source", v + "secrets: {a: {from: hunter2-hunter2, deliver: {env: A}}}\n", "does not belong in this file"},
		{"no source", v + "secrets: {a: {deliver: {env: A}}}\n", `c.yaml:2:11: the secret "a" has no source`},
		{"token and env", v + "secrets: {a: {from: \"vault:kv/a\", deliver: {env: A, token: B}}}\n", "give deliver: {token} alone"},
		{"token of a field", v + "secrets: {a: {from: \"vault:kv/a#b\", deliver: {token: B}}}\n", "without a field"},
		{"token of a variable", v + "secrets: {a: {from: \"env:A\", deliver: {token: B}}}\n", "its source is not a Vault path"},
		{"no field", v + "secrets: {a: {from: \"vault:kv/a\", deliver: {env: A}}}\n", "does not name a field"},
		{"clash", v + "secrets: {a: {from: \"env:A\", deliver: {env: A}}, b: {from: \"env:B\", deliver: {env: A}}}\nsteps: [{name: s, run: x, secrets: [a, b]}]\n", `"a" and "b" are both delivered to the variable A`},
		{"no header", v + "secrets: {a: {from: \"env:A\", deliver: {env: A}}}\negress: [{allow: a.com, http: {}, credential: a}]\n", "but has no header"},
		{"reserved header", v + "secrets: {a: {from: \"env:A\", deliver: {header: Host}}}\n", "has another meaning"},
		{"hosts and header", v + "secrets: {a: {from: \"env:A\", deliver: {header: x-a}, hosts: [a.com]}}\n", "remove hosts"},
		{"reserved file", v + "secrets: {a: {from: \"env:A\", deliver: {file: env}}}\n", "give another name"},
		{"reserved variable", v + "secrets: {a: {from: \"env:A\", deliver: {env: CUSTODY_RUN}}}\n", "Custody's own"},
		{"anomaly", v + "anomaly: panic\n", "give revoke or freeze or end"},
		{"tokens", v + "limits: {llm_tokens: 0}\n", "llm_tokens is 0"},
		{"lifecycle", v + "lifecycle: {stop: 5m}\n", `unknown key "stop" in lifecycle`},
		{"pause", v + "lifecycle: {pause: 9s}\n", `c.yaml:2:20: pause is "9s"; give 10s to 366d`},
		{"pause unit", v + "lifecycle: {pause: 5}\n", "write 30m, 12h or 7d, or never"},
		{"archive", v + "lifecycle: {archive: 59s}\n", "give 1m0s to 366d"},
		{"archive days", v + "lifecycle: {archive: d}\n", "write 30m, 12h or 7d"},
		{"archive twice", v + "lifecycle: {archive: 7d1d}\n", "write 30m, 12h or 7d"},
		{"archive minus", v + "lifecycle: {archive: 7d-1h}\n", "write 30m, 12h or 7d"},
		{"archive overflow", v + "lifecycle: {archive: 99999999999d}\n", "write 30m, 12h or 7d"},
		{"archive after delete", v + "lifecycle: {delete: 7d, archive: 7d}\n", `c.yaml:2:34: archive is "7d", and the deletion is no later; give less than 7d`},
		{"archive after the default", v + "lifecycle: {archive: 31d}\n", "give less than 30d"},
		{"keep", v + "lifecycle: {keep: 367d}\n", "give 1m0s to 366d"},
		{"keep never", v + "lifecycle: {keep: never}\n", `keep must be a duration with a unit, not "never"; write 30m, 12h or 7d`},
		{"redact", v + "egress: [{allow: a.com, http: {redact: 1}}]\n", "redact must be true or false"},
		{"env", v + "secrets: {a: {from: \"env:A\", deliver: {env: \"A B\"}}}\n", "variable's name"},
		{"file", v + "secrets: {a: {from: \"env:A\", deliver: {file: ../b}}}\n", "without a leading"},
		{"header", v + "secrets: {a: {from: \"env:A\", deliver: {header: \"a: b\"}}}\n", "header's name"},
		{"secret name", v + "secrets: {\"a]\": {from: \"env:A\", deliver: {env: A}}}\n", "a secret cannot be named"},
		{"step secret", v + "steps: [{name: a, run: b, secrets: [git]}]\n", `a step names the secret "git", which does not exist`},
		{"step without run", v + "steps: [{name: a}]\n", "a step needs a name and a command"},
		{"step twice", v + "steps: [{name: a, run: b}, {name: a, run: c}]\n", `two steps are named "a"`},
		{"step time", v + "limits: {time: 5m}\nsteps: [{name: a, run: b, time: 6m}]\n", `c.yaml:3:33: time is "6m", more than the run has; give 5m0s at most, or raise limits.time`},
		{"step time above the default", v + "steps: [{name: a, run: b, time: 16m}]\n", "give 15m0s at most"},
		{"step time short", v + "steps: [{name: a, run: b, time: 999ms}]\n", `time is "999ms"; give a step 1s at least`},
		{"step time unit", v + "steps: [{name: a, run: b, time: 60}]\n", "write 90s, 15m or 1h30m"},
		{"blank run", v + "steps: [{name: a, run: \" \"}]\n", "give a command"},
		{"empty item", v + "steps: [~]\n", "is empty"},
		{"workdir", v + "steps: [{name: a, run: b, workdir: ../x}]\n", `without ".."`},
		{"zero byte", v + "steps: [{name: a, run: \"b\\0\"}]\n", "zero byte"},
		{"brackets", v + "steps: " + strings.Repeat("[", 10000), "c.yaml:2:"},
		{"dashes", v + "steps:\n" + strings.Repeat("- ", 10000), "nested too deeply"},
		{"huge", strings.Repeat("# x\n", maxFile), "lists rules, not data"},
	}
	for _, c := range cases {
		_, err := Parse("c.yaml", []byte(c.in))
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v\nwant one with %q", c.what, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error repeats what may be a value: %v", c.what, err)
		}
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), Name)
	if _, err := Load(t.Context(), path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := Load(t.Context(), path); err != nil || f.Project != "shop" {
		t.Errorf("%+v, %v", f, err)
	}
	if err := os.WriteFile(path, []byte("version: 1\nx: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(t.Context(), path); err == nil || !strings.HasPrefix(err.Error(), path+":2:1: ") {
		t.Errorf("error %v does not say where", err)
	}
}

func TestResolver(t *testing.T) {
	good := []string{
		"udp://10.0.0.53", "udp://10.0.0.53:5353", "tcp://10.0.0.53:53", "tls://9.9.9.9", "tls://9.9.9.9:853", "tls://9.9.9.9#dns.quad9.net", "tls://9.9.9.9:8853#dns.quad9.net",
		"udp://2001:db8::53", "udp://[2001:db8::53]", "udp://[2001:db8::53]:53", "udp://127.0.0.53",
	}
	bad := []string{
		"", "10.0.0.53", "udp://", "udp://:53", "udp://dns.example.com", "udp://10.0.0.53:0", "udp://10.0.0.53:65536", "udp://10.0.0.53:dns", "udp://10.0.0.53#a.com", "https://10.0.0.53", "UDP://10.0.0.53",
		"udp://0.0.0.0", "udp://[::]:53", "udp://224.0.0.1", "udp://::ffff:10.0.0.53", "udp://fe80::1%eth0", "udp://[fe80::1%eth0]:53", "tls://9.9.9.9#", "tls://9.9.9.9#A.com", "tls://9.9.9.9#a b", "tls://9.9.9.9#1.2.3.4", "udp://10.0.0.53/",
		"udp://[10.0.0.53]:53", "udp://user@10.0.0.53", " udp://10.0.0.53", "udp:10.0.0.53", "tls://#a.com",
	}
	for _, s := range good {
		if hint := resolver(s); hint != "" {
			t.Errorf("%q: %s", s, hint)
		}
		if _, err := upstream.ParseServer(s); err != nil {
			t.Errorf("%q is accepted here, and then: %v", s, err)
		}
	}
	for _, s := range bad {
		if resolver(s) == "" {
			t.Errorf("%q is no server", s)
		}
	}
}

// FuzzResolver: the resolver's client accepts what is accepted here.
func FuzzResolver(f *testing.F) {
	for _, s := range []string{"udp://10.0.0.53", "tls://9.9.9.9:853#dns.quad9.net", "tcp://[2001:db8::53]:53", "udp://[::1", "udp://1.2.3.4]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if resolver(s) != "" {
			return
		}
		if _, err := upstream.ParseServer(s); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzParse: Parse never panics, always returns an *Error, and accepted values are within bounds.
func FuzzParse(f *testing.F) {
	f.Add([]byte(sample))
	for _, s := range []string{"", "version: 1\n", "a: &b [*b]\n", "{", "- - - -", "version: 1\nlimits: {time: 1ns, memory: 1e9}\n", "%YAML 1.2\n---\n", "version: 0x1\n"} {
		f.Add([]byte(s))
	}
	for _, s := range []string{
		"[{allow: a.com}, {allow: A.com.}]", "[{allow: \"*.a.com\", ports: [tcp/1, tcp/443]}]", "[{allow: a.com, ports: [443]}]", "[{allow: 10.0.0.0/8, mode: direct, ports: [udp/53]}]",
		"[{allow: \"::1\", mode: direct}]", "[{allow: a.com, addresses: [10.0.0.0/8, \"fd00::/8\"]}]", "[{allow: a.com, http: {}}, {allow: a.com}]", "[{allow: a.com}, {allow: a.com, mode: direct}]",
		"[{allow: a.com, http: {methods: [GET], paths: [/a, \"/b*\"]}}]\nresolvers: [\"udp://1.1.1.1\"]", "[{allow: a.com, http: {paths: [/%2e]}}]", "\n- allow: a.com\n  http:\n    methods:\n    - GET\n- mode: direct\n  allow: b.com",
	} {
		f.Add([]byte("version: 1\negress: " + s + "\n"))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := Parse("f", in)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Message == "" {
				t.Fatalf("%q: %T %v", in, err, err)
			}
			return
		}
		l := got.Limits
		if got.Version != 1 || l.CPUs < 1 || l.Memory < minMemory || l.Disk < minDisk || l.PIDs < minPIDs || l.Time <= 0 ||
			got.Record.Output < 0 || got.Record.Files.HashOver < 0 || got.Record.Files.ReadOver < -1 || label(got.Project) != "" {
			t.Fatalf("%q: accepted out of bounds: %+v", in, got)
		}
		policy, err := got.Policy()
		if err != nil {
			t.Fatalf("%q: the rules contradict each other: %v", in, err)
		}
		if again, err := netpolicy.Parse(policy.String()); err != nil || again.Digest() != policy.Digest() {
			t.Fatalf("%q: the policy is read back as %v, %v", in, again, err)
		}
		lines := bytes.Count(in, []byte("\n")) + bytes.Count(in, []byte("\r")) + 1
		for _, r := range got.Egress {
			if r.Line < 1 || r.Line > lines || r.Column < 1 {
				t.Fatalf("%q: %s stands at %d:%d", in, r.String(), r.Line, r.Column)
			}
		}
		for _, s := range got.Resolvers {
			if _, err := upstream.ParseServer(s); err != nil {
				t.Fatalf("%q: %v", in, err)
			}
		}
		for _, s := range got.Steps {
			for _, n := range s.Secrets {
				if _, ok := got.Secrets[n]; !ok {
					t.Fatalf("%q: step %q wants a secret that is not there", in, s.Name)
				}
			}
		}
	})
}
