package service

import "github.com/custody-project/custody/run"

// Meter counts what a Server does. Its methods are safe for concurrent use.
type Meter interface {
	Connect() (closed func()) // a connection is open until closed is called
	Run(result string)        // one of Results
	Refuse(reason string)     // one of Reasons
}

// How a run that was asked for has ended.
const (
	succeeded = "succeeded" // exit code 0
	failed    = "failed"    // another exit code
	broken    = "error"     // with an error of Custody, or a limit
	notBegun  = "not_begun" // an error before its start
)

// Results are the values with which Meter.Run is called.
func Results() []string { return []string{succeeded, failed, broken, notBegun} }

// Why something was refused.
const (
	tooManyClients = "too_many_connections"
	tooManyRuns    = "too_many_runs"
	badRequest     = "request"  // it is not valid
	violation      = "protocol" // the connection was ended
	silent         = "no_call"  // the connection was ended
)

// Reasons are the values with which Meter.Refuse is called.
func Reasons() []string { return []string{tooManyClients, tooManyRuns, badRequest, violation, silent} }

// resultOf returns one of Results.
func resultOf(r run.Result, err error) string {
	switch {
	case err != nil:
		return notBegun
	case r.Err != nil:
		return broken
	case r.ExitCode != 0:
		return failed
	}
	return succeeded
}

// unmetered counts nothing.
type unmetered struct{}

func (unmetered) Connect() func() { return func() {} }
func (unmetered) Run(string)      {}
func (unmetered) Refuse(string)   {}
