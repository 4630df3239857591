package quota

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/internal/yamlnode"
	"github.com/docker/go-units"
	"github.com/goccy/go-yaml/ast"
)

const (
	kib, mib, tib, pib = 1 << 10, 1 << 20, 1 << 40, 1 << 50

	maxCount  = 1_000_000
	maxTokens = 1 << 50
	maxWait   = 24 * time.Hour
	maxNames  = 100_000 // entries of tenants, and of projects of one
)

// noTenant is the key of the entry for sandboxes without a tenant; no tenant can have that name.
const noTenant = "(none)"

var (
	tenantRE  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	projectRE = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)
)

// setting is a limit in host.yaml.
type setting struct {
	name        Quota
	field       func(*Limits) *int64
	least, most int64
	bytes       bool // a size such as 2GiB
}

// settings returns the limits that a tenant or a project can have.
func settings() []setting {
	return []setting{
		{Sandboxes, func(l *Limits) *int64 { return &l.Sandboxes }, 1, maxCount, false},
		{CPUs, func(l *Limits) *int64 { return &l.CPUs }, 1, maxCount, false},
		{Memory, func(l *Limits) *int64 { return &l.Memory }, mib, pib, true},
		{Starts, func(l *Limits) *int64 { return &l.StartsPerMinute }, 1, maxCount, false},
		{Tokens, func(l *Limits) *int64 { return &l.TokensPerDay }, 1, maxTokens, false},
		{DiskRate, func(l *Limits) *int64 { return &l.DiskRate }, 64 * kib, tib, true},
		{NetworkRate, func(l *Limits) *int64 { return &l.NetworkRate }, 64 * kib, tib, true},
	}
}

// UnmarshalYAML reads the value of quotas in host.yaml. Its errors have the line and a remedy.
func (c *Config) UnmarshalYAML(n ast.Node) error {
	*c = Config{}
	var tenants ast.Node // read last, when the defaults are known
	err := mapping(n, "quotas", fields{
		"host": func(n ast.Node, what string) error {
			var l Limits
			if err := l.read(n, what, fields{}, Sandboxes, CPUs, Memory); err != nil {
				return err
			}
			c.Host = Host{CPUs: l.CPUs, Memory: l.Memory, Sandboxes: l.Sandboxes}
			return nil
		},
		"queue":   c.Queue.read,
		"tenant":  func(n ast.Node, what string) error { return c.Tenant.read(n, what, fields{}) },
		"project": func(n ast.Node, what string) error { return c.Project.read(n, what, fields{}) },
		"tenants": func(n ast.Node, _ string) error { tenants = n; return nil },
	})
	if err != nil || tenants == nil {
		return err
	}
	return c.readTenants(tenants)
}

func (c *Config) readTenants(n ast.Node) error {
	const what = "quotas.tenants"
	c.Tenants = map[string]Entry{}
	return entries(n, what, func(name string, key, n ast.Node) error {
		switch {
		case len(c.Tenants) == maxNames:
			return mistake(key, fmt.Sprintf("%s has more than %d entries", what, maxNames), "use the defaults under quotas.tenant")
		case !tenantRE.MatchString(name) && name != noTenant:
			return mistake(key, fmt.Sprintf("%s cannot have %.80q", what, name), "a tenant has 1 to 64 letters, digits, '-', '_' or '.'; "+noTenant+" stands for those without one")
		}
		e := Entry{Limits: c.Tenant}
		err := e.Limits.read(n, what+"."+name, fields{"projects": func(n ast.Node, what string) (err error) {
			e.Projects, err = c.readProjects(n, what)
			return err
		}})
		if name == noTenant {
			name = ""
		}
		c.Tenants[name] = e
		return err
	})
}

func (c *Config) readProjects(n ast.Node, what string) (map[string]Limits, error) {
	all := map[string]Limits{}
	return all, entries(n, what, func(name string, key, n ast.Node) error {
		switch {
		case len(all) == maxNames:
			return mistake(key, fmt.Sprintf("%s has more than %d entries", what, maxNames), "use the defaults under quotas.project")
		case !projectRE.MatchString(name):
			return mistake(key, fmt.Sprintf("%s cannot have %.80q", what, name), "the name of a project has 1 to 63 of a-z, 0-9 and -")
		}
		l := c.Project
		err := l.read(n, what+"."+name, fields{})
		all[name] = l
		return err
	})
}

// read replaces the limits that n sets. It accepts the keys in others too, and of the limits only those in only, if there are any.
func (l *Limits) read(n ast.Node, what string, others fields, only ...Quota) error {
	for _, s := range settings() {
		if len(only) == 0 || slices.Contains(only, s.name) {
			others[string(s.name)] = func(n ast.Node, what string) error { return s.read(n, what, s.field(l)) }
		}
	}
	return mapping(n, what, others)
}

func (s setting) read(n ast.Node, what string, to *int64) error {
	if text, ok := n.(*ast.StringNode); ok && text.Value == "none" {
		*to = 0
		return nil
	}
	v, ok := yamlnode.Integer(n)
	form := "a whole number"
	if s.bytes {
		form = "a size such as 512MiB or 2GiB"
		if text, isText := n.(*ast.StringNode); isText {
			size, err := units.RAMInBytes(text.Value)
			v, ok = size, err == nil
		}
	}
	if !ok {
		return mistake(n, fmt.Sprintf("%s must be %s, not %.80s", what, form, n), "write none for no limit")
	}
	if v < s.least || v > s.most {
		return mistake(n, fmt.Sprintf("%s is %.80s", what, n), fmt.Sprintf("give %s to %s, or none for no limit", s.text(s.least), s.text(s.most)))
	}
	*to = v
	return nil
}

// text returns v as host.yaml would have it.
func (s setting) text(v int64) string {
	if s.bytes {
		return sizeText(v)
	}
	return fmt.Sprint(v)
}

func sizeText(v int64) string {
	return units.CustomSize("%.4g%s", float64(v), 1024, []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"})
}

// read replaces the bounds that n sets.
func (b *Bounds) read(n ast.Node, what string) error {
	count := func(to *int) func(ast.Node, string) error {
		return func(n ast.Node, what string) error {
			v, ok := yamlnode.Integer(n)
			if !ok || v < 1 || v > maxCount {
				return mistake(n, fmt.Sprintf("%s must be a whole number, not %.80s", what, n), fmt.Sprintf("give 1 to %d", maxCount))
			}
			*to = int(v)
			return nil
		}
	}
	return mapping(n, what, fields{
		"size":       count(&b.Size),
		"per_tenant": count(&b.PerTenant),
		"wait": func(n ast.Node, what string) error {
			d, err := time.ParseDuration(strings.Trim(n.String(), `"'`))
			if err != nil || d <= 0 || d > maxWait {
				return mistake(n, fmt.Sprintf("%s must be a duration, not %.80s", what, n), fmt.Sprintf("write 30s or 5m, at most %v", maxWait))
			}
			b.Wait = d
			return nil
		},
	})
}

// fields are the keys that a mapping can have, with the readers of their values. what names the value in errors.
type fields map[string]func(n ast.Node, what string) error

func mapping(n ast.Node, what string, known fields) error {
	return entries(n, what, func(name string, key, n ast.Node) error {
		read, ok := known[name]
		if !ok {
			names := make([]string, 0, len(known))
			for name := range known {
				names = append(names, name)
			}
			slices.Sort(names)
			return mistake(key, fmt.Sprintf("unknown key %.80q in %s", name, what), "known keys are "+strings.Join(names, ", "))
		}
		return read(n, what+"."+name)
	})
}

// entries calls do for each entry of a mapping. The YAML parser refuses keys that are given twice.
func entries(n ast.Node, what string, do func(name string, key, value ast.Node) error) error {
	m, ok := n.(ast.MapNode)
	if !ok {
		return mistake(n, what+" must be a mapping", `write "key: value" pairs`)
	}
	for it := m.MapRange(); it.Next(); {
		name, ok := it.Key().(*ast.StringNode)
		switch {
		case !ok:
			return mistake(it.Key(), fmt.Sprintf("the key %.80s in %s must be a string", it.Key(), what), "put it in quotes")
		case it.Value() == nil || it.Value().Type() == ast.NullType:
			return mistake(it.Key(), fmt.Sprintf("%s.%.80s has no value", what, name.Value), "give it one or remove it")
		}
		if err := do(name.Value, it.Key(), it.Value()); err != nil {
			return err
		}
	}
	return nil
}

// mistake returns an error about n, with its position.
func mistake(n ast.Node, message, remedy string) error {
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return fmt.Errorf("%s; %s", message, remedy)
	}
	at := n.GetToken().Position
	return fmt.Errorf("line %d, column %d: %s; %s", at.Line, at.Column, message, remedy)
}
