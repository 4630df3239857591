package host

import (
	"context"
	"fmt"

	"github.com/custody-project/custody/store"
)

// Run returns the mark of a run's summary: whether it follows from the signed records. It reads them all, but at most
// 64 MiB of all runs together; the rest is Unchecked, unless its signature decides already.
func (m *Marks) Run(ctx context.Context, run store.Run) store.Mark {
	c, err := m.chain(ctx, run.Tenant, run.ID)
	if err != nil {
		return m.cannot(err)
	}
	switch {
	case c.here && m.host.RunLogs().Live(run.ID):
		return store.Mark{State: store.Live, Text: "it goes on"}
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
	return store.Mark{State: store.Unchecked, Text: "this is too much to check here: custody verify " + run}
}

// summary compares a run's summary with its records.
func (m *Marks) summary(ctx context.Context, c *chain, run store.Run) (store.Mark, error) {
	all, then := store.NewRun(run.ID), store.NewRun(run.ID) // then: up to where the store has it
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
		then = all // no segment ends where the store's records do
	}
	if what := run.Differs(then); what != "" {
		return fails("its %s is not what its records say", what), nil
	}
	switch {
	case !m.logs && !hosts[run.Host]:
		return fails("its host is not the one that signed it"), nil
	case all.LastSeq == then.LastSeq:
		return store.Mark{State: store.Holds}, nil
	case m.host.RunLogs().HasWhole(run.ID):
		return fails("the store has its records up to %d only, of %d", run.LastSeq, all.LastSeq), nil
	}
	return store.Mark{State: store.Unchecked, Text: fmt.Sprintf("the store has its records up to %d of %d yet", run.LastSeq, all.LastSeq)}, nil
}

// End returns the last seq that is signed for in a run, 0 if that is not known here.
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
