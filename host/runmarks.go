package host

import (
	"context"
	"fmt"

	"github.com/custody-project/custody/store"
)

// Run returns the mark of a run's summary: whether it follows from the signed records. It reads all of them, up to
// 64 MiB for all runs together. Beyond that the mark is Unchecked, unless the signature suffices to decide.
func (m *Marks) Run(ctx context.Context, run store.Run) store.Mark {
	c, err := m.chain(ctx, run.Tenant, run.ID)
	if err != nil {
		return m.cannot(err)
	}
	switch {
	case c.here && m.host.RunLogs().Live(run.ID):
		return store.Mark{State: store.Live, Text: "it is live"}
	case len(c.firsts) == 0:
		return store.Mark{State: store.Unsigned, Text: store.ErrUnsigned.Error()}
	}
	first, err := m.manifest(c, 0)
	switch {
	case err != nil:
		return m.cannot(err)
	case first.mark.State != store.Holds:
		return first.mark
	case m.budget <= 0:
		return tooMuch(run.ID)
	}
	mark, err := m.summary(ctx, c, run)
	if err != nil {
		return m.cannot(err)
	}
	return mark
}

func tooMuch(run string) store.Mark {
	return store.Mark{State: store.Unchecked, Text: "the record is too large to check here; use custody verify " + run}
}

// summary compares a run's summary with its records.
func (m *Marks) summary(ctx context.Context, c *chain, run store.Run) (store.Mark, error) {
	all, then := store.NewRun(run.ID), store.NewRun(run.ID) // then: up to the last record that the store has
	hosts := map[string]bool{}
	for i := range c.firsts {
		if m.budget <= 0 {
			return tooMuch(run.ID), nil
		}
		p, err := m.manifest(c, i)
		if err == nil && p.mark.State == store.Holds && p.manifest.Count > 0 {
			m.budget -= p.manifest.Bytes
			err = m.sum(ctx, c, p, run.Tenant, func(f store.Frame) error {
				head, err := store.Head{Run: run.ID, Seq: f.Seq, Time: all.FirstTime}, error(nil)
				if f.Erased == nil {
					head, err = store.HeadOf(run.ID, f)
				}
				all.Add(head)
				return err
			})
		}
		switch {
		case err != nil:
			return store.Mark{}, err
		case p.mark.State != store.Holds:
			return p.mark, nil
		case p.manifest.Tenant != run.Tenant:
			return fails("it was signed as another tenant's"), nil
		}
		hosts[p.host] = true
		if all.LastSeq == run.LastSeq {
			then = all
		}
	}
	if then.Events == 0 {
		then = all // no segment ends with the store's last record
	}
	if what := run.Differs(then); what != "" {
		return fails("its %s differs from its records", what), nil
	}
	switch {
	case !m.logs && !hosts[run.Host]:
		return fails("another host signed it"), nil
	case all.LastSeq == then.LastSeq:
		return store.Mark{State: store.Holds}, nil
	case m.host.RunLogs().HasWhole(run.ID):
		return fails("the store has only records up to %d of %d", run.LastSeq, all.LastSeq), nil
	}
	return store.Mark{State: store.Unchecked, Text: fmt.Sprintf("so far the store has records up to %d of %d", run.LastSeq, all.LastSeq)}, nil
}

// End returns the last signed seq of a run, 0 if it is not known here.
func (m *Marks) End(ctx context.Context, run store.Run) uint64 {
	c, err := m.chain(ctx, run.Tenant, run.ID)
	if err != nil || len(c.firsts) == 0 || m.host.RunLogs().Live(run.ID) || c.here && !m.host.RunLogs().HasWhole(run.ID) {
		return 0
	}
	p, err := m.manifest(c, len(c.firsts)-1)
	if err != nil || p.mark.State != store.Holds {
		return 0
	}
	if p.manifest.Count == 0 {
		return p.manifest.First - 1
	}
	return p.manifest.Last
}
