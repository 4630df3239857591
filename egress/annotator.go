package egress

import (
	"context"
	"sync/atomic"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/gateway"
)

// annotator adds to each event of the fence, the resolver and the gateway what only the sandbox has: the current step
// and the process of a flow.
type annotator struct {
	recorder Recorder
	attempts *attempts
	step     atomic.Pointer[string]
	// credentials finds placeholders in DNS queries. It finds values too, and masks them in the record. Nil: there are
	// none.
	credentials gateway.Credentials
}

func (a *annotator) complete(ev *audit.Event) {
	if s := a.step.Load(); s != nil {
		ev.Step = *s
	}
	if ev.Flow == nil {
		return
	}
	if step := a.attempts.fill(ev.Flow); ev.Step == "" { // several steps run
		ev.Step = step
	}
}

// Record returns when the event is durable.
func (a *annotator) Record(ctx context.Context, ev audit.Event) (uint64, error) {
	return a.annotate(ctx, ev, a.recorder.Record)
}

// Post returns when the event has a sequence number.
func (a *annotator) Post(ctx context.Context, ev audit.Event) (uint64, error) {
	return a.annotate(ctx, ev, a.recorder.Post)
}

func (a *annotator) annotate(ctx context.Context, ev audit.Event, record func(context.Context, audit.Event) (uint64, error)) (uint64, error) {
	a.complete(&ev)
	if ev.DNS == nil || a.credentials == nil {
		return record(ctx, ev)
	}
	asked := string(ev.DNS.Name) // the recorded name is masked
	seq, err := record(ctx, ev)
	found, _ := a.find(asked) // names that cannot be searched have been denied
	for _, secret := range found {
		a.credentials.Presented(ctx, secret, "the resolver", "a question", seq)
	}
	return seq, err
}

// holdsSecret reports whether a name contains a secret or a placeholder, or cannot be searched for them.
func (a *annotator) holdsSecret(name string) bool {
	found, ok := a.find(name)
	return !ok || len(found) > 0
}

// find returns the secrets in a name. ok is false if the name could not be searched.
func (a *annotator) find(name string) (found []string, ok bool) {
	if a.credentials == nil {
		return nil, true
	}
	defer func() {
		if recover() != nil {
			found, ok = nil, false
		}
	}()
	return a.credentials.Find([]byte(name)), true
}

// Sync returns when the event with that seq is durable.
func (a *annotator) Sync(ctx context.Context, seq uint64) error { return a.recorder.Sync(ctx, seq) }
