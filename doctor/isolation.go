package doctor

import (
	"context"
	"errors"
	"os"

	"github.com/custody-project/custody/doctor/remedy"
	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/tier"
)

// vault checks the login to Vault if the environment names a server.
func (c Checks) vault(ctx context.Context) []Finding {
	if os.Getenv("VAULT_ADDR") == "" {
		return nil
	}
	f := Finding{Name: "vault", Grade: OK, Detail: os.Getenv("VAULT_ADDR")}
	v, err := run.OpenVault(ctx, c.Host, "", nil)
	if err == nil {
		err = v.Close(ctx)
	}
	if err != nil {
		f.Grade, f.Detail, f.Hint = Missing, err.Error(), "docs/vault.md has the login and the smallest policy for it"
	}
	return []Finding{f}
}

// isolation reports the isolation tier of runs. It boots a guest if there is no cached result.
func (c Checks) isolation(ctx context.Context) []Finding {
	t, err := c.Templates.Open(ctx, "base")
	if err != nil {
		return []Finding{{Name: "template", Grade: Missing, Detail: err.Error(), Hint: remedy.Of(err)}}
	}
	found := []Finding{{Name: "template", Grade: OK, Detail: "base, kernel " + t.Release}}
	isolation := Finding{Name: "isolation", Grade: OK}
	required, err := run.RequiredTier("", project.Default(), c.Host)
	var choice tier.Choice
	if err = errors.Join(run.RequireRoot(), err); err == nil {
		picker := hostd.TierPicker(c.Host, t, c.Notice)
		picker.Again = true
		choice, err = picker.Pick(ctx, required)
	}
	for _, f := range choice.Findings {
		if !f.Works {
			found = append(found, Finding{Name: f.Tier, Grade: Warn, Detail: f.Reason})
		}
	}
	if err != nil {
		isolation.Grade, isolation.Detail, isolation.Hint = Missing, err.Error(), remedy.Of(err)
		return append(found, isolation)
	}
	isolation.Detail = choice.Driver.Tier() + ": " + choice.Note
	if choice.Driver.Tier() == vmm.QEMUTCG {
		isolation.Grade = Warn
	}
	return append(found, isolation)
}
