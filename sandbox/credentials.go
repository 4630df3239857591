package sandbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/secrets"
)

// Secrets mints the credentials of steps; see secrets.Issuer.
type Secrets interface {
	Begin(ctx context.Context, step string, names []string, limit time.Duration) (*secrets.Lease, error)
	RevokeAll(ctx context.Context, reason string) error
	Values(text []byte) []string
	Printed(step string) *secrets.Printed
}

const (
	// proofEvery is the interval at which the guest must prove that the step still runs. Credentials outlast two failed proofs.
	proofEvery = secrets.TTL / 3
	// proofTime bounds a proof. A busy guest needs time.
	proofTime = secrets.TTL / 6
	// wipeTime bounds the removal of a step's secrets by the guest. A frozen guest cannot remove them.
	wipeTime = 5 * time.Second
)

// credentials mints and delivers the credentials of steps, renews them while the guest proves that the step runs,
// and removes them from the guest.
type credentials struct {
	issuer  Secrets // nil: steps cannot have secrets
	notice  func(string)
	holds   *holds
	running *running

	delivered delivered

	wiping sync.Mutex                // guards wiped; held during a wipe
	wiped  map[*channel.Process]bool // processes that run and whose secrets have been removed
}

// bind mints the step's secrets. It returns nil for a step without secrets.
func (c *credentials) bind(ctx context.Context, st Step) (*secrets.Lease, error) {
	if len(st.Secrets) == 0 {
		return nil, nil
	}
	if c.issuer == nil {
		return nil, fmt.Errorf("step %s has secrets, but there is no issuer", st.Name)
	}
	limit := secrets.MaxLimit
	if until, ok := ctx.Deadline(); ok {
		limit = time.Until(until)
	}
	lease, err := c.issuer.Begin(ctx, st.Name, st.Secrets, limit)
	if err != nil {
		return nil, fmt.Errorf("step %s does not start: %w", st.Name, err)
	}
	return lease, nil
}

// deliver returns the secrets to pass to the guest, after their delivery has been recorded.
func (c *credentials) deliver(ctx context.Context, step string, lease *secrets.Lease) ([]channel.Secret, error) {
	if lease == nil {
		return nil, nil
	}
	items, err := lease.Deliver(ctx)
	c.delivered.set(step, items)
	var list []channel.Secret
	for _, i := range items {
		list = append(list, channel.Secret{Env: i.Env, File: i.File, Value: i.Value})
	}
	return list, err
}

// delivered lists which secrets each file of the running steps contains. The zero value is empty.
type delivered struct {
	mu    sync.Mutex                     // guards steps
	steps map[string]map[string][]string // names by step and path
}

// set sets the list of a step.
func (d *delivered) set(step string, items []secrets.Item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.steps == nil {
		d.steps = map[string]map[string][]string{}
	}
	files := map[string][]string{}
	d.steps[step] = files
	for _, i := range items {
		if i.File != "" {
			files[channel.SecretsDir+"/"+i.File] = []string{i.Name}
		}
		if i.Env != "" {
			files[channel.SecretsEnvFile] = append(files[channel.SecretsEnvFile], i.Name)
		}
	}
}

// forget removes the list of a step.
func (d *delivered) forget(step string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.steps, step)
}

// names returns the names of the secrets that the file at this path contains for a step.
func (d *delivered) names(step, path string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.steps[step][path]
}

// keep renews the step's credentials until the step ends. Before each renewal the guest must prove that the step
// still runs. If the credentials expire, keep calls end. If they are revoked during the step,
// the guest removes them and the step continues.
func (c *credentials) keep(ctx context.Context, proc *channel.Process, lease *secrets.Lease, done <-chan struct{}, end context.CancelCauseFunc) {
	tick := time.NewTicker(proofEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-lease.Over():
			c.wipe(ctx, proc)
			if err := lease.Err(); secrets.Expired(err) {
				end(fmt.Errorf("the step's credentials expired: %w", err))
			}
			return
		case <-tick.C:
			if err := prove(ctx, proc); err != nil {
				lease.Refused(ctx, "no proof that the step lives: "+err.Error())
				continue
			}
			if err := lease.Renew(ctx); err != nil {
				c.notice("renew credentials: " + err.Error())
			}
		}
	}
}

func prove(ctx context.Context, proc *channel.Process) error {
	ctx, cancel := context.WithTimeout(ctx, proofTime)
	defer cancel()
	return proc.Prove(ctx)
}

// wipe removes a step's secrets from its tmpfs, unless they have been removed.
func (c *credentials) wipe(ctx context.Context, proc *channel.Process) {
	c.wiping.Lock()
	defer c.wiping.Unlock()
	if c.wiped[proc] {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, wipeTime)
	defer cancel()
	if err := proc.Wipe(ctx); err != nil {
		c.notice("the step's secrets could not be removed from the sandbox: " + err.Error())
		return
	}
	if c.wiped == nil {
		c.wiped = map[*channel.Process]bool{}
	}
	c.wiped[proc] = true
}

// ended is called when a step's process has ended.
func (c *credentials) ended(step string, proc *channel.Process) {
	c.delivered.forget(step)
	c.wiping.Lock()
	defer c.wiping.Unlock()
	delete(c.wiped, proc)
}

// disarm revokes all credentials and removes them from the guest.
func (c *credentials) disarm(ctx context.Context, reason string) error {
	if c.issuer == nil {
		return nil
	}
	if err := c.issuer.RevokeAll(ctx, reason); err != nil {
		return fmt.Errorf("revoke the step's credentials first: %w", err)
	}
	c.clear(ctx)
	return nil
}

// clear removes the secrets of the steps that run from the guest, unless the guest is frozen.
func (c *credentials) clear(ctx context.Context) {
	for _, proc := range c.running.all() {
		if !c.holds.frozen() {
			c.wipe(ctx, proc)
		}
	}
}

// in returns the names of the secrets whose values are in the text.
func (c *credentials) in(text []byte) []string {
	if c.issuer == nil {
		return nil
	}
	return c.issuer.Values(text)
}

// printed returns the searcher for secret values in the step's output, or nil without an issuer.
func (c *credentials) printed(step string) *secrets.Printed {
	if c.issuer == nil {
		return nil
	}
	return c.issuer.Printed(step)
}
