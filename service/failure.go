package service

import (
	"github.com/custody-project/custody/doctor/remedy"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/service/remote"
)

// failureOf returns the Failure of an error, nil for nil.
func failureOf(err error) *remote.Failure {
	if err == nil {
		return nil
	}
	return remote.NewFailure(remedy.Text(err), remedy.Of(err))
}

// outcomeOf returns the Outcome of a result of run.Job.
func outcomeOf(r run.Result, err error) remote.Outcome {
	return remote.Outcome{ID: r.ID, Tier: r.Tier, ExitCode: r.ExitCode, Err: failureOf(r.Err), Late: failureOf(r.Late), Unbegun: failureOf(err)}
}
