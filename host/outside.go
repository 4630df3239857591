package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"

	"github.com/custody-project/custody/audit/hostlog"
	"github.com/custody-project/custody/audit/witness"
)

// outsideError is a finding about the host's log from what others have seen of it.
type outsideError struct {
	who  string
	err  error
	hint string
}

// Error implements error.
func (e *outsideError) Error() string { return e.who + ": " + e.err.Error() }

// Unwrap gives what was found.
func (e *outsideError) Unwrap() error { return e.err }

// Hint returns what to do about it.
func (e *outsideError) Hint() string { return e.hint }

const (
	hintRolledBack = "what is newer is gone from this host, runs, log and store together: find out who put back a copy, and take the missing runs from bundles, exports or a back-up; docs/witness.md, recovery"
	hintForked     = "this log and the one that was seen before differ in what both have: keep both as evidence, begin a new key and log, and find out who wrote the other; docs/witness.md, recovery"
	hintForged     = "give a checkpoint of this host's log, as custody verify, a bundle or a witness has it"
)

// seenElsewhere makes a finding of a difference from another party's copy.
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

// outside compares the host's log with what others have seen of it. An old copy of the whole home, put back, has no
// trace of that in itself.
func (f *fsck) outside(ctx context.Context, o FsckOptions) error {
	if o.Since == nil && o.Witnesses == nil {
		return nil
	}
	r, err := f.host.ManifestLog().Reader()
	if err != nil {
		return err
	}
	if o.Since != nil {
		const who = "by the checkpoint that was given"
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

// ask asks witnesses.
func (f *fsck) ask(ctx context.Context, r *hostlog.Reader, o FsckOptions) {
	refusals, quorum, err := r.Ask(ctx, o.Witnesses, http.DefaultTransport)
	if err != nil {
		f.checked.Unasked = fmt.Errorf("there is no checkpoint to ask witnesses about: %w", err)
		return
	}
	answered := len(o.Witnesses.Peers())
	var silent []string
	for _, refusal := range refusals {
		if errors.Is(refusal.Err, hostlog.ErrRolledBack) || errors.Is(refusal.Err, hostlog.ErrForked) {
			f.found("", 0, seenElsewhere(fmt.Sprintf("by witness %s at %s", refusal.Name, refusal.URL), refusal.Err))
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

// Witnesses is the policy of host.yaml's witnesses, nil if there are none. If keys are given, it is of those of them alone,
// and asks for all.
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
			return nil, fmt.Errorf("witness %.80q is not one of log.witnesses in %s, which says where it is asked", key, ConfigFile)
		}
	}
	return chosen.policy()
}
