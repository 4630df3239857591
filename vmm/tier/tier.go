// Package tier picks the isolation tier of a run: it tries the candidates in order,
// best first, and takes the first that works on this host.
//
// That a driver's programs and devices exist does not show that it works: /dev/kvm can exist although no guest
// boots with it. A candidate can therefore require a probe, which boots a guest. The result is cached until the
// host boots again.
package tier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/internal/bootid"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/vmm"
)

// Driver starts the machines of a tier.
type Driver interface {
	vmm.Driver
	// Fingerprint identifies the programs and the hardware that the driver uses.
	Fingerprint() string
}

// Candidate is a tier that can be picked.
type Candidate struct {
	Tier string
	Note string // describes the strength of its isolation
	// New returns the driver, or an error that names what the host lacks for it. It returns quickly.
	New   func() (Driver, error)
	Probe bool // whether a guest must boot to show that the tier works
}

// Finding is the result of trying a candidate.
type Finding struct {
	Tier   string
	Works  bool
	Reason string // why it does not work
}

// Choice is the driver that was picked.
type Choice struct {
	Driver Driver
	Note   string
	// Findings are the results of all candidates that were tried, in their order.
	Findings []Finding
}

// Picker picks one of the candidates. Several processes of a host can use the same cache concurrently.
type Picker struct {
	Candidates []Candidate // best first
	// Cache is the path of the file with the results of probes. A result is valid until the host boots again.
	Cache string
	// Limit bounds a probe. 0: startLimit for the start of the machine, and then a multiple of the time
	// that the start took: a host that is itself a VM can be a hundred times slower.
	Limit time.Duration
	// Boot starts a machine. Its guest reports over the channel when it has booted (channel.AwaitReady).
	Boot func(context.Context, Driver) (vmm.VM, error)
	// Image is the digest of the image that Boot starts.
	Image string
	// Notice receives a progress message every noticeEvery while a probe runs.
	Notice func(string)
	// Again makes Pick repeat probes that failed before.
	Again bool
}

const (
	startLimit = 30 * time.Second
	// A guest is ready after some 20 to 100 times the start time of the machine monitor. The limit detects
	// a KVM that hangs, which is rare. A limit that is too short would disable KVM until the host boots again.
	readyFactor  = 300
	readyAtMost  = 10 * time.Minute
	readyAtLeast = time.Minute
	noticeEvery  = 5 * time.Second
	// slowFor is how long a timed-out probe is not repeated. After that it is: the host may have been busy.
	slowFor = time.Hour
)

// ErrUnset is returned by a candidate's New if the host's settings do not name what it needs. Pick then tries the
// candidate only if its tier is required.
var ErrUnset = errors.New("it is not set up")

// ErrUnavailable means that no tier works, or that the required one does not.
var ErrUnavailable = errors.New("isolation is not available")

// unavailable is an ErrUnavailable with the reason why each tried tier does not work.
type unavailable struct {
	required string // empty: any
	findings []Finding
	causes   []error // of the findings
}

func (e *unavailable) Error() string {
	if e.required != "" {
		return fmt.Sprintf("%s is required and not available: %s", e.required, e.findings[0].Reason)
	}
	var reasons []string
	for _, f := range e.findings {
		reasons = append(reasons, f.Tier+": "+f.Reason)
	}
	return "no isolation tier works: " + strings.Join(reasons, "; ")
}

func (e *unavailable) Unwrap() []error { return append([]error{ErrUnavailable}, e.causes...) }

// Pick returns a driver of the required tier, or of the best tier that works if required is "".
func (p Picker) Pick(ctx context.Context, required string) (Choice, error) {
	if required != "" && !slices.ContainsFunc(p.Candidates, func(c Candidate) bool { return c.Tier == required }) {
		return Choice{}, fmt.Errorf("unknown isolation %q: the tiers are %s", required, strings.Join(p.names(), ", "))
	}
	var choice Choice
	failed := &unavailable{required: required}
	for _, c := range p.Candidates {
		if required != "" && c.Tier != required {
			continue
		}
		d, err := p.try(ctx, c)
		if ctx.Err() != nil {
			return Choice{}, ctx.Err()
		}
		if err == nil {
			choice.Driver, choice.Note = d, c.Note
			choice.Findings = append(choice.Findings, Finding{Tier: c.Tier, Works: true})
			return choice, nil
		}
		if required == "" && errors.Is(err, ErrUnset) {
			continue
		}
		choice.Findings = append(choice.Findings, Finding{Tier: c.Tier, Reason: err.Error()})
		failed.causes = append(failed.causes, err)
	}
	failed.findings = choice.Findings
	return choice, failed
}

func (p Picker) names() []string {
	var names []string
	for _, c := range p.Candidates {
		names = append(names, c.Tier)
	}
	return names
}

func (p Picker) try(ctx context.Context, c Candidate) (Driver, error) {
	d, err := c.New()
	if err != nil || !c.Probe {
		return d, err
	}
	now, err := p.key(d)
	if err != nil {
		return nil, err
	}
	cached := p.read()
	if v := cached[c.Tier]; v.verdictKey == now && (v.Works || !p.Again && !v.stale(time.Now())) {
		return d, v.err()
	}
	found := verdict{verdictKey: now, Time: time.Now()}
	err = p.probe(ctx, c.Tier, d)
	if err != nil && !errors.Is(err, errSlow) && ctx.Err() == nil { // its process can have been killed: the verdict stays for long
		err = p.probe(ctx, c.Tier, d)
	}
	if err != nil {
		found.Reason, found.Slow = err.Error(), errors.Is(err, errSlow)
	}
	found.Works = found.Reason == ""
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if found.Slow {
		p.Notice(fmt.Sprintf("%s is not used: %s; it is tried again in %v, or by custody doctor", c.Tier, found.Reason, slowFor))
	}
	cached[c.Tier] = found
	if err := p.write(cached); err != nil {
		return nil, fmt.Errorf("store the result of the probe: %w", err)
	}
	return d, found.err()
}

// probe boots a guest and waits until it is ready.
func (p Picker) probe(ctx context.Context, name string, d Driver) (err error) {
	began := time.Now()
	stop := p.announce(name, began)
	defer stop()
	limit := p.Limit
	if limit == 0 {
		limit = startLimit
	}
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	vm, err := p.Boot(within, d)
	if err != nil {
		return expired(within, "no machine started", limit, err)
	}
	defer func() { err = errors.Join(err, vm.Destroy(context.WithoutCancel(ctx))) }()
	if p.Limit == 0 {
		limit = readyLimit(time.Since(began))
		within, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	if err := channel.AwaitReady(within, vm.Channel()); err != nil {
		return expired(within, "no guest booted", limit, err)
	}
	return nil
}

// readyLimit returns the time limit for a guest to become ready, given how long the machine took to start.
func readyLimit(start time.Duration) time.Duration {
	return min(max(readyFactor*start, readyAtLeast), readyAtMost)
}

// errSlow means that a probe exceeded its time limit. Another probe may succeed.
var errSlow = errors.New("it took longer than")

func expired(ctx context.Context, what string, limit time.Duration, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w %v: %s", errSlow, limit.Round(time.Second), what)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// announce calls Notice every noticeEvery, until stop is called.
func (p Picker) announce(name string, began time.Time) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(noticeEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				p.Notice(fmt.Sprintf("testing whether a guest boots with %s: %v so far", name, time.Since(began).Round(time.Second)))
			}
		}
	}()
	return func() { close(done); <-ended }
}

// verdict is the result of a probe in the cache.
type verdict struct {
	verdictKey
	Works  bool      `json:"works"`
	Reason string    `json:"reason,omitempty"`
	Slow   bool      `json:"slow,omitempty"` // the probe timed out
	Time   time.Time `json:"time"`
}

// stale reports whether a probe that timed out should be repeated. That includes a verdict with a time in the future.
func (v verdict) stale(now time.Time) bool {
	age := now.Sub(v.Time)
	return v.Slow && (age < 0 || age >= slowFor)
}

// verdictKey identifies what a verdict depends on.
type verdictKey struct {
	Boot   string        `json:"boot"`
	Driver string        `json:"driver"`
	Image  string        `json:"image"`
	Limit  time.Duration `json:"limit"`
}

func (v verdict) err() error {
	if v.Works {
		return nil
	}
	return errors.New(v.Reason)
}

func (p Picker) key(d Driver) (verdictKey, error) {
	boot, err := bootid.Current()
	return verdictKey{boot, d.Fingerprint(), p.Image, p.Limit}, err
}

// read returns the cache, or an empty one if it cannot be read.
func (p Picker) read() map[string]verdict {
	all := map[string]verdict{}
	if b, err := regular.ReadFile(p.Cache); err == nil && json.Unmarshal(b, &all) != nil {
		return map[string]verdict{}
	}
	return all
}

// write replaces the cache. If two processes write concurrently, the verdicts of one are lost and probed again.
func (p Picker) write(all map[string]verdict) error {
	b, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(p.Cache), 0o700); err != nil {
		return err
	}
	return durable.ReplaceShared(p.Cache, append(b, '\n'), 0o600)
}
