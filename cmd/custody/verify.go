package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/doctor/remedy"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/replay/judge"
	"github.com/custody-project/custody/store"
)

const (
	exitDoesNotHold   exitCode = 1
	exitCannotBeKnown exitCode = 2
)

type verifyCmd struct {
	What     string        `arg:"" name:"run|file" predictor:"run" help:"A run (or last), the file of a bundle (- for standard input), that of the proof of one record, or the directory of a report."`
	Key      []string      `placeholder:"KEY|FILE" help:"Trust this public key (host.pub of the host that made the record). Default: this host's own."`
	FleetKey []string      `placeholder:"KEY|FILE" help:"Trust the keys of hosts that this root key of a fleet states, in the bundle. Default: that of host.yaml."`
	Witness  []string      `placeholder:"KEY|FILE" help:"Count this witness's cosignature. Default: those of host.yaml."`
	Quorum   int           `placeholder:"N" help:"Number of witnesses that must have cosigned (default: all that are given)."`
	Within   time.Duration `default:"24h" placeholder:"DURATION" help:"Maximum time from the stated sealing of the record to its entry in the log, as witnesses or a timestamp prove it."`
	Since    string        `type:"existingfile" placeholder:"FILE" help:"An earlier checkpoint that you kept: the host's log must be an extension of it."`
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
	return errors.Join(json.NewEncoder(out).Encode(j.Document(c.What, int(status), remedy.Of(j.Err), time.Now())), code)
}

// judge determines what is named, and verifies it.
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

// verifyRun verifies the host's log of a run, and the store's records of it.
func verifyRun(a *app, name string, t proof.Trust) judge.Judgement {
	h, st, err := a.openReader()
	if err != nil {
		return judge.Barred(judge.OfRun, err)
	}
	defer st.Close()
	run, err := st.Run(a.ctx, "", name)
	if errors.Is(err, store.ErrNotFound) && h.RunLogs().Has(name) { // the store does not have it, but the log does
		run, err = store.NewRun(name), nil
	}
	if err != nil {
		return judge.Barred(judge.OfRun, noRun(name, err))
	}
	return judge.Run(a.ctx, h, st, run, t)
}

// trust returns the keys that the flags name.
func (c verifyCmd) trust(ctx context.Context) (proof.Trust, error) {
	t, err := judge.Given{Keys: c.Key, FleetKeys: c.FleetKey, Witnesses: c.Witness, Quorum: c.Quorum, Within: c.Within, Since: c.Since,
		Authorities: c.TSA, Unlogged: c.Unlogged}.Trust(ctx)
	if misuse := new(judge.GivenError); errors.As(err, &misuse) {
		err = usageError{err}
	}
	return t, err
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

// conclude prints a judgement and converts it to the exit code.
func (a *app) conclude(j judge.Judgement) error {
	holds := j.WriteText(a.stdout)
	if j.Barred {
		return a.cannotBeJudged(j.Err)
	}
	return a.verdict(j.Err, holds)
}

// verdict prints what holds, or that it does not, and converts it to the exit code.
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
