package hostd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/project/registry"
	"github.com/custody-project/custody/worker"
)

// Bounded makes sandboxes for processes that root does not trust: what a sandbox may do lies within a registered project, or, for a run
// that is of none, within the defaults, which allow no egress.
type Bounded struct {
	Home      *host.Host // has the registered projects and the settings
	Sandboxes Opener
}

// Open is like Host's, and refuses what exceeds the project.
func (b *Bounded) Open(ctx context.Context, s Spec, e Events) (worker.Sandbox, Details, error) {
	base, err := b.base(s)
	if err != nil {
		return nil, Details{}, err
	}
	policy, err := base.Policy()
	if err != nil {
		return nil, Details{}, err
	}
	sandbox, details, err := b.Sandboxes.Open(ctx, s, e)
	if err != nil {
		return nil, details, err
	}
	serves := func(tenant string) bool {
		return b.Home.Config().Serves(tenant) && (s.Project == "" || b.Home.Config().Offers(tenant, s.Project))
	}
	return &bounded{sandbox, base, policy, serves, statement.Facts{TemplateDigest: details.TemplateDigest, Tier: details.Tier}}, details, nil
}

// base returns the file of the project of s, or the defaults, and an error if s exceeds them.
func (b *Bounded) base(s Spec) (project.File, error) {
	base := project.Default()
	if s.Project != "" {
		r, err := registry.Registry{Dir: b.Home.Projects()}.Current(s.Project)
		if err != nil {
			return base, err
		}
		base = r.File
	}
	if beyond := s.beyond(base, b.Home.Config()); len(beyond) > 0 {
		return base, fmt.Errorf("the sandbox exceeds the project %s: %s", base.Project, strings.Join(beyond, "; "))
	}
	return base, nil
}

// Reopen implements Opener.
func (b *Bounded) Reopen(ctx context.Context, run string) (worker.Sandbox, error) {
	return b.Sandboxes.Reopen(ctx, run)
}

// beyond returns what s asks for beyond base.
func (s Spec) beyond(base project.File, c host.Config) (list []string) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	l, required := base.Limits, c.Isolation.Require
	rate := func(asked, limit int64) bool { return limit == 0 || asked > 0 && asked <= limit }
	check(s.Template == base.Template, "template %q in place of %q", s.Template, base.Template)
	check(required == "" && base.AllowsTier(s.Tier) || required != "" && s.Tier == required, "isolation %q", s.Tier)
	check(s.CPUs > 0 && s.CPUs <= l.CPUs, "%d CPUs; at most %d", s.CPUs, l.CPUs)
	check(s.Memory > 0 && s.Memory <= l.Memory, "%d bytes of memory; at most %d", s.Memory, l.Memory)
	check(s.Disk > 0 && s.Disk <= l.Disk, "a disk of %d bytes; at most %d", s.Disk, l.Disk)
	check(rate(s.DiskRate, l.DiskRate), "disk rate %d; at most %d", s.DiskRate, l.DiskRate)
	check(rate(s.NetworkRate, l.NetworkRate), "network rate %d; at most %d", s.NetworkRate, l.NetworkRate)
	check(s.HashOver >= 0 && s.HashOver <= base.Record.Files.HashOver, "files are hashed above %d bytes; the project says %d", s.HashOver, base.Record.Files.HashOver)
	return list
}

// bounded is a sandbox whose policy lies within another one.
type bounded struct {
	worker.Sandbox
	base   project.File
	bound  *netpolicy.Policy        // of base
	serves func(tenant string) bool // whether the sandbox can be a tenant's
	facts  statement.Facts          // those that this process knows
}

// Begin implements worker.Sandbox.
func (b *bounded) Begin(ctx context.Context, r worker.Identity, files []*os.File) error {
	policy, err := b.check(r.Rules)
	if err != nil {
		return err
	}
	if !b.serves(r.Facts.Tenant) {
		return fmt.Errorf("the sandbox cannot be of the tenant %.80q: name it, with its registered projects, under quotas.tenants in %s", r.Facts.Tenant, host.ConfigFile)
	}
	if err := checkResolvers(r.Resolvers, b.base); err != nil {
		return err
	}
	if limit := b.base.Limits.Silence; cmp.Or(r.Silence, worker.DefaultSilence) > limit {
		return fmt.Errorf("limits.silence is %v; the project allows at most %v", r.Silence, limit)
	}
	known := b.facts
	known.Tenant = r.Facts.Tenant
	known.PolicyDigest, known.RulesetDigest = policy.Digest(), r.Facts.RulesetDigest
	if r.Facts != known {
		return errors.New("the facts of the run's manifests are not those of its sandbox")
	}
	return b.Sandbox.Begin(ctx, r, files)
}

// SetPolicy implements worker.Sandbox.
func (b *bounded) SetPolicy(ctx context.Context, rules []string) error {
	if _, err := b.check(rules); err != nil {
		return err
	}
	return b.Sandbox.SetPolicy(ctx, rules)
}

// check returns the policy of the rules, and an error if it allows more than the bound.
func (b *bounded) check(rules []string) (*netpolicy.Policy, error) {
	policy, err := worker.PolicyOf(rules)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, e := range policy.Narrows(b.bound) {
		errs = append(errs, e)
	}
	return policy, errors.Join(errs...)
}
