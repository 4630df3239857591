package project

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/state/lifecycle"
)

// registered is the base of the tests: every bound that a project can have.
const registered = `version: 1
project: shop
template: agent
isolation: gvisor
resolvers: ["udp://192.0.2.1", "udp://192.0.2.2"]
anomaly: freeze
egress:
- {allow: "*.example.com", ports: [tcp/443, tcp/8443], http: {methods: [GET, POST], paths: ["/v1/*"]}}
- {allow: api.model.test, http: {}, credential: model}
- {allow: 192.0.2.0/24, ports: [udp/53], mode: direct}
secrets:
  model: {from: "env:MODEL", deliver: {header: x-api-key}}
  git: {from: "file:/etc/git", deliver: {env: GIT}, hosts: ["*.example.com"]}
  hidden: {from: "env:HIDDEN"}
record: {mode: strict, output: 1MiB, files: {hash_over: 1KiB, read_over: 1MiB}}
limits: {cpus: 2, memory: 1GiB, disk: 1GiB, pids: 100, time: 5m, llm_tokens: 1000, disk_rate: 1MiB, idle: 10m}
lifecycle: {pause: 5m, delete: 7d, keep: 30d}
env: {A: b}
steps: [{name: s, run: "true"}]
`

func narrowed(t *testing.T, base, file string) (File, []string) {
	t.Helper()
	f, err := Parse(Name, []byte(base))
	if err != nil {
		t.Fatal(err)
	}
	got, beyond, err := f.Narrow("narrow.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return got, beyond
}

// TestNarrow: what a file asks for beyond a project is found, with its place; what is within is not.
func TestNarrow(t *testing.T) {
	for name, c := range map[string]struct {
		file string // after "version: 1"
		want string // the beginning of what is beyond; empty: nothing
	}{
		"nothing":           {"", ""},
		"the same":          {strings.TrimPrefix(registered, "version: 1\n"), ""},
		"another project":   {"project: other", "narrow.yaml:2:1: project: other; the project allows shop"},
		"another template":  {"template: base", "narrow.yaml:2:1: template: base; the project allows agent"},
		"stronger":          {"isolation: firecracker", ""},
		"weaker":            {"isolation: qemu-tcg", "narrow.yaml:2:1: isolation: qemu-tcg; the project allows gvisor or a stronger one"},
		"a lower rate":      {"limits: {disk_rate: 512KiB}", ""},
		"a higher rate":     {"limits: {disk_rate: 2MiB}", "narrow.yaml:2:10: limits.disk_rate: 2MiB; the project allows at most 1MiB"},
		"a shorter silence": {"limits: {silence: 10s}", ""},
		"a longer silence":  {"limits: {silence: 1m}", "narrow.yaml:2:10: limits.silence: 1m0s; the project allows at most 30s"},
		"a shorter idle":    {"limits: {idle: 5m}", ""},
		"another pause":     {"lifecycle: {pause: 1h}", ""},
		"no pause":          {"lifecycle: {pause: never, delete: 1d, keep: 1d12h}", ""},
		"a short deletion":  {"lifecycle: {delete: 1h}", ""},
		"an archive":        {"lifecycle: {archive: 1d, delete: 7d}", "narrow.yaml:2:13: lifecycle.archive: 1d; the project allows no archive"},
		"a later deletion":  {"lifecycle: {delete: 7d1s}", "narrow.yaml:2:13: lifecycle.delete: 7d1s; the project allows at most 7d"},
		"no deletion":       {"lifecycle: {delete: never}", "narrow.yaml:2:13: lifecycle.delete: never; the project allows at most 7d"},
		"kept longer":       {"lifecycle: {keep: 31d}", "narrow.yaml:2:13: lifecycle.keep: 31d; the project allows at most 30d"},
		"a longer idle":     {"limits: {idle: 11m}", "narrow.yaml:2:10: limits.idle: 11m0s; the project allows at most 10m0s"},
		"a new limit":       {"limits: {network_rate: 2MiB}", ""},
		"one resolver":      {`resolvers: ["udp://192.0.2.2"]`, ""},
		"another resolver":  {`resolvers: ["udp://192.0.2.3"]`, "narrow.yaml:2:1: resolvers: udp://192.0.2.3; the project allows udp://192.0.2.1, udp://192.0.2.2"},
		"no resolver":       {`resolvers: []`, "narrow.yaml:2:1: resolvers: none"},
		"the same anomaly":  {"anomaly: freeze", ""},
		"no freeze":         {"anomaly: revoke", "narrow.yaml:2:1: anomaly: revoke; the project allows freeze"},
		"an end":            {"anomaly: end", "narrow.yaml:2:1: anomaly: end"},

		"one name":           {`egress: [{allow: a.example.com, http: {methods: [GET], paths: ["/v1/a"]}}]`, ""},
		"one label more":     {`egress: [{allow: "*.a.example.com", http: {methods: [GET], paths: ["/v1/*"]}}]`, ""},
		"the name itself":    {"egress:\n- {allow: example.com}", "narrow.yaml:3:3: egress: example.com tcp/443: no rule allows this destination"},
		"one label less":     {`egress: [{allow: "*.example.com"}, {allow: "*.model.test", http: {}, credential: model}]` + "\n" + `secrets: {model: {from: "env:MODEL", deliver: {header: x-api-key}}}`, "narrow.yaml:2:10: egress: *.example.com tcp/443: the closest rule requires http"},
		"another port":       {`egress: [{allow: a.example.com, ports: [tcp/8080], http: {methods: [GET], paths: ["/v1/a"]}}]`, "narrow.yaml:2:10: egress: a.example.com tcp/8080"},
		"another method":     {`egress: [{allow: a.example.com, http: {methods: [PUT], paths: ["/v1/a"]}}]`, "narrow.yaml:2:10: egress: a.example.com"},
		"a shorter path":     {`egress: [{allow: a.example.com, http: {methods: [GET], paths: ["/v1*"]}}]`, "narrow.yaml:2:10: egress: a.example.com"},
		"capitals":           {`egress: [{allow: A.Example.COM, http: {methods: [GET], paths: ["/v1/a"]}}]`, ""},
		"IDN":                {`egress: [{allow: xn--exmple-cua.com, http: {methods: [GET], paths: ["/v1/a"]}}]`, "narrow.yaml:2:10: egress: xn--exmple-cua.com"},
		"direct":             {`egress: [{allow: a.example.com, mode: direct}]`, "narrow.yaml:2:10: egress: a.example.com tcp/443 direct: the closest rule has the other mode"},
		"a smaller range":    {`egress: [{allow: 192.0.2.128/25, ports: [udp/53], mode: direct}]`, ""},
		"a larger range":     {`egress: [{allow: 192.0.0.0/16, ports: [udp/53], mode: direct}]`, "narrow.yaml:2:10: egress: 192.0.0.0/16 udp/53 direct"},
		"the credential":     {`egress: [{allow: api.model.test, http: {methods: [POST]}, credential: model}]` + "\n" + `secrets: {model: {from: "env:MODEL", deliver: {header: x-api-key}}}`, ""},
		"no credential":      {`egress: [{allow: api.model.test, http: {redact: true}}]`, "narrow.yaml:2:10: egress: api.model.test tcp/443 http redact=true: the closest rule has another credential, or none"},
		"in another place":   {`egress: [{allow: a.example.com, http: {methods: [GET], paths: ["/v1/a"]}, credential: model}]` + "\n" + `secrets: {model: {from: "env:MODEL", deliver: {header: x-api-key}}}`, "narrow.yaml:2:10: egress: a.example.com"},
		"special addresses":  {`egress: [{allow: a.example.com, http: {methods: [GET], paths: ["/v1/a"]}, addresses: [10.0.0.0/8]}]`, "narrow.yaml:2:10: egress: a.example.com"},
		"a secret":           {`secrets: {git: {from: "file:/etc/git", deliver: {env: GIT}, hosts: [a.example.com, "*.b.example.com"]}}`, ""},
		"a new secret":       {`secrets: {new: {from: "env:NEW"}}`, "narrow.yaml:2:11: secret new: the project has no secret of this name"},
		"another source":     {`secrets: {git: {from: "file:/etc/shadow", deliver: {env: GIT}, hosts: ["*.example.com"]}}`, "narrow.yaml:2:11: secret git: the project has another source for it, file:/etc/git"},
		"another delivery":   {`secrets: {git: {from: "file:/etc/git", deliver: {file: git}, hosts: ["*.example.com"]}}`, "narrow.yaml:2:11: secret git: the project delivers it in another way"},
		"every host":         {`secrets: {git: {from: "file:/etc/git", deliver: {env: GIT}}}`, "narrow.yaml:2:11: secret git: the project allows it for fewer hosts"},
		"more hosts":         {`secrets: {git: {from: "file:/etc/git", deliver: {env: GIT}, hosts: [a.example.com, b.test]}}`, "narrow.yaml:2:11: secret git: the project allows it for fewer hosts"},
		"a delivery for one": {`secrets: {hidden: {from: "env:HIDDEN", deliver: {env: HIDDEN}}}`, "narrow.yaml:2:11: secret hidden: the project delivers it"},

		"degrade":       {"record: {mode: degrade}", "narrow.yaml:2:10: record.mode: degrade; the project allows strict"},
		"less output":   {"record: {output: 1KiB}", "narrow.yaml:2:10: record.output: 1KiB; the project allows no less than 1MiB"},
		"more output":   {"record: {output: 1GiB}", ""},
		"fewer hashes":  {"record: {files: {hash_over: 1025}}", "narrow.yaml:2:18: record.files.hash_over: 1025; the project allows at most 1024 bytes"},
		"more hashes":   {"record: {files: {hash_over: 0}}", ""},
		"fewer reads":   {"record: {files: {read_over: 2MiB}}", "narrow.yaml:2:18: record.files.read_over: 2097152"},
		"no reads":      {"record: {files: {read_over: -1}}", "narrow.yaml:2:18: record.files.read_over: -1; the project allows 0 to 1048576"},
		"more reads":    {"record: {files: {read_over: 0}}", ""},
		"fewer":         {"limits: {cpus: 1, memory: 512MiB, disk: 512MiB, pids: 50, time: 1m, llm_tokens: 1}", ""},
		"more cpus":     {"limits: {cpus: 3}", "narrow.yaml:2:10: limits.cpus: 3; the project allows at most 2"},
		"more memory":   {"limits:\n  memory: 2GiB", "narrow.yaml:3:3: limits.memory: 2GiB; the project allows at most 1GiB"},
		"more disk":     {"limits: {disk: 2GiB}", "narrow.yaml:2:10: limits.disk"},
		"more pids":     {"limits: {pids: 101}", "narrow.yaml:2:10: limits.pids"},
		"more time":     {"limits: {time: 6m}", "narrow.yaml:2:10: limits.time: 6m0s; the project allows at most 5m0s"},
		"more tokens":   {"limits: {llm_tokens: 1001}", "narrow.yaml:2:10: limits.llm_tokens: 1001; the project allows at most 1000"},
		"anything else": {"env: {B: c}\nsteps: [{name: other, run: make, workdir: /tmp, time: 5m}]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, beyond := narrowed(t, registered, "version: 1\n"+c.file)
			switch {
			case c.want == "" && len(beyond) > 0:
				t.Errorf("beyond: %q", beyond)
			case c.want != "" && (len(beyond) == 0 || !strings.HasPrefix(beyond[0], c.want)):
				t.Errorf("got %q, want %q", beyond, c.want)
			}
		})
	}
}

// TestNarrowInherits: keys that the file leaves out are the project's, and the project's secrets that are only masked stay
// masked.
func TestNarrowInherits(t *testing.T) {
	got, beyond := narrowed(t, registered, "version: 1")
	base, _ := narrowed(t, registered, registered)
	if len(beyond) > 0 || got.Project != "shop" || got.Template != "agent" || got.Isolation != "gvisor" || got.Anomaly != Freeze ||
		got.Record != base.Record || got.Limits != base.Limits || !slices.Equal(got.Resolvers, base.Resolvers) {
		t.Errorf("%+v, beyond %q", got, beyond)
	}
	if names := slices.Collect(maps.Keys(got.Secrets)); !slices.Equal(names, []string{"hidden"}) || got.Egress != nil || got.Steps != nil || got.Env != nil {
		t.Errorf("%+v", got)
	}
	_, beyond = narrowed(t, registered, "version: 1\nlimits: {time: 1m}\nsteps: [{name: s, run: 'true', time: 1m}]")
	if len(beyond) > 0 {
		t.Errorf("%q", beyond)
	}
	usual, beyond := narrowed(t, "version: 1\nproject: shop", "version: 1\nisolation: firecracker\nanomaly: end\nlimits: {llm_tokens: 9}")
	if len(beyond) > 0 || usual.Limits.Time != 15*time.Minute {
		t.Errorf("%+v, beyond %q", usual, beyond)
	}
	if _, beyond = narrowed(t, "version: 1\nproject: shop", "version: 1\nisolation: qemu-kvm\nresolvers: ['udp://192.0.2.1']"); len(beyond) != 2 {
		t.Errorf("%q", beyond)
	}
}

// TestNarrowComplete: each field of a file is compared, those that are added later too.
func TestNarrowComplete(t *testing.T) {
	base := Limits{}
	for v, i := reflect.ValueOf(&base).Elem(), 0; i < v.NumField(); i++ {
		v.Field(i).SetInt(1 << 30)
	}
	for i := range reflect.TypeFor[Limits]().NumField() {
		file := base
		reflect.ValueOf(&file).Elem().Field(i).SetInt(1<<30 + 1<<20)
		c := comparison{reader: &reader{}}
		if c.limits(base, file); len(c.excesses) != 1 {
			t.Errorf("the limit %s: %v", reflect.TypeFor[Limits]().Field(i).Name, c.excesses)
		}
	}
	for of, want := range map[reflect.Type]string{
		reflect.TypeFor[Record]():           "Mode Files Output",
		reflect.TypeFor[Files]():            "HashOver ReadOver",
		reflect.TypeFor[Secret]():           "From Deliver Hosts Line Column",
		reflect.TypeFor[File]():             "SHA256 Version Project Template Isolation Egress Resolvers Secrets Env Anomaly Record Limits Lifecycle Steps",
		reflect.TypeFor[lifecycle.Policy](): "Pause Archive Delete Keep",
		// Narrows of package netpolicy compares these.
		reflect.TypeFor[netpolicy.Rule](): "Pattern Ports Mode HTTP Addresses Credential Line Column",
		reflect.TypeFor[netpolicy.HTTP](): "Methods Paths Redact",
	} {
		var names []string
		for i := range of.NumField() {
			names = append(names, of.Field(i).Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s has the fields %s: compare the new ones when a file narrows a project, and list them here", of, got)
		}
	}
}

// FuzzNarrow: a file that is accepted is within its project in all that a run uses.
func FuzzNarrow(f *testing.F) {
	base, err := Parse(Name, []byte(registered))
	if err != nil {
		f.Fatal(err)
	}
	bound, err := base.Policy()
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(registered))
	f.Add([]byte("version: 1\negress: [{allow: a.example.com, http: {methods: [GET], paths: [\"/v1/a\"]}}]\nlimits: {cpus: 1}\n"))
	f.Add([]byte("\ufeffversion: 1\r\nresolvers: []\r\nsecrets: {git: {from: 'file:/etc/git'}}\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, beyond, err := base.Narrow(Name, b)
		if err != nil || len(beyond) > 0 {
			return
		}
		l, m := got.Limits, base.Limits
		if got.Project != "shop" || got.Template != "agent" || l.CPUs > m.CPUs || l.Memory > m.Memory || l.Disk > m.Disk || l.PIDs > m.PIDs ||
			l.Time > m.Time || l.LLMTokens == 0 || l.LLMTokens > m.LLMTokens || l.DiskRate == 0 || l.DiskRate > m.DiskRate || got.Record.Mode != Strict || got.Anomaly != Freeze || len(got.Resolvers) == 0 {
			t.Errorf("%+v", got)
		}
		for name, s := range got.Secrets {
			if has := base.Secrets[name]; s.From != has.From || s.Deliver != has.Deliver {
				t.Errorf("secret %s: %+v", name, s)
			}
		}
		policy, err := got.Policy()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"example.com", "a.example.com", "b.a.example.com", "api.model.test", "other.test"} {
			for _, port := range []uint16{80, 443, 8443} {
				for _, path := range []string{"/", "/v1/a", "/v2"} {
					for _, method := range []string{"GET", "POST", "DELETE"} {
						q := netpolicy.Question{Name: name, Port: netpolicy.Port{Proto: "tcp", Number: port}, Via: netpolicy.Gateway, Request: &netpolicy.Request{Method: method, Path: path}}
						if netpolicy.Decide(policy, q).Allow && !netpolicy.Decide(bound, q).Allow {
							t.Errorf("%v is allowed", q)
						}
					}
				}
			}
		}
	})
}
