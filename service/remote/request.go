package remote

import (
	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/run/caller"
)

// Request is what a client asks for: the flags of `custody run`, and the project's file.
type Request struct {
	Source    caller.Source
	Command   audit.Texts
	Secrets   []string
	Env       audit.Texts // NAME=VALUE
	Template  string
	Isolation string
	Cold      bool
	Workdir   string // directories of the client; empty: none
	Out       string
	Quiet     bool // no messages about progress
	JSON      bool // records in place of output
}

// MaxRequest bounds a request in bytes.
const MaxRequest = 4 << 20
