package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/secrets"
)

// Secrets mints the credentials that steps bind; see secrets.Issuer.
type Secrets interface {
	Begin(ctx context.Context, step string, names []string, limit time.Duration) (*secrets.Lease, error)
	RevokeAll(ctx context.Context, reason string) error
	Values(text []byte) []string
	Printed(step string) *secrets.Printed
}

const (
	// proofEvery is how often a step has to prove that it lives. Two proofs can fail before its credentials end.
	proofEvery = secrets.TTL / 3
	// proofTime is how long a proof may take: a busy guest is slow.
	proofTime = secrets.TTL / 6
	// wipeTime is how long the guest may take to remove a step's secrets. A frozen one cannot.
	wipeTime = 5 * time.Second
)

// bind mints what a step names; nil for a step without secrets.
func (s *Sandbox) bind(ctx context.Context, st Step) (*secrets.Lease, error) {
	if len(st.Secrets) == 0 {
		return nil, nil
	}
	if s.parts.Secrets == nil {
		return nil, fmt.Errorf("step %s names secrets, and there is no issuer", st.Name)
	}
	limit := secrets.MaxLimit
	if until, ok := ctx.Deadline(); ok {
		limit = time.Until(until)
	}
	lease, err := s.parts.Secrets.Begin(ctx, st.Name, st.Secrets, limit)
	if err != nil {
		return nil, fmt.Errorf("step %s does not start: %w", st.Name, err)
	}
	return lease, nil
}

// delivery is what goes into the step; that it does is in the record first.
func (s *Sandbox) delivery(ctx context.Context, step string, lease *secrets.Lease) ([]channel.Secret, error) {
	if lease == nil {
		return nil, nil
	}
	items, err := lease.Deliver(ctx)
	s.delivered.set(step, items)
	var list []channel.Secret
	for _, i := range items {
		list = append(list, channel.Secret{Env: i.Env, File: i.File, Value: i.Value})
	}
	return list, err
}

// delivered lists which secrets the latest step to get any has in which file. The zero value is of no step.
type delivered struct {
	mu    sync.Mutex // guards what follows
	step  string
	files map[string][]string // names by path
}

// set replaces what is known with the items of a step.
func (d *delivered) set(step string, items []secrets.Item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.step, d.files = step, map[string][]string{}
	for _, i := range items {
		if i.File != "" {
			d.files[channel.SecretsDir+"/"+i.File] = []string{i.Name}
		}
		if i.Env != "" {
			d.files[channel.SecretsEnvFile] = append(d.files[channel.SecretsEnvFile], i.Name)
		}
	}
}

// names returns the secrets in the file with this path in a step; none if it holds none.
func (d *delivered) names(step, path string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if step == "" || step != d.step {
		return nil
	}
	return d.files[path]
}

// keep has the guest prove again and again that the step lives, and renews its
// credentials for that. When they run out it calls end; when they were
// revoked before the step's end the guest removes them and the step goes on.
func (s *Sandbox) keep(ctx context.Context, proc *channel.Process, lease *secrets.Lease, done <-chan struct{}, end context.CancelCauseFunc) {
	again := time.NewTicker(proofEvery)
	defer again.Stop()
	for {
		select {
		case <-done:
			return
		case <-lease.Over():
			s.wipe(ctx, proc)
			if err := lease.Err(); secrets.Expired(err) {
				end(fmt.Errorf("the step's credentials ran out: %w", err))
			}
			return
		case <-again.C:
			if err := prove(ctx, proc); err != nil {
				lease.Refused(ctx, "no proof that the step lives: "+err.Error())
				continue
			}
			if err := lease.Renew(ctx); err != nil {
				s.parts.Notice("renew credentials: " + err.Error())
			}
		}
	}
}

func prove(ctx context.Context, proc *channel.Process) error {
	ctx, cancel := context.WithTimeout(ctx, proofTime)
	defer cancel()
	return proc.Prove(ctx)
}

// wipe removes a step's secrets from its tmpfs, once.
func (s *Sandbox) wipe(ctx context.Context, proc *channel.Process) {
	s.wiping.Lock()
	defer s.wiping.Unlock()
	if s.wiped == proc {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, wipeTime)
	defer cancel()
	if err := proc.Wipe(ctx); err != nil {
		s.parts.Notice("the step's secrets could not be removed from the sandbox: " + err.Error())
		return
	}
	s.wiped = proc
}

// ErrEnded is wrapped by what Abort ends a run with.
var ErrEnded = errors.New("ended by the project's policy")

// Abort ends the run: its step is asked to end, then killed.
func (s *Sandbox) Abort(reason string) { s.abort(fmt.Errorf("%w: %s", ErrEnded, reason)) }

// The reasons for which someone, and not the record, has the VM frozen.
const (
	pauseHold   = "paused"
	anomalyHold = "a credential turned up where it does not belong"
)

// Pause freezes the VM until Resume. The step's credentials are revoked first, and
// removed from its tmpfs: no one knows how long it will take. They do not come back.
func (s *Sandbox) Pause(ctx context.Context) error {
	s.turn.Lock() // no step begins meanwhile
	defer s.turn.Unlock()
	if err := s.disarm(ctx, "the sandbox was paused"); err != nil {
		return err
	}
	s.drain(ctx)
	return s.holds.pause(ctx, pauseHold)
}

// Quarantine freezes the VM until Resume, because of an anomaly whose credentials
// have been revoked.
func (s *Sandbox) Quarantine(ctx context.Context) error {
	if proc := s.current(); proc != nil && !s.holds.frozen() {
		s.wipe(ctx, proc)
	}
	return s.holds.pause(ctx, anomalyHold)
}

// Resume lets a paused or quarantined VM go on, unless something else holds it.
func (s *Sandbox) Resume(ctx context.Context) error {
	if !s.holds.has(pauseHold) && !s.holds.has(anomalyHold) {
		return errors.New("the sandbox is not paused")
	}
	return errors.Join(s.holds.release(ctx, pauseHold), s.holds.release(ctx, anomalyHold))
}

// disarm revokes all credentials and removes what the guest has of them.
func (s *Sandbox) disarm(ctx context.Context, reason string) error {
	if s.parts.Secrets == nil {
		return nil
	}
	if err := s.parts.Secrets.RevokeAll(ctx, reason); err != nil {
		return fmt.Errorf("revoke the step's credentials first: %w", err)
	}
	if proc := s.current(); proc != nil && !s.holds.frozen() {
		s.wipe(ctx, proc)
	}
	return nil
}

func (s *Sandbox) current() *channel.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

func (s *Sandbox) setCurrent(p *channel.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc = p
}
