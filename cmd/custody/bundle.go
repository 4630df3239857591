package main

import (
	"fmt"
	"io"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/store"
)

type bundleCmd struct {
	Name    string   `arg:"" name:"run" predictor:"run" help:"The run, a prefix of its id, or last."`
	Out     string   `short:"o" required:"" type:"path" placeholder:"FILE" help:"The file to write."`
	Since   string   `type:"existingfile" placeholder:"FILE" help:"An earlier checkpoint: include a proof that the host's log is an extension of it."`
	Records []string `placeholder:"SEQ,.." help:"Disclose only these records, such as 40-60,71; the bundle marks the others as withheld and still verifies."`
	Context bool     `help:"With --records: show steps, policies, operations on the VM and findings, too."`
}

func (c bundleCmd) Run(a *app) error {
	o := host.BundleOptions{}
	var err error
	if len(c.Records) > 0 {
		if o.Select, err = proof.ParseSelection(c.Records); err != nil {
			return usageError{fmt.Errorf("--records %w", err)}
		}
		o.Select.Context = c.Context
	}
	if c.Since != "" {
		if o.Since, err = regular.Given(a.ctx, c.Since, statement.MaxGiven); err != nil {
			return err
		}
	}
	h, st, err := a.openReader()
	if err != nil {
		return err
	}
	defer st.Close()
	run, err := st.Run(a.ctx, "", c.Name)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	if err := regular.Replace(c.Out, func(w io.Writer) error { return h.Proofs().Bundle(a.ctx, w, "", run.ID, o) }); err != nil {
		return err
	}
	a.Say("wrote " + c.Out)
	if root, err := h.Fleet().Root(); err == nil && !h.RunLogs().HasOf(store.TenantFilter(run.Tenant), run.ID) {
		a.Say("the run is another host's; send the verifier the fleet's root key separately: " + root)
		return nil
	}
	key, retired, err := h.Keys().Of(run.ID)
	switch {
	case err != nil:
	case retired:
		a.Say("send the verifier the public key that signed this run separately, which this host has retired since: " + key)
	default:
		a.Say("send the verifier this host's public key separately: " + key)
	}
	return err
}
