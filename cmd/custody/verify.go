package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/replay/judge"
	"github.com/custody-project/custody/store"
)

// usualWithin is the default of verify's --within.
const usualWithin = 24 * time.Hour

const (
	exitDoesNotHold   exitCode = 1
	exitCannotBeKnown exitCode = 2
)

type verifyCmd struct {
	What     string        `arg:"" name:"run|file" predictor:"run" help:"A run (or last), the file of a bundle (- for standard input), that of the proof of one record, or the directory of a report."`
	Key      []string      `placeholder:"KEY|FILE" help:"Trust this public key (host.pub of the host that made the record). Default: this host's own."`
	FleetKey []string      `placeholder:"KEY|FILE" help:"Trust the keys of hosts that this root key of a fleet states, in the bundle. Default: that of host.yaml."`
	Witness  []string      `placeholder:"KEY|FILE" help:"Count this witness's cosignature. Default: those of host.yaml."`
	Quorum   int           `placeholder:"N" help:"Of the witnesses, so many must have cosigned (default: all that are given)."`
	Within   time.Duration `default:"24h" placeholder:"DURATION" help:"So long after it says it was sealed the record must have been in the log, by the witnesses' time or a stamp's."`
	Since    string        `type:"existingfile" placeholder:"FILE" help:"An earlier checkpoint that you kept: the host's log must have gone on from there."`
	TSA      []string      `name:"tsa" type:"existingfile" placeholder:"FILE" help:"The checkpoint must be stamped by an authority with one of these roots."`
	Unlogged bool          `help:"Accept a bundle without a checkpoint, as early versions wrote. It proves less."`
	JSON     bool          `name:"json" help:"Print the result as one JSON object (docs/verify.md)."`
	Detailed bool          `help:"Exit with each failure's own status (docs/verify.md) rather than 1 or 2."`
}

func (c verifyCmd) Run(a *app) error {
	out := a.stdout
	if c.JSON {
		quiet := *a
		quiet.stdout = io.Discard
		a = &quiet
	}
	j := c.judge(a)
	code := a.conclude(j)
	if errors.Is(code, exitDoesNotHold) {
		a.notifyFailed(nil, "", fmt.Sprintf("verify %s: %v", filepath.Base(c.What), j.Err))
	}
	if found := new(verdict.Verdict); c.Detailed && errors.As(j.Err, &found) {
		code = exitCode(found.Status())
	}
	if !c.JSON {
		return code
	}
	var status exitCode
	errors.As(code, &status) // 0 if there is none
	return errors.Join(json.NewEncoder(out).Encode(j.Document(c.What, int(status), hint(j.Err), time.Now())), code)
}

// judge finds out what is named, and verifies it.
func (c verifyCmd) judge(a *app) judge.Judgement {
	t, err := c.trust(a.ctx)
	if err != nil {
		return judge.Barred("", err)
	}
	if info, err := os.Stat(c.What); err == nil && info.IsDir() {
		return judge.Directory(a.ctx, c.What, t)
	}
	file, err := isFile(c.What)
	if err == nil && file && c.What != stdinName {
		err = regular.Check(c.What)
	}
	switch {
	case err != nil:
		return judge.Barred("", err)
	case !file:
		return verifyRun(a, c.What, t)
	}
	path, remove, err := a.bundleFile(c.What)
	if err != nil {
		return judge.Barred(judge.OfBundle, err)
	}
	defer remove()
	return judge.File(a.ctx, path, t)
}

// verifyRun verifies the host's log of a run, and what the store has of it.
func verifyRun(a *app, name string, t proof.Trust) judge.Judgement {
	h, st, err := a.openReader()
	if err != nil {
		return judge.Barred(judge.OfRun, err)
	}
	defer st.Close()
	run, err := st.Run(a.ctx, "", name)
	if errors.Is(err, store.ErrNotFound) && h.RunLogs().Has(name) { // the store does not know it, the log does
		run, err = store.NewRun(name), nil
	}
	if err != nil {
		return judge.Barred(judge.OfRun, noRun(name, err))
	}
	return judge.Run(a.ctx, h, st, run, t)
}

// trust is whom the flags name, else whom this host knows.
func (c verifyCmd) trust(ctx context.Context) (proof.Trust, error) {
	t := proof.Trust{Quorum: c.Quorum, Within: c.Within, Unlogged: c.Unlogged}
	var err error
	if t.Keys, t.Fleets, err = c.keys(ctx); err != nil {
		return t, err
	}
	if c.Within <= 0 {
		return t, usageError{fmt.Errorf("--within %s: give a time, such as 24h", c.Within)}
	}
	t.Witnesses, err = statement.OpenKeys(ctx, c.Witness, statement.ParseWitness)
	if err != nil {
		return t, fmt.Errorf("--witness %w", err)
	}
	if t.Quorum == 0 {
		t.Quorum = len(t.Witnesses)
	}
	if t.Quorum < 0 || t.Quorum > len(t.Witnesses) {
		return t, usageError{fmt.Errorf("--quorum %d of %d witnesses: give as many --witness at least", c.Quorum, len(t.Witnesses))}
	}
	if c.Since != "" {
		if t.Since, err = regular.Given(ctx, c.Since, statement.MaxGiven); err != nil {
			return t, err
		}
	}
	return t, c.authorities(ctx, &t)
}

// keys are those of hosts and those of fleets' roots.
func (c verifyCmd) keys(ctx context.Context) (hosts, fleets note.Verifiers, err error) {
	if len(c.Key) == 0 && len(c.FleetKey) == 0 {
		return host.KnownKeys()
	}
	if hosts, err = verifiers(ctx, "--key", c.Key); err == nil {
		fleets, err = verifiers(ctx, "--fleet-key", c.FleetKey)
	}
	return hosts, fleets, err
}

func (c verifyCmd) authorities(ctx context.Context, t *proof.Trust) error {
	for _, file := range c.TSA {
		text, err := regular.Given(ctx, file, statement.MaxGiven)
		if err != nil {
			return err
		}
		if t.Authorities == nil {
			t.Authorities = x509.NewCertPool()
		}
		if !t.Authorities.AppendCertsFromPEM(text) {
			return fmt.Errorf("--tsa %s has no certificate in PEM", file)
		}
		t.Stamped = true
	}
	return nil
}

// cannotBeJudged reports why a check could not be made, and returns the exit code for that.
func (a *app) cannotBeJudged(err error) error {
	if a.ctx.Err() != nil && !errors.Is(err, verdict.ErrDoesNotHold) {
		where := ""
		if waited := new(fs.PathError); errors.As(err, &waited) && errors.Is(waited, context.Canceled) {
			where = " while reading " + waited.Path
		}
		err = fmt.Errorf("interrupted by a signal%s, before the check was done: this is no finding about the record", where)
	}
	a.Complain(err)
	return exitCannotBeKnown
}

// verifiers are those of the keys that a flag names, each a file or the key itself.
func verifiers(ctx context.Context, flag string, keys []string) (note.Verifiers, error) {
	list, err := statement.OpenKeys(ctx, keys, statement.ParseVerifier)
	if err != nil {
		return nil, fmt.Errorf("%s %w", flag, err)
	}
	return note.VerifierList(list...), nil
}

// conclude prints a judgement and turns it into the exit code.
func (a *app) conclude(j judge.Judgement) error {
	holds := j.WriteText(a.stdout)
	if j.Barred {
		return a.cannotBeJudged(j.Err)
	}
	return a.verdict(j.Err, holds)
}

// verdict prints what holds, or that it does not, and turns it into the exit code.
func (a *app) verdict(err error, holds string) error {
	switch {
	case err == nil:
		fmt.Fprintln(a.stdout, holds)
		return nil
	case errors.Is(err, verdict.ErrCannotBeJudged), a.ctx.Err() != nil && !errors.Is(err, verdict.ErrDoesNotHold):
		fmt.Fprintln(a.stdout, "CANNOT BE JUDGED")
		return a.cannotBeJudged(err)
	default:
		fmt.Fprintln(a.stdout, "DOES NOT HOLD")
		a.Complain(err)
		return exitDoesNotHold
	}
}
