package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/custody-project/custody/audit/hostlog"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/witness"
)

// outsideError is a finding about the host's log, based on another party's copy.
type outsideError struct {
	who  string
	err  error
	hint string
}

// Error implements error.
func (e *outsideError) Error() string { return e.who + ": " + e.err.Error() }

// Unwrap returns the finding.
func (e *outsideError) Unwrap() error { return e.err }

// Hint returns the remedy.
func (e *outsideError) Hint() string { return e.hint }

const (
	hintRolledBack = "this host has lost newer data from runs, log and store: find out who restored a copy, and take the missing runs from bundles, exports or a back-up; docs/witness.md, recovery"
	hintForked     = "this log and the log that was seen before have different entries at the same index: keep both as evidence, begin a new key and log, and find out who wrote the other; docs/witness.md, recovery"
	hintForged     = "use a checkpoint of this host's log, from custody verify, a bundle or a witness"
)

// seenElsewhere returns the finding that another party's copy differs.
func seenElsewhere(who string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, hostlog.ErrRolledBack):
		hint = hintRolledBack
	case errors.Is(err, hostlog.ErrForked):
		hint = hintForked
	case errors.Is(err, hostlog.ErrForged):
		hint = hintForged
	}
	return &outsideError{who, err, hint}
}

// outside compares the host's log with the copies of others. If an old copy of the whole home was restored, the home
// contains no trace of that.
func (f *fsck) outside(ctx context.Context, o FsckOptions) error {
	if o.Since == nil && o.Witnesses == nil {
		return nil
	}
	r, err := f.host.ManifestLog().Reader()
	if err != nil {
		return err
	}
	if o.Since != nil {
		const who = "compared with the given checkpoint"
		err := r.Holds(ctx, o.Since)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: it has no checkpoint", hostlog.ErrRolledBack)
		}
		if err != nil {
			f.found("", 0, seenElsewhere(who, err))
		}
	}
	if o.Witnesses != nil {
		f.ask(ctx, r, o)
	}
	return ctx.Err()
}

// ask asks the witnesses.
func (f *fsck) ask(ctx context.Context, r *hostlog.Reader, o FsckOptions) {
	web := f.host.Outside.Web()
	defer web.Close()
	refusals, quorum, err := r.Ask(ctx, o.Witnesses, web)
	if err != nil {
		f.checked.Unasked = fmt.Errorf("the log has no checkpoint that witnesses could compare: %w", err)
		return
	}
	answered := len(o.Witnesses.Peers())
	var silent []string
	for _, refusal := range refusals {
		if errors.Is(refusal.Err, hostlog.ErrRolledBack) || errors.Is(refusal.Err, hostlog.ErrForked) {
			f.found("", 0, seenElsewhere(fmt.Sprintf("compared with witness %s at %s", refusal.Name, refusal.URL), refusal.Err))
			continue
		}
		answered--
		silent = append(silent, refusal.String())
	}
	if o.Quorum > 0 {
		quorum = answered >= o.Quorum
	}
	if !quorum && len(silent) > 0 {
		f.checked.Unasked = errors.New("too few witnesses have answered: " + strings.Join(silent, "; "))
	}
}

// Witnesses returns the policy of host.yaml's witnesses, nil if there are none. With keys, the policy has only the witnesses of these
// keys, and requires all of them.
func (ml ManifestLog) Witnesses(keys ...string) (*witness.Policy, error) {
	l := ml.host.config.Log
	if len(keys) == 0 {
		return l.policy()
	}
	chosen := Log{}
	for _, key := range keys {
		found := false
		for _, w := range l.Witnesses {
			if w.Key == key {
				chosen.Witnesses, found = append(chosen.Witnesses, w), true
			}
		}
		if !found {
			return nil, fmt.Errorf("witness %.80q is not in log.witnesses of %s, which has its address", key, ConfigFile)
		}
	}
	return chosen.policy()
}

// GivenWitnesses returns the policy that a user names: "all" for host.yaml's witnesses, the file of a policy, or the keys
// of some of host.yaml's witnesses.
func (ml ManifestLog) GivenWitnesses(ctx context.Context, names []string) (*witness.Policy, error) {
	var keys []string
	if len(names) != 1 || names[0] != "all" {
		for _, name := range names {
			text, err := statement.KeyText(ctx, name)
			if err != nil {
				return nil, err
			}
			if len(names) == 1 && strings.Contains(text, "\n") {
				return witness.ParsePolicy([]byte(text))
			}
			keys = append(keys, text)
		}
	}
	p, err := ml.Witnesses(keys...)
	if err == nil && p == nil {
		err = errors.New(ConfigFile + " names no witnesses under log")
	}
	return p, err
}
