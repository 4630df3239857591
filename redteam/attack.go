package redteam

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/redact"
)

// Attack runs the suite against this program, on a host that keeps a record of the suite itself.
type Attack struct {
	Host    *host.Host
	Only    string       // see Suite
	Tier    string       // see Suite
	Version string       // of this program
	Say     func(string) // is called with each line of progress
}

// failedExit is the exit code in the record of a suite that could not be completed.
const failedExit = 125

// Run returns the outcomes and the id of the suite's run.
func (a Attack) Run(ctx context.Context) (outcomes []Outcome, run string, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	record, start, err := a.begin(ctx)
	if err != nil {
		return nil, "", err
	}
	keep := context.WithoutCancel(ctx)
	record.Ship(keep)
	began := time.Now()
	if _, err = record.Record(ctx, lifecycle(start)); err == nil {
		outcomes, err = Suite{
			Custody: program, Env: append(os.Environ(), "CUSTODY_HOME="+a.Host.Dir), Own: record.ID, Recorder: record, Only: a.Only, Tier: a.Tier, Say: a.Say,
		}.Run(ctx)
	}
	end := audit.Lifecycle{Phase: audit.PhaseEnd, Status: audit.StatusDone, DurationNS: int64(time.Since(began)), ExitCode: new(int)}
	if *end.ExitCode = ExitCode(outcomes); err != nil {
		*end.ExitCode, end.Status, end.Reason = failedExit, audit.StatusFailed, err.Error()
	}
	_, ended := record.Record(keep, lifecycle(end))
	closed, stored := record.Close(keep, wal.Sealed)
	if stored != nil {
		a.Say("the store does not have the complete run of the suite yet; the next custody command transfers the rest: " + stored.Error())
	}
	return outcomes, record.ID, errors.Join(err, ended, closed)
}

// begin begins the record of the suite, and returns its first event.
func (a Attack) begin(ctx context.Context) (*host.Run, audit.Lifecycle, error) {
	tag, err := a.Host.TagKey()
	if err != nil {
		return nil, audit.Lifecycle{}, err
	}
	redactor := redact.New(tag)
	start := audit.Lifecycle{
		Phase: audit.PhaseStart, Project: "redteam", RulesetDigest: redactor.Digest(), Tier: "host", Mode: string(wal.Strict), Version: a.Version,
		TierNote: "the suite itself, outside of any sandbox; each probe's event names the attacked run",
	}
	start.Host, _ = os.Hostname()
	record, err := a.Host.Begin(ctx, host.RunOptions{
		ID: host.NewRunID(time.Now()), Mode: wal.Strict, Redactor: redactor,
		Facts: statement.Facts{RulesetDigest: start.RulesetDigest, Tier: start.Tier},
		OnStall: func(err error) {
			a.Say("the suite's record cannot be written (" + err.Error() + "): it waits until it can")
		}, OnResume: func() {},
	})
	return record, start, err
}

func lifecycle(l audit.Lifecycle) audit.Event {
	return audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindRun, Lifecycle: &l}
}

// ExitCode is 0 if every probe was blocked and recorded and every control worked, else 1.
func ExitCode(outcomes []Outcome) int {
	for _, o := range outcomes {
		if !o.Holds() {
			return 1
		}
	}
	return 0
}
