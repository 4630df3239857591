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
	// MaxLimit is the maximum time for which a step's credentials can be renewed.
	MaxLimit = 24 * time.Hour
	// beginTime bounds the minting of a step's credentials.
	beginTime = 30 * time.Second
	// settleTime bounds how long an end waits for the brokers' confirmation.
	settleTime = 5 * time.Second
)

// Config has the dependencies of an Issuer. All but Dir, Withdrawn, Action, Act and Recorded must be set.
type Config struct {
	Run      string
	Bindings []Binding         // all secrets of the project
	Brokers  map[string]Broker // by the scheme of the sources that they serve
	Dir      string            // the base of relative sources
	Recorder Recorder
	Redactor *redact.Redactor
	// Withdrawn, if set, is called with each header secret whose credential has ended, so that open requests that carry
	// it can be ended. It must not wait for Close.
	Withdrawn func(secret, reason string)
	// Action is the action after an anomaly in addition to the revocation: revoke (none; the default), freeze or end.
	// Act carries out the last two, and reports all three. It is called once for each finding that had any effect,
	// possibly concurrently, and must not wait for Close.
	Action string
	Act    func(ctx context.Context, action, reason string)
	// Recorded searches the stored records of the run for bytes in which find finds the value, and returns the first
	// record with them.
	Recorded func(name string, find func([]byte) bool) (seq uint64, ok bool)
}

// Credential is a credential that the gateway adds to a request.
type Credential struct {
	Header      string // name of the header field
	Value       []byte // a copy that belongs to the caller
	Placeholder string // the step's placeholder; empty: none
}

// Item is an item to deliver to a step.
type Item struct {
	Name  string // of the secret
	Env   string // environment variable for Value, or empty
	File  string // file in the step's tmpfs for Value, or empty
	Value []byte // belongs to the caller
}

// Issuer issues and revokes the credentials of one run's steps. It is safe for concurrent use.
type Issuer struct {
	cfg          Config
	bindings     map[string]Binding
	journal      journal
	values       *known
	placeholders *placeholders
	slept        func() time.Duration

	// ctx ends when Close no longer waits for pending operations.
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup // all goroutines except the revocations, which belong to their leases

	mu       sync.Mutex // guards the fields below; a lease's lock may be taken under it
	closed   bool
	leases   []*Lease          // those that may have live grants
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

// start runs f as a goroutine of the issuer, unless the issuer is closed.
func (i *Issuer) start(f func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.closed {
		i.tasks.Go(f)
	}
}

// Begin mints the secrets of step, to be renewed for at most limit (zero or more than MaxLimit means MaxLimit). It
// returns when the redactor has the values and the minting is recorded. After an error, all that was minted is revoked.
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

// open registers an empty lease.
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
			return nil, fmt.Errorf("step %q has the secret %q, which the project does not define", step, name)
		}
		l.bindings[name] = b
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return nil, errors.New("the run issues no more credentials: it has ended")
	}
	if old := i.steps[step]; old != nil && old.live() {
		return nil, fmt.Errorf("step %q has credentials already", step)
	}
	i.leases = append(slices.DeleteFunc(i.leases, (*Lease).settled), l)
	i.steps[step] = l
	for name := range l.bindings {
		i.bound[name] = l
	}
	return l, nil
}

// learn adds the values to the redactor, and then checks whether one of them was recorded before.
func (i *Issuer) learn(ctx context.Context, step string, values map[string][]byte) error {
	if err := i.cfg.Redactor.AddAll(values); err != nil {
		return err
	}
	for _, name := range i.values.remember(values) {
		if i.bindings[name].Deliver.Token != "" {
			continue // it is new
		}
		if err := i.late(ctx, step, name, values[name]); err != nil {
			return err
		}
	}
	return nil
}

// late records a finding if value is already in the record. It searches with a separate redactor, which has no markers.
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
		Detail: "the value is unmasked in records from before it was minted: replace it at its source",
	}})
}

// Credential returns the header secret's value for a request of the current step. The guest receives the error's text.
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

// Find returns the names of the secrets of which a value or placeholder is in text, in any encoding. It ignores markers.
func (i *Issuer) Find(text []byte) []string {
	text = i.values.unmarked(text)
	return union(i.cfg.Redactor.Find(text), i.placeholders.known.Find(text))
}

// RevokeAll revokes all live credentials, and waits some seconds for the brokers' confirmation. Without an error none is
// alive. It precedes a pause, a snapshot or a fork; the caller ensures that no step begins meanwhile.
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

// Close ends all leases, issues no further ones, and waits some seconds for the brokers. Grants that they have not
// confirmed by then expire within TTL of the last renewal.
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
	for _, l := range i.leases { // they no longer change
		for _, h := range l.held() {
			wait(h.done, time.Second)
		}
	}
	return err
}

// wait waits until c is closed, for at most d.
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
