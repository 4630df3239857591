package command

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
)

// Runs lists the runs of a host, newest first.
type Runs struct {
	JSON    bool   `json:",omitempty"`
	Limit   int    `json:",omitempty"`
	Status  string `json:",omitempty"`
	From    string `json:",omitempty"`
	Until   string `json:",omitempty"`
	Project string `json:",omitempty"`
	Tenant  string `json:",omitempty"`
	Access  bool   `json:",omitempty"` // the access logs instead
	Deleted bool   `json:",omitempty"` // the runs that retention deleted instead
	ZoneFlag
}

// Path implements Command.
func (Runs) Path() string { return "runs" }

func (c Runs) access() access { return access{action: "view", query: c} }

// Execute implements Command.
func (c Runs) Execute(ctx context.Context, e *Env) error {
	filter, zone, err := c.filter()
	if err != nil {
		return err
	}
	h, st, err := e.Reader(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	if c.Deleted {
		return c.deleted(ctx, e, h)
	}
	opt, err := e.Marking(ctx, h, st)
	if err != nil {
		return err
	}
	opt.Zone = zone
	runs, err := st.Runs(ctx, filter)
	if err != nil {
		return err
	}
	if c.JSON {
		return replay.RunsJSON(e.Stdout, runs, opt)
	}
	if len(runs) == 0 && filter == (store.Filter{Class: filter.Class, Limit: filter.Limit}) {
		e.Say("there are no runs yet: custody run -- CMD makes the first")
		return nil
	}
	if len(runs) == 0 {
		e.Say("no run matches")
		return nil
	}
	return replay.Runs(e.Stdout, runs, time.Now(), opt)
}

// filter returns the filter that the flags select.
func (c Runs) filter() (f store.Filter, zone *time.Location, err error) {
	f = store.Filter{Class: store.Sandboxes, Limit: c.Limit, Status: store.Status(c.Status), Project: c.Project, Tenant: c.Tenant}
	if c.Access {
		f.Class = store.Accesses
	}
	if zone, err = c.Location(); err != nil {
		return f, nil, err
	}
	f.From, f.To, err = c.Span(c.From, c.Until)
	return f, zone, err
}

// deleted lists the deleted runs, from this host's signed statements.
func (c Runs) deleted(ctx context.Context, e *Env, h *host.Host) error {
	all, err := h.Deletions().All(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return console.WriteJSONLines(e.Stdout, all)
	}
	if len(all) == 0 {
		e.Say("retention has deleted no run on this host")
		return nil
	}
	w := tabwriter.NewWriter(e.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tBEGAN\tENDED\tRECORDS\tDELETED\tRULE")
	for _, d := range all {
		const at = "2006-01-02 15:04:05"
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", d.Run, d.Began.Format(at), d.Ended.Format(at), d.Records, d.Time.Format(at), d.Rule)
	}
	return w.Flush()
}
