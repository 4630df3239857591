package command

import (
	"context"
	"fmt"
	"io"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/store"
)

// Bundle writes all that an auditor needs to verify a run into one file.
type Bundle struct {
	Name    string   // the run, a prefix of its ID, or last
	Out     string   // the file to write; through the service the client writes it
	Since   []byte   // an earlier checkpoint; nil: none
	Records []string `json:",omitempty"`
	Context bool     `json:",omitempty"`
}

// Path implements Command.
func (Bundle) Path() string { return "bundle" }

func (c Bundle) access() access {
	c.Since = nil
	return access{action: "export", about: c.Name, query: c}
}

// Check returns an error in the flags.
func (c Bundle) Check() error {
	_, err := c.options()
	return err
}

func (c Bundle) options() (o host.BundleOptions, err error) {
	o.Since = c.Since
	if len(c.Records) > 0 {
		if o.Select, err = proof.ParseSelection(c.Records); err != nil {
			return o, Usage(fmt.Errorf("--records %w", err))
		}
		o.Select.Context = c.Context
	}
	return o, nil
}

// Execute implements Command.
func (c Bundle) Execute(ctx context.Context, e *Env) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	h, st, err := e.Reader(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	run, err := st.Run(ctx, "", c.Name)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	if err := e.Replace(c.Out, func(w io.Writer) error { return h.Proofs().Bundle(ctx, w, "", run.ID, o) }); err != nil {
		return err
	}
	e.Say("wrote " + c.Out)
	if root, err := h.Fleet().Root(); err == nil && !h.RunLogs().HasOf(store.TenantFilter(run.Tenant), run.ID) {
		e.Say("the run is another host's; send the verifier the fleet's root key separately: " + root)
		return nil
	}
	key, retired, err := h.Keys().Of(run.ID)
	switch {
	case err != nil:
	case retired:
		e.Say("send the verifier the public key that signed this run separately, which this host has retired since: " + key)
	default:
		e.Say("send the verifier this host's public key separately: " + key)
	}
	return err
}
