package quota_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/quota"
	"github.com/custody-project/custody/store"
)

const mib, gib = 1 << 20, 1 << 30

// parse reads a file as host.yaml is read.
func parse(text string) (quota.Config, error) {
	var file struct {
		Quotas quota.Config `yaml:"quotas"`
	}
	err := yaml.NewDecoder(strings.NewReader(text), yaml.Strict(), yaml.DisallowUnknownField()).Decode(&file)
	return file.Quotas, err
}

func TestSettings(t *testing.T) {
	got, err := parse(`
quotas:
  host: {cpus: 64, memory: 256GiB, sandboxes: 200}
  queue: {size: 5000, per_tenant: 50, wait: 90s}
  tenants:
    acme:
      sandboxes: 200
      cpus: none
      projects:
        web: {sandboxes: 100, disk_rate: none}
    "(none)": {llm_tokens_per_day: 1000}
  tenant: {sandboxes: 50, cpus: 32, memory: 68719476736, starts_per_minute: 600}
  project: {sandboxes: 20, disk_rate: 100MiB, network_rate: 64KiB}
`)
	if err != nil {
		t.Fatal(err)
	}
	tenant := quota.Limits{Sandboxes: 50, CPUs: 32, Memory: 64 * gib, StartsPerMinute: 600}
	project := quota.Limits{Sandboxes: 20, DiskRate: 100 * mib, NetworkRate: 64 << 10}
	acme, web, none := tenant, project, tenant
	acme.Sandboxes, acme.CPUs = 200, 0
	web.Sandboxes, web.DiskRate = 100, 0
	none.TokensPerDay = 1000
	want := quota.Config{
		Host: quota.Host{CPUs: 64, Memory: 256 * gib, Sandboxes: 200}, Queue: quota.Bounds{Size: 5000, PerTenant: 50, Wait: 90 * time.Second},
		Tenant: tenant, Project: project,
		Tenants: map[string]quota.Entry{"acme": {Limits: acme, Projects: map[string]quota.Limits{"web": web}}, "": {Limits: none}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for _, c := range []struct {
		tenant, project     string
		ofTenant, ofProject quota.Limits
	}{
		{"acme", "web", acme, web}, {"acme", "other", acme, project}, {"beta", "web", tenant, project}, {"", "web", none, project}, {"", "", none, project},
	} {
		if a, b := got.Of(c.tenant, c.project); a != c.ofTenant || b != c.ofProject {
			t.Errorf("%q of %q: %+v, %+v", c.project, c.tenant, a, b)
		}
	}
}

// TestSettingsRefused: a mistake has its line, and what to write.
func TestSettingsRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"quotas: 5", "line 1, column 9: quotas must be a mapping; write"},
		{"quotas: {}\nquotas: {}", "already defined"},
		{"quotas: {hosts: {}}", `unknown key "hosts" in quotas; known keys are host, project, queue, tenant, tenants`},
		{"quotas:\n  tenant:\n    cpu: 5", `line 3, column 5: unknown key "cpu" in quotas.tenant; known keys are cpus, disk_rate`},
		{"quotas: {tenant: {projects: {}}}", `unknown key "projects" in quotas.tenant`},
		{"quotas: {host: {disk_rate: 1MiB}}", `unknown key "disk_rate" in quotas.host`},
		{"quotas: {tenant: {cpus: }}", "quotas.tenant.cpus has no value; give it one or remove it"},
		{"quotas:\n  tenant:\n", "quotas.tenant has no value"},
		{"quotas: {tenant: {cpus: 1, cpus: 2}}", "already defined"},
		{"quotas: {tenant: {cpus: 0}}", "quotas.tenant.cpus is 0; give 1 to 1000000, or none for no limit"},
		{"quotas: {tenant: {cpus: -1}}", "quotas.tenant.cpus is -1; give 1 to"},
		{"quotas: {tenant: {cpus: 1.5}}", "quotas.tenant.cpus must be a whole number, not 1.5; write none"},
		{`quotas: {tenant: {cpus: "4"}}`, "must be a whole number"},
		{"quotas: {tenant: {sandboxes: 99999999999999999999}}", "sandboxes"},
		{"quotas: {tenant: {memory: much}}", "quotas.tenant.memory must be a size such as 512MiB or 2GiB, not much"},
		{"quotas: {tenant: {memory: 1KiB}}", "quotas.tenant.memory is 1KiB; give 1MiB to 1PiB"},
		{"quotas: {tenant: {memory: 99999999PiB}}", "give 1MiB to 1PiB"},
		{"quotas: {project: {network_rate: 1KiB}}", "quotas.project.network_rate is 1KiB; give 64KiB to 1TiB"},
		{"quotas: {tenant: {starts_per_minute: [5]}}", "must be a whole number"},
		{"quotas: {queue: {size: 0}}", "quotas.queue.size must be a whole number, not 0; give 1 to"},
		{"quotas: {queue: {size: none}}", "quotas.queue.size must be"},
		{"quotas: {queue: {wait: 5}}", "quotas.queue.wait must be a duration, not 5; write 30s or 5m"},
		{"quotas: {queue: {wait: 48h}}", "at most 24h"},
		{"quotas: {tenants: [acme]}", "quotas.tenants must be a mapping"},
		{"quotas: {tenants: {5: {}}}", "the key 5 in quotas.tenants must be a string; put it in quotes"},
		{"quotas: {tenants: {a b: {}}}", `quotas.tenants cannot have "a b"; a tenant has 1 to 64 letters`},
		{"quotas: {tenants: {\"\": {}}}", `quotas.tenants cannot have ""; a tenant has 1 to 64 letters, digits, '-', '_' or '.'; (none) stands`},
		{"quotas: {tenants: {acme: {projects: {Web: {}}}}}", `quotas.tenants.acme.projects cannot have "Web"`},
		{"quotas:\n  tenants:\n    acme:\n      projects:\n        web: {size: 4}", `line 5, column 15: unknown key "size" in quotas.tenants.acme.projects.web`},
		{"quotas:\n  tenant: &a {cpus: 1}\n  project: *a", "must be a mapping"},
	} {
		if got, err := parse(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v, want %s", c.text, got, err, c.want)
		}
	}
}

// TestNames: an entry can have the names that tenants and projects have elsewhere.
func TestNames(t *testing.T) {
	for _, name := range []string{"a", "a-b", "A", "a.b", "a_b", "-", "0x", strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 65), "ä", "a/b"} {
		_, err := parse("quotas: {tenants: {t: {projects: {\"" + name + "\": {}}}}}")
		if (err == nil) != project.ValidName(name) {
			t.Errorf("%q as the name of a project: %v", name, err)
		}
	}
	if _, err := parse("quotas: {tenants: {" + strings.Repeat("a", store.MaxName) + ": {}, " + store.NoTenant + ": {}}}"); err != nil {
		t.Error(err)
	}
	if _, err := parse("quotas: {tenants: {" + strings.Repeat("a", store.MaxName+1) + ": {}}}"); err == nil {
		t.Error("a name that is too long was accepted")
	}
}

// FuzzSettings: what is accepted is within the bounds of each setting, and has no entry without a name.
func FuzzSettings(f *testing.F) {
	for _, body := range []string{
		"host: {cpus: 64, memory: 256GiB}\ntenant: {cpus: 4, memory: none, llm_tokens_per_day: 5}", "queue: {size: 5, wait: 1ms}",
		"tenants: {acme: {sandboxes: 5, projects: {web: {cpus: 1}}}, (none): {}}\nproject: {starts_per_minute: 1, disk_rate: 64KiB}",
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		c, err := parse("quotas:\n  " + strings.ReplaceAll(body, "\n", "\n  "))
		if err != nil {
			return
		}
		all := []quota.Limits{c.Tenant, c.Project, {CPUs: c.Host.CPUs, Memory: c.Host.Memory, Sandboxes: c.Host.Sandboxes}}
		for name, e := range c.Tenants {
			all = append(all, e.Limits)
			if len(name) > store.MaxName {
				t.Errorf("the tenant %q", name)
			}
			for name, l := range e.Projects {
				all = append(all, l)
				if !project.ValidName(name) {
					t.Errorf("the project %q", name)
				}
			}
		}
		for _, l := range all {
			for _, v := range []int64{l.Sandboxes, l.CPUs, l.StartsPerMinute} {
				if v < 0 || v > 1_000_000 {
					t.Errorf("%+v", l)
				}
			}
			for _, v := range []int64{l.Memory, l.TokensPerDay, l.DiskRate, l.NetworkRate} {
				if v < 0 || v > 1<<50 {
					t.Errorf("%+v", l)
				}
			}
		}
		if q := c.Queue; q.Size < 0 || q.Size > 1_000_000 || q.PerTenant < 0 || q.PerTenant > 1_000_000 || q.Wait < 0 || q.Wait > 24*time.Hour {
			t.Errorf("%+v", q)
		}
	})
}
