package redteam

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redteam/simnet"
)

// Recorder adds events to the suite's own record.
type Recorder interface {
	Record(ctx context.Context, ev audit.Event) (uint64, error)
}

// Suite has the settings of a run of the probes.
type Suite struct {
	Custody  string   // path of the program under attack
	Env      []string // of that program; must set CUSTODY_HOME
	Own      string   // ID of the suite's own run
	Recorder Recorder // of the suite's own run
	Only     string   // pattern of the IDs of the probes to make, "" for all
	Tier     string   // isolation tier of the attacked sandboxes, "" for the best that works
	// Extra are egress rules, in the syntax of custody.yaml, that are added to the policies. They test that the suite
	// reports the traffic that they allow.
	Extra []string
	// Say, if set, is called with each line of the suite's progress.
	Say func(string)
}

// Outcome is the result of a probe.
type Outcome struct {
	Probe
	Blocked  bool   `json:"blocked"`  // nothing of it was observed outside, and the guest got a refusal
	Recorded bool   `json:"recorded"` // a record accounts for it
	Run      string `json:"attacked,omitempty"`
	Seq      uint64 `json:"evidence,omitempty"`
	Detail   string `json:"detail,omitempty"`
}

// Holds reports whether the outcome is as required: recorded, and blocked unless the probe is a control.
func (o Outcome) Holds() bool { return o.Recorded && o.Blocked != o.Control }

// trial is one run of the suite.
type trial struct {
	Suite
	net      *simnet.Network
	custody  *custody
	watch    *watch
	outcomes []Outcome
	values   map[string]string // of the secrets that the attacked run has, by name
	kept     kept              // the files and output of that run
}

// Run makes the probes and returns their outcomes in the order of Probes, and a last one for observations that belong to
// no probe. An error means that the suite could not be completed. A probe that succeeded is not an error.
func (s Suite) Run(ctx context.Context) ([]Outcome, error) {
	nonce := newNonce()
	list, err := Match(Probes(nonce), s.Only)
	if err != nil {
		return nil, err
	}
	return s.try(ctx, nonce, list)
}

// try makes the probes of a list.
func (s Suite) try(ctx context.Context, nonce string, list []Probe) (all []Outcome, err error) {
	t := &trial{Suite: s}
	if t.Say == nil {
		t.Say = func(string) {}
	}
	files, err := newScratch()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, files.remove()) }()
	if t.net, err = simnet.New(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.net.Close()) }()
	t.custody = &custody{program: s.Custody, env: s.Env, extra: s.Extra, tier: s.Tier, dir: files.dir, net: t.net}
	t.watch = &watch{net: t.net, tokens: regexp.MustCompile("p" + nonce + "[0-9]{3}")}
	for _, part := range []struct {
		scene scene
		play  func(context.Context, []Probe) error
	}{
		{outside, t.outside}, {kernel, t.kernel}, {refused, t.refused}, {closed, t.sandboxed}, {open, t.sandboxed}, {live, t.live}, {crash, t.crash}, {withSecrets, t.secrets},
	} {
		probes := slices.DeleteFunc(slices.Clone(list), func(p Probe) bool { return p.scene != part.scene })
		if len(probes) == 0 {
			continue
		}
		t.Say(fmt.Sprintf("%d probes: %s", len(probes), part.scene))
		if err := part.play(ctx, probes); err != nil {
			return nil, fmt.Errorf("scene %s: %w", part.scene, err)
		}
	}
	t.late()
	t.unexplained(list)
	slices.SortStableFunc(t.outcomes, func(a, b Outcome) int { return place(list, a.ID) - place(list, b.ID) })
	return t.outcomes, t.report(ctx)
}

func newNonce() string {
	var b [3]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// place returns the index of an ID in the list, and its length for others.
func place(list []Probe, id string) int {
	if i := slices.IndexFunc(list, func(p Probe) bool { return p.ID == id }); i >= 0 {
		return i
	}
	return len(list)
}

// report records an event for each outcome in the suite's record.
func (t *trial) report(ctx context.Context) error {
	for _, o := range t.outcomes {
		_, err := t.Recorder.Record(ctx, audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindProbe, Probe: &audit.Probe{
			Name: o.ID, Family: string(o.Family), Blocked: o.Blocked, Recorded: o.Recorded, Run: o.Run, Seq: o.Seq, Detail: audit.Text(o.Detail),
		}})
		if err != nil {
			return fmt.Errorf("record the outcome of %s: %w", o.ID, err)
		}
	}
	return nil
}

// The policies of the scenes.
const (
	head = "version: 1\nproject: redteam\nresolvers: [\"udp://93.184.0.53\"]\nlimits: {time: 10m}\n"

	rules = head + `egress:
  - {allow: ` + simnet.Allowed + `}
  - {allow: ` + simnet.Plain + `, ports: [tcp/80]}
  - {allow: ` + simnet.API + `, http: {methods: [GET, POST], paths: ["/v1/*"]}}
  - {allow: ` + simnet.Direct + `, ports: [tcp/7000, udp/7001], mode: direct}
  - {allow: ` + simnet.Quiet + `, ports: [tcp/7000, udp/7001], mode: direct}
  - {allow: "*.` + simnet.Wild + `"}
  - {allow: "*.` + simnet.Rebind + `"}
  - {allow: "*.` + simnet.RebindDirect + `", ports: [tcp/7000, udp/7001], mode: direct}
`
	narrowed = head + "egress:\n  - {allow: " + simnet.Allowed + "}\n"
	none     = head + "egress: []\n"
)
