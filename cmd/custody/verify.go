//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/custody-project/custody/command"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/replay/judge"
)

const (
	exitDoesNotHold   = command.DoesNotHold
	exitCannotBeKnown = command.CannotBeKnown
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

// Run verifies a run of the host, or a file.
func (c verifyCmd) Run(a *app) error {
	out := command.VerifyOutput{Target: c.What, JSON: c.JSON, Detailed: c.Detailed}
	trusted, err := c.trusted(a.ctx)
	file := false
	if err == nil {
		file, err = c.named()
	}
	if err == nil && !file {
		return a.perform(command.Verify{Run: c.What, Trusted: trusted, VerifyOutput: out})
	}
	return out.Print(a.ctx, a.env(), func(ctx context.Context, _ *command.Env) judge.Judgement {
		if err != nil {
			return judge.Barred("", err)
		}
		return c.judge(a, trusted)
	})
}

// named reports whether a file or a directory is named, and not a run.
func (c verifyCmd) named() (bool, error) {
	if info, err := os.Stat(c.What); err == nil && info.IsDir() {
		return true, nil
	}
	file, err := isFile(c.What)
	if err == nil && file && c.What != stdinName {
		err = regular.Check(c.What)
	}
	return file, err
}

// judge verifies a file or a directory.
func (c verifyCmd) judge(a *app, trusted judge.Trusted) judge.Judgement {
	t, err := trusted.Trust(a.knownKeys)
	if err != nil {
		return judge.Barred("", err)
	}
	if info, err := os.Stat(c.What); err == nil && info.IsDir() {
		return judge.Directory(a.ctx, c.What, t)
	}
	path, remove, err := a.bundleFile(c.What)
	if err != nil {
		return judge.Barred(judge.OfBundle, err)
	}
	defer remove()
	return judge.File(a.ctx, path, t)
}

// trusted reads the keys and files that the flags name.
func (c verifyCmd) trusted(ctx context.Context) (judge.Trusted, error) {
	t, err := judge.Given{Keys: c.Key, FleetKeys: c.FleetKey, Witnesses: c.Witness, Quorum: c.Quorum, Within: c.Within, Since: c.Since,
		Authorities: c.TSA, Unlogged: c.Unlogged}.Read(ctx)
	if misuse := new(judge.GivenError); errors.As(err, &misuse) {
		err = command.Usage(err)
	}
	return t, err
}
