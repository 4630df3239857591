package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/privsep"
)

// Sandbox is the privileged side of a run's sandbox (package hostd).
type Sandbox interface {
	// Begin gives the sandbox and its worker to a run. It is called once.
	Begin(ctx context.Context, r Identity, files []*os.File) error
	// End ends the worker and what it controls. It returns an error if the worker violated the protocol, and ErrSilent if it did not answer.
	End() error
	// Recover starts a worker that can only have the run's record signed. The first one must have ended.
	Recover(ctx context.Context, files []*os.File) error
	// SetPolicy replaces the policy that bounds the worker's network.
	SetPolicy(ctx context.Context, rules []string) error
	// Causes returns errors with which calls of the worker failed, the latest first.
	Causes() []error
	// Close ends the sandbox and removes what it used. It may be called repeatedly.
	Close() error
	// Save stores the state of a suspended session's machine as that of the run, which is kept for that time; 0: state.DefaultKeep. The
	// session then ends as paused, or, after an error, continues. about is JSON of at most MaxAbout bytes that is stored with it; nil: nothing.
	Save(ctx context.Context, keep time.Duration, about []byte) (Saved, error)
	// Continued removes the stored state that the sandbox was made from. It is called when its processes run.
	Continued(ctx context.Context) error
	// Signed returns the manifest of the record that was signed last, nil before the first.
	Signed(ctx context.Context) ([]byte, error)
}

// Saved describes a stored state.
type Saved struct {
	Size             int64 // bytes
	Created, Expires time.Time
	// Files is why the state has only the files of the sandbox, and its processes end; empty: they continue.
	Files string
}

// MaxAbout bounds the description of a sandbox that is stored with its state, in bytes.
const MaxAbout = privsep.MaxMemory

// Identity describes a run to the privileged process.
type Identity struct {
	Run   string
	Facts statement.Facts // of its manifests
	Rules []string        // its policy, in normal form
	// Resolvers are its DNS servers, see upstream.ParseServer.
	Resolvers []string
	// Silence is how long its worker may give no sign of life; 0: DefaultSilence.
	Silence time.Duration
}

// ErrSilent means that a worker gave no sign of life, and that it was killed for that.
var ErrSilent = errors.New("the worker of the sandbox gave no sign of life")

// DefaultSilence is how long a worker without a run may give no sign of life.
const DefaultSilence = 30 * time.Second

// Memory limits a worker's memory in bytes, in addition to what control groups of VMs allow their monitors.
const Memory = 256 << 20

// callAssign gives a worker to a run.
const callAssign = "assign"

// The files of an assignment.
const (
	fileOwner    = iota // the connection to the owner of the run
	fileOrder           // what to do, see order
	fileStdin           // of the steps
	fileStdout          // of the steps
	fileStderr          // of the steps
	fileMessages        // receives what the worker's program prints itself
	OwnerFiles          // the number of files of the owner of the run

	fileState = OwnerFiles // of the machine, only if it is restored
)

// Assign gives the worker at the other end of a connection to a run: files are those that Begin and Recover get, and the state of the
// machine if there is one.
func Assign(ctx context.Context, c *privsep.Conn, files []*os.File) error {
	if len(files) < OwnerFiles {
		return fmt.Errorf("%d files in place of %d", len(files), OwnerFiles)
	}
	_, err := c.Call(ctx, callAssign, none{}, nil, files...)
	return err
}

// callAlive returns when the worker has answered.
const callAlive = "alive"

// Alive asks the worker at the other end of a connection for a sign of life.
func Alive(ctx context.Context, c *privsep.Conn) error {
	_, err := c.Call(ctx, callAlive, none{}, nil)
	return err
}

// alive answers.
func alive(context.Context, none) (any, []*os.File, error) { return none{}, nil, nil }

// assigned is what a worker gets from Assign.
type assigned chan []*os.File

// handlers returns the call of Assign.
func (a assigned) handlers() map[string]privsep.Handler {
	return map[string]privsep.Handler{callAssign: func(_ context.Context, _ []byte, files []*os.File) (any, []*os.File, error) {
		if len(files) != OwnerFiles && len(files) != fileState+1 {
			return nil, nil, fmt.Errorf("an assignment with %d files", len(files))
		}
		select {
		case a <- files:
			return none{}, nil, nil
		default:
			return nil, nil, errors.New("the worker has a run")
		}
	}}
}
