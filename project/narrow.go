package project

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/vmm"
)

// Narrow parses the contents of a file that may ask for at most what f, the file of a registered project, asks for. What
// it leaves out of template, isolation, resolvers, anomaly, record, limits and lifecycle is as in f, and f's secrets without a
// delivery are masked in its runs too. beyond lists what exceeds f, each with its place in the file and what f allows;
// name is the file's in it and in errors.
func (f *File) Narrow(name string, b []byte) (narrow File, beyond []string, err error) {
	start := *f
	start.Egress, start.Secrets, start.Env, start.Steps = nil, nil, nil, nil
	d := &decoder{reader: &reader{file: name, at: map[string][2]int{}}}
	if narrow, err = d.decode(b, start); err != nil {
		return File{}, nil, err
	}
	c := comparison{base: f, file: &narrow, reader: d.reader}
	if err := c.all(); err != nil {
		return File{}, nil, err
	}
	for secret, s := range f.Secrets {
		if _, has := narrow.Secrets[secret]; !has && s.Deliver == (Deliver{}) {
			if narrow.Secrets == nil {
				narrow.Secrets = map[string]Secret{}
			}
			narrow.Secrets[secret] = s
		}
	}
	slices.SortStableFunc(c.excesses, func(a, b Error) int { return cmp.Compare(a.Line, b.Line) })
	for _, e := range c.excesses {
		beyond = append(beyond, e.Error())
	}
	return narrow, beyond, nil
}

// comparison collects what a file asks for beyond base.
type comparison struct {
	base, file *File
	reader     *reader
	excesses   []Error
}

// add adds an excess at a position of the file.
func (c *comparison) add(line, column int, format string, args ...any) {
	e := Error{File: c.reader.file, Line: line, Column: column, Message: fmt.Sprintf(format, args...)}
	c.excesses = append(c.excesses, e)
}

// key adds an excess in the value of a key, unless ok.
func (c *comparison) key(ok bool, key string, asked, allowed any) {
	if !ok {
		at := c.reader.at[strings.Replace(key, "record.files", "files", 1)]
		c.add(at[0], at[1], "%s: %v; the project allows %v", key, asked, allowed)
	}
}

func (c *comparison) all() error {
	base, file := c.base, c.file
	c.key(file.Project == base.Project, "project", file.Project, base.Project)
	c.key(file.Template == base.Template, "template", file.Template, base.Template)
	c.key(base.AllowsTier(file.Isolation), "isolation", file.Isolation, base.Tiers())
	c.key(file.Anomaly == base.Anomaly || base.Anomaly == Revoke, "anomaly", file.Anomaly, base.Anomaly)
	for _, r := range file.Resolvers {
		c.key(slices.Contains(base.Resolvers, r), "resolvers", r, listed(base.Resolvers))
	}
	c.key(len(file.Resolvers) > 0 || len(base.Resolvers) == 0, "resolvers", "none, which asks those of the host", listed(base.Resolvers))
	c.record(base.Record, file.Record)
	c.limits(base.Limits, file.Limits)
	c.lifecycle(base.Lifecycle, file.Lifecycle)
	for _, name := range slices.Sorted(maps.Keys(file.Secrets)) {
		c.secret(name)
	}
	return c.egress()
}

func (c *comparison) egress() error {
	bound, err := c.base.Policy()
	if err != nil {
		return err
	}
	policy, err := c.file.Policy()
	if err != nil {
		return err
	}
	for _, e := range policy.Narrows(bound) {
		c.add(e.Rule.Line, e.Rule.Column, "egress: %v", e)
	}
	return nil
}

func (c *comparison) record(base, file Record) {
	c.key(file.Mode == base.Mode || file.Mode == Strict, "record.mode", file.Mode, base.Mode)
	c.key(file.Output >= base.Output, "record.output", bytesize(file.Output), "no less than "+bytesize(base.Output))
	c.key(file.Files.HashOver <= base.Files.HashOver, "record.files.hash_over", file.Files.HashOver, atMost(base.Files.HashOver, "bytes"))
	reads := base.Files.ReadOver < 0 || file.Files.ReadOver >= 0 && file.Files.ReadOver <= base.Files.ReadOver
	c.key(reads, "record.files.read_over", file.Files.ReadOver, "0 to "+fmt.Sprint(base.Files.ReadOver))
}

func (c *comparison) limits(base, file Limits) {
	c.key(file.CPUs <= base.CPUs, "limits.cpus", file.CPUs, atMost(int64(base.CPUs), ""))
	c.key(file.Memory <= base.Memory, "limits.memory", bytesize(file.Memory), "at most "+bytesize(base.Memory))
	c.key(file.Disk <= base.Disk, "limits.disk", bytesize(file.Disk), "at most "+bytesize(base.Disk))
	c.rate("limits.disk_rate", base.DiskRate, file.DiskRate)
	c.rate("limits.network_rate", base.NetworkRate, file.NetworkRate)
	c.key(file.PIDs <= base.PIDs, "limits.pids", file.PIDs, atMost(int64(base.PIDs), ""))
	c.key(file.Time <= base.Time, "limits.time", file.Time, "at most "+base.Time.String())
	c.key(file.Silence <= base.Silence, "limits.silence", file.Silence, "at most "+base.Silence.String())
	idle := base.Idle == 0 || file.Idle > 0 && file.Idle <= base.Idle
	c.key(idle, "limits.idle", file.Idle, "at most "+base.Idle.String())
	tokens := base.LLMTokens == 0 || file.LLMTokens > 0 && file.LLMTokens <= base.LLMTokens
	c.key(tokens, "limits.llm_tokens", file.LLMTokens, atMost(base.LLMTokens, ""))
}

// rate compares limits of which 0 is none.
func (c *comparison) rate(name string, base, file int64) {
	c.key(base == 0 || file > 0 && file <= base, name, bytesize(file), "at most "+bytesize(base))
}

func atMost(n int64, unit string) string {
	if unit != "" {
		unit = " " + unit
	}
	return fmt.Sprintf("at most %d%s", n, unit)
}

// secret compares a secret of the file with the one of that name.
func (c *comparison) secret(name string) {
	asked := c.file.Secrets[name]
	allowed, has := c.base.Secrets[name]
	what := ""
	switch {
	case !has:
		what = "the project has no secret of this name"
	case asked.From != allowed.From:
		what = "the project has another source for it, " + allowed.From
	case asked.Deliver != allowed.Deliver:
		what = "the project delivers it in another way"
	case !hostsWithin(asked.Hosts, allowed.Hosts):
		what = "the project allows it for fewer hosts"
	default:
		return
	}
	c.add(asked.Line, asked.Column, "secret %s: %s", name, what)
}

// hostsWithin reports whether a secret for the hosts of list is sent to no host that limits do not name. An empty list is
// every host.
func hostsWithin(list, limits []netpolicy.Pattern) bool {
	return len(limits) == 0 || len(list) > 0 && !slices.ContainsFunc(list, func(p netpolicy.Pattern) bool {
		name, below := p.Name()
		return !slices.ContainsFunc(limits, func(limit netpolicy.Pattern) bool {
			_, open := limit.Name()
			return p == limit || limit.Matches(name) && (!below || open)
		})
	})
}

// AllowsTier reports whether a run of the registered project f may require an isolation tier: the one that f requires or a
// stronger one; if f requires none, none or the strongest, because runs of f get the best that works.
func (f *File) AllowsTier(tier string) bool {
	order := vmm.Tiers() // best first
	if f.Isolation == "" {
		return tier == "" || tier == order[0]
	}
	return tier != "" && slices.Index(order, tier) <= slices.Index(order, f.Isolation)
}

// Tiers describes what AllowsTier allows.
func (f *File) Tiers() string {
	if f.Isolation == "" {
		return "the best tier that works: leave it out"
	}
	return f.Isolation + " or a stronger one"
}
