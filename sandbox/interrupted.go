package sandbox

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/custody-project/custody/audit"
)

// Interrupted records the end of a run whose custody process died: an exit for each
// process without one, an expire for each credential that was not revoked, an end for each step
// without one, and the end of the run. It returns false if the run's end has been recorded already: custody
// can die between that and the seal. reason is why, empty if it is not known; records are the run's records, in order.
func Interrupted(ctx context.Context, r Recorder, reason string, records iter.Seq2[audit.Record, error]) (bool, error) {
	var left procs
	var alive leases
	var open []string // steps
	for rec, err := range records {
		if err != nil {
			return false, err
		}
		left.note(&rec.Event)
		alive.note(&rec.Event)
		switch l := rec.Lifecycle; {
		case l == nil:
		case rec.Kind == audit.KindRun && l.Phase == audit.PhaseEnd:
			return false, nil
		case rec.Kind == audit.KindStep && l.Phase == audit.PhaseStart:
			open = append(open, rec.Step)
		case rec.Kind == audit.KindStep && l.Phase == audit.PhaseEnd && len(open) > 0:
			open = open[:len(open)-1]
		}
	}
	events := append(left.unfinished(), alive.expired()...)
	reason = cmp.Or(reason, "custody died; closed at its next start")
	for _, step := range open {
		l := &audit.Lifecycle{Phase: audit.PhaseEnd, Name: step, Status: audit.StatusInterrupted, Reason: reason}
		events = append(events, audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindStep, Step: step, Lifecycle: l})
	}
	end := audit.Lifecycle{Phase: audit.PhaseEnd, Status: audit.StatusInterrupted, Reason: reason}
	for _, ev := range append(events, runEvent(&end)) {
		if _, err := r.Post(ctx, ev); err != nil {
			return true, err
		}
	}
	return true, nil
}

// leases are the mint events of credentials that were not revoked, with the latest time of expiry.
type leases []audit.Event

func (l *leases) note(ev *audit.Event) {
	s := ev.Secret
	if ev.Kind != audit.KindSecret || s == nil {
		return
	}
	same := func(o audit.Event) bool {
		return o.Secret.Accessor == s.Accessor && o.Step == ev.Step && (s.Name == "" || o.Secret.Name == s.Name)
	}
	switch s.Op {
	case audit.SecretMint:
		*l = append(*l, *ev)
	case audit.SecretRenew:
		for i, o := range *l {
			if same(o) {
				renewed := *o.Secret
				renewed.Expires = s.Expires
				(*l)[i].Secret = &renewed
			}
		}
	case audit.SecretRevoke, audit.SecretExpire:
		*l = slices.DeleteFunc(*l, same)
	}
}

// expired returns an expire event for each credential, with the time at which it becomes invalid.
func (l leases) expired() []audit.Event {
	var all []audit.Event
	for _, ev := range l {
		m := ev.Secret
		all = append(all, audit.Event{
			Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindSecret, Step: ev.Step,
			Secret: &audit.Secret{Name: m.Name, Op: audit.SecretExpire, Broker: m.Broker, Accessor: m.Accessor, Expires: m.Expires,
				Reason: "custody died: it runs out by itself, unless the next start has revoked it before"},
		})
	}
	return all
}
