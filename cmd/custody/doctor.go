package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/custody-project/custody/doctor"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/tier"
)

type doctorCmd struct {
	JSON bool `name:"json" help:"One JSON object a finding."`
}

func (c doctorCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	found := slices.Concat(doctor.Host(a.ctx, h.Dir), a.isolation(h), a.vault(h), a.record(h))
	if c.JSON {
		enc := json.NewEncoder(a.stdout)
		for _, f := range found {
			if err := enc.Encode(f); err != nil {
				return err
			}
		}
	} else if err := a.printFindings(found); err != nil {
		return err
	}
	if slices.ContainsFunc(found, func(f doctor.Finding) bool { return f.Grade == doctor.Missing }) {
		return exitCode(1)
	}
	return nil
}

func (a *app) printFindings(found []doctor.Finding) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, f := range found {
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Grade, f.Name, console.Clean(f.Detail))
		if f.Hint != "" {
			fmt.Fprintf(w, "\t\t-> %s\n", f.Hint)
		}
	}
	return w.Flush()
}

// vault reports whether Vault can be logged in to, where the environment names one.
func (a *app) vault(h *host.Host) []doctor.Finding {
	if os.Getenv("VAULT_ADDR") == "" {
		return nil
	}
	f := doctor.Finding{Name: "vault", Grade: doctor.OK, Detail: os.Getenv("VAULT_ADDR")}
	v, err := run.OpenVault(a.ctx, h)
	if err == nil {
		err = v.Close(a.ctx)
	}
	if err != nil {
		f.Grade, f.Detail, f.Hint = doctor.Missing, err.Error(), "docs/vault.md has the login and the smallest policy for it"
	}
	return []doctor.Finding{f}
}

// isolation reports the tier that a run gets, by booting a guest where that was not tried before.
func (a *app) isolation(h *host.Host) []doctor.Finding {
	store, err := a.templates(h)
	if err != nil {
		return []doctor.Finding{{Name: "template", Grade: doctor.Missing, Detail: err.Error()}}
	}
	t, err := store.Open(a.ctx, "base")
	if err != nil {
		return []doctor.Finding{{Name: "template", Grade: doctor.Missing, Detail: err.Error(), Hint: hint(err)}}
	}
	found := []doctor.Finding{{Name: "template", Grade: doctor.OK, Detail: "base, kernel " + t.Release}}
	isolation := doctor.Finding{Name: "isolation", Grade: doctor.OK}
	required, err := run.RequiredTier("", project.Default(), h)
	var choice tier.Choice
	if err = errors.Join(run.RequireRoot(), err); err == nil {
		picker := run.TierPicker(h, t, a.Say)
		picker.Again = true
		choice, err = picker.Pick(a.ctx, required)
	}
	for _, f := range choice.Findings {
		if !f.Works {
			found = append(found, doctor.Finding{Name: f.Tier, Grade: doctor.Warn, Detail: f.Reason})
		}
	}
	if err != nil {
		isolation.Grade, isolation.Detail, isolation.Hint = doctor.Missing, err.Error(), hint(err)
		return append(found, isolation)
	}
	isolation.Detail = choice.Driver.Tier() + ": " + choice.Note
	if choice.Driver.Tier() == vmm.QEMUTCG {
		isolation.Grade = doctor.Warn
	}
	return append(found, isolation)
}
