package secrets

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redact"
)

const (
	// MaxLimit is the longest time that a step's credentials can be renewed.
	MaxLimit = 24 * time.Hour
	// beginTime is how long brokers may take to mint what a step binds.
	beginTime = 30 * time.Second
	// settleTime is how long an end waits for the brokers' word.
	settleTime = 5 * time.Second
)

// Config is what an Issuer works with. All but Dir, Withdrawn, Action, Act and Recorded must be set.
type Config struct {
	Run      string
	Bindings []Binding         // all that the project names
	Brokers  map[string]Broker // by the scheme of the sources that they serve
	Dir      string            // where relative sources begin
	Recorder Recorder
	Redactor *redact.Redactor
	// Withdrawn, if set, is called with each header secret whose credential is dead, so that requests under way that
	// carry it are ended. It must not wait for Close.
	Withdrawn func(secret, reason string)
	// Action is what follows an anomaly besides the revocation: revoke (nothing more; the default), freeze or end. Act
	// carries out the last two, and reports all three. It is called once for each finding that had any effect, perhaps
	// concurrently, and must not wait for Close.
	Action string
	Act    func(ctx context.Context, action, reason string)
	// Recorded looks through what was recorded of the run so far, as it is stored, for bytes
	// in which find finds the value, and returns the first record with them.
	Recorded func(name string, find func([]byte) bool) (seq uint64, ok bool)
}

// Credential is what the gateway puts into a request.
type Credential struct {
	Header      string // name of the header
	Value       []byte // a copy of the secret value: the caller's
	Placeholder string // what the step has in its place; empty: nothing
}

// Item is one thing that is handed into a step.
type Item struct {
	Name  string // of the secret
	Env   string // environment variable that holds Value, or empty
	File  string // file in the step's tmpfs that holds Value, or empty
	Value []byte // the caller's
}

// Issuer gives the steps of one run their credentials and takes them back. It is safe for
// concurrent use.
type Issuer struct {
	cfg          Config
	bindings     map[string]Binding
	journal      journal
	values       *known
	placeholders *placeholders
	slept        func() time.Duration

	// ctx ends when Close has waited long enough for what still goes on.
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup // all goroutines but the revocations, which their leases know

	mu       sync.Mutex // guards what follows; a lease's may be taken under it
	closed   bool
	leases   []*Lease          // that may still have something alive
	steps    map[string]*Lease // the last one of each step
	bound    map[string]*Lease // the last one with each secret
	reported map[sighting]bool
}

// NewIssuer returns the issuer of a run; Close ends it.
func NewIssuer(c Config) *Issuer {
	i := &Issuer{
		cfg: c, bindings: map[string]Binding{}, slept: slept,
		steps: map[string]*Lease{}, bound: map[string]*Lease{},
		journal: journal{c.Recorder}, values: newKnown(c.Redactor), placeholders: newPlaceholders(), reported: map[sighting]bool{},
	}
	if c.Action == "" {
		i.cfg.Action = "revoke"
	}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	for _, b := range c.Bindings {
		i.bindings[b.Name] = b
	}
	return i
}

func (i *Issuer) now() moment { return moment{time.Now(), i.slept()} }

// start runs f as one of the issuer's goroutines, unless it is closed.
func (i *Issuer) start(f func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.closed {
		i.tasks.Go(f)
	}
}

// Begin mints what step binds, to be renewed for at most limit (none or more than MaxLimit: MaxLimit). It returns when
// the redactor knows the values and the minting is recorded. With an error, whatever was minted is revoked.
func (i *Issuer) Begin(ctx context.Context, step string, names []string, limit time.Duration) (*Lease, error) {
	l, err := i.open(step, names, limit)
	if err != nil {
		return nil, err
	}
	defer close(l.begun)
	mintCtx, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	if err := (&minting{i, l}).run(mintCtx); err != nil {
		return nil, l.abandon(ctx, fmt.Errorf("the credentials of step %q: %w", step, err))
	}
	return l, nil
}

// open registers a lease with nothing in it.
func (i *Issuer) open(step string, names []string, limit time.Duration) (*Lease, error) {
	if limit <= 0 || limit > MaxLimit {
		limit = MaxLimit
	}
	l := &Lease{
		issuer: i, step: step, term: term{i.now().add(limit), i.now}, bindings: map[string]Binding{},
		begun: make(chan struct{}), over: make(chan struct{}), renewing: make(chan struct{}, 1),
		refusals: map[string]int{},
	}
	l.contents = newContents(l.bindings)
	l.life, l.die = context.WithCancel(context.Background())
	for _, name := range names {
		b, ok := i.bindings[name]
		if !ok {
			return nil, fmt.Errorf("step %q names the secret %q, which the project does not have", step, name)
		}
		l.bindings[name] = b
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return nil, errors.New("the run gives out no more credentials: it has ended")
	}
	if old := i.steps[step]; old != nil && old.live() {
		return nil, fmt.Errorf("step %q has credentials already", step)
	}
	i.leases = append(slices.DeleteFunc(i.leases, (*Lease).buried), l)
	i.steps[step] = l
	for name := range l.bindings {
		i.bound[name] = l
	}
	return l, nil
}

// learn makes the redactor know the values, and then looks whether one was recorded
// before it was known.
func (i *Issuer) learn(ctx context.Context, step string, values map[string][]byte) error {
	if err := i.cfg.Redactor.AddAll(values); err != nil {
		return err
	}
	for _, name := range i.values.remember(values) {
		if i.bindings[name].Deliver.Token != "" {
			continue // made a moment ago
		}
		if err := i.late(ctx, step, name, values[name]); err != nil {
			return err
		}
	}
	return nil
}

// late records a finding if value stands in the record already. It is looked for with a
// redactor of its own, for which markers mean nothing.
func (i *Issuer) late(ctx context.Context, step, name string, value []byte) error {
	if i.cfg.Recorded == nil {
		return nil
	}
	alone := redact.New([]byte(rand.Text()))
	if err := alone.Add(name, value); err != nil {
		return err
	}
	seq, ok := i.cfg.Recorded(name, func(b []byte) bool { return len(alone.Find(b)) > 0 })
	if !ok {
		return nil
	}
	return i.journal.post(ctx, audit.Event{Kind: audit.KindFinding, Step: step, Finding: &audit.Finding{
		Rule: audit.RuleSecretKnownLate, Secret: name, Seq: seq,
		Detail: "the value stands unmasked in what was recorded before it was minted: replace it where it comes from",
	}})
}

// Credential returns the header secret's value for a request of the step that runs now.
// The error's words are for the guest.
func (i *Issuer) Credential(secret string) (Credential, error) {
	i.mu.Lock()
	l := i.bound[secret]
	for _, other := range i.leases {
		if _, ok := other.bindings[secret]; ok && other.live() {
			l = other
		}
	}
	i.mu.Unlock()
	if l == nil {
		return Credential{}, fmt.Errorf("no step that has run binds the secret %q", secret)
	}
	return l.credential(secret)
}

// Find returns the names of the secrets of which a value or placeholder occurs in text, in any encoding. Markers do not
// count.
func (i *Issuer) Find(text []byte) []string {
	text = i.values.unmarked(text)
	return union(i.cfg.Redactor.Find(text), i.placeholders.known.Find(text))
}

// RevokeAll revokes all credentials that are alive, and waits some seconds for the brokers' confirmation. Without an
// error none is alive. It comes before a pause, a snapshot, a fork; the caller ensures that no step begins meanwhile.
func (i *Issuer) RevokeAll(ctx context.Context, reason string) error {
	i.mu.Lock()
	leases := slices.Clone(i.leases)
	i.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for _, l := range leases {
		l.kill(errRevoked(reason))
	}
	var errs []error
	for _, l := range leases {
		errs = append(errs, l.settle(ctx))
	}
	return errors.Join(errs...)
}

// Close ends what is left, gives out nothing more, and waits some seconds for the brokers.
// What they have not confirmed by then is dead within TTL of its last renewal.
func (i *Issuer) Close(ctx context.Context) error {
	i.mu.Lock()
	i.closed = true
	i.mu.Unlock()
	err := i.RevokeAll(context.WithoutCancel(ctx), "the run has ended")
	tasks := make(chan struct{})
	go func() {
		defer close(tasks)
		i.tasks.Wait()
	}()
	wait(tasks, time.Second)
	i.cancel()
	wait(tasks, time.Second)
	for _, l := range i.leases { // they do not change any more
		for _, h := range l.held() {
			wait(h.done, time.Second)
		}
	}
	return err
}

// wait waits for c to be closed, at most for d.
func wait(c <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c:
		return true
	case <-t.C:
		return false
	}
}
