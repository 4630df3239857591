package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/redteam"
	"github.com/custody-project/custody/run"
)

type redteamCmd struct {
	List bool   `help:"Print the probes and make none."`
	JSON bool   `name:"json" help:"One JSON object a probe."`
	Only string `placeholder:"GLOB" help:"Make only the probes whose ID matches, such as 'dns/*', and the controls that belong to them."`
}

func (c redteamCmd) Run(a *app) error {
	list, err := redteam.Match(redteam.Probes(""), c.Only)
	if err != nil {
		return err
	}
	if c.List {
		return c.list(a, list)
	}
	if err := run.RequireRoot(); err != nil {
		return err
	}
	h, err := a.open()
	if err != nil {
		return err
	}
	outcomes, run, err := c.attack(a, h)
	if err != nil {
		return err
	}
	return c.judge(a, outcomes, run)
}

func (c redteamCmd) list(a *app, list []redteam.Probe) error {
	if c.JSON {
		return printJSON(a, list)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROBE\tFAMILY\tBYPASS\tWHAT IT TRIES")
	for _, p := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.ID, p.Family, p.Bypass, p.Title)
	}
	return w.Flush()
}

func printJSON[T any](a *app, list []T) error {
	enc := json.NewEncoder(a.stdout)
	for _, v := range list {
		if err := enc.Encode(v); err != nil {
			return err
		}
	}
	return nil
}

// attack carries the suite out under a record of its own.
func (c redteamCmd) attack(a *app, h *host.Host) (outcomes []redteam.Outcome, run string, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	tag, err := h.TagKey()
	if err != nil {
		return nil, "", err
	}
	redactor := redact.New(tag)
	start := audit.Lifecycle{
		Phase: audit.PhaseStart, Project: "redteam", RulesetDigest: redactor.Digest(), Tier: "host", Mode: string(wal.Strict), Version: version(),
		TierNote: "the suite itself, outside of any sandbox; each probe's event names the run that it attacked",
	}
	start.Host, _ = os.Hostname()
	record, err := h.Begin(a.ctx, host.RunOptions{
		ID: host.NewRunID(time.Now()), Mode: wal.Strict, Redactor: redactor,
		Facts: statement.Facts{RulesetDigest: start.RulesetDigest, Tier: start.Tier},
		OnStall: func(err error) {
			a.Say("the suite's record cannot be written (" + err.Error() + "): it waits until it can")
		}, OnResume: func() {},
	})
	if err != nil {
		return nil, "", err
	}
	keep := context.WithoutCancel(a.ctx)
	record.Ship(keep)
	began := time.Now()
	if _, err = record.Record(a.ctx, runRecord(&start)); err == nil {
		outcomes, err = redteam.Suite{
			Custody: program, Env: append(os.Environ(), "CUSTODY_HOME="+h.Dir), Own: record.ID, Recorder: record, Only: c.Only, Say: a.Say,
		}.Run(a.ctx)
	}
	end := audit.Lifecycle{Phase: audit.PhaseEnd, Status: audit.StatusDone, DurationNS: int64(time.Since(began)), ExitCode: new(int)}
	if *end.ExitCode = worst(outcomes); err != nil {
		*end.ExitCode, end.Status, end.Reason = exitFailed, audit.StatusFailed, err.Error()
	}
	_, ended := record.Record(keep, runRecord(&end))
	closed, stored := record.Close(keep, wal.Sealed)
	if stored != nil {
		a.Say("the store does not have all of the suite's run yet; the next custody command carries it over: " + stored.Error())
	}
	return outcomes, record.ID, errors.Join(err, ended, closed)
}

func runRecord(l *audit.Lifecycle) audit.Event {
	return audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindRun, Lifecycle: l}
}

// worst is the suite's exit code: 0 when every probe was blocked and recorded,
// and every control worked.
func worst(outcomes []redteam.Outcome) int {
	for _, o := range outcomes {
		if !o.Holds() {
			return 1
		}
	}
	return 0
}

// judge tells the outcomes.
func (c redteamCmd) judge(a *app, outcomes []redteam.Outcome, run string) error {
	if c.JSON {
		if err := printJSON(a, outcomes); err != nil {
			return err
		}
	} else if err := table(a, outcomes); err != nil {
		return err
	}
	a.Say(fmt.Sprintf("run %s: custody timeline %s", run, run))
	if code := worst(outcomes); code != 0 {
		return exitCode(code)
	}
	return nil
}

func table(a *app, outcomes []redteam.Outcome) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROBE\tFAMILY\tBLOCKED\tRECORDED\tWHAT THE RECORD SAYS")
	var probes, held, controls, worked int
	for _, o := range outcomes {
		blocked := yes(o.Blocked)
		if o.Control {
			controls++
			worked += count(o.Holds())
			blocked = map[bool]string{true: "(works)", false: "DOES NOT WORK"}[!o.Blocked]
		} else {
			probes++
			held += count(o.Holds())
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", o.ID, o.Family, blocked, yes(o.Recorded), console.Clean(o.Detail[:min(len(o.Detail), 160)]))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.stdout, "\n%d of %d probes blocked and recorded, %d of %d controls work\n", held, probes, worked, controls)
	return err
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "NO"
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
