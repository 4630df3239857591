package sandbox

import (
	"context"
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

// credentials are those of the step under way: they are minted, delivered, renewed while the step proves that it lives,
// and removed from the guest.
type credentials struct {
	issuer  Secrets // nil: no step may name any
	notice  func(string)
	holds   *holds
	running *running

	delivered delivered

	wiping sync.Mutex       // guards wiped, and is held over a wipe
	wiped  *channel.Process // whose secrets have been removed
}

// bind mints what a step names; nil for a step without secrets.
func (c *credentials) bind(ctx context.Context, st Step) (*secrets.Lease, error) {
	if len(st.Secrets) == 0 {
		return nil, nil
	}
	if c.issuer == nil {
		return nil, fmt.Errorf("step %s names secrets, and there is no issuer", st.Name)
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

// deliver returns what goes into the step; that it does is in the record first.
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
func (c *credentials) keep(ctx context.Context, proc *channel.Process, lease *secrets.Lease, done <-chan struct{}, end context.CancelCauseFunc) {
	again := time.NewTicker(proofEvery)
	defer again.Stop()
	for {
		select {
		case <-done:
			return
		case <-lease.Over():
			c.wipe(ctx, proc)
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

// wipe removes a step's secrets from its tmpfs, once.
func (c *credentials) wipe(ctx context.Context, proc *channel.Process) {
	c.wiping.Lock()
	defer c.wiping.Unlock()
	if c.wiped == proc {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, wipeTime)
	defer cancel()
	if err := proc.Wipe(ctx); err != nil {
		c.notice("the step's secrets could not be removed from the sandbox: " + err.Error())
		return
	}
	c.wiped = proc
}

// disarm revokes all credentials and removes what the guest has of them.
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

// clear removes the secrets of the step under way from the guest, unless that is frozen.
func (c *credentials) clear(ctx context.Context) {
	if proc := c.running.current(); proc != nil && !c.holds.frozen() {
		c.wipe(ctx, proc)
	}
}

// in names the secrets that have a value in the text.
func (c *credentials) in(text []byte) []string {
	if c.issuer == nil {
		return nil
	}
	return c.issuer.Values(text)
}

// printed returns what finds the values that the step prints, nil without an issuer.
func (c *credentials) printed(step string) *secrets.Printed {
	if c.issuer == nil {
		return nil
	}
	return c.issuer.Printed(step)
}
