package hostd

import (
	"context"
	"os"

	"github.com/custody-project/custody/privsep"
)

// The calls of a client, which can have one sandbox over a connection, in the order of a run.
const (
	callOpen    = "open"
	callReopen  = "reopen" // in place of open, after the processes of a run died
	callBegin   = "begin"
	callPolicy  = "policy"
	callEnd     = "end"
	callSigned  = "signed"
	callRecover = "recover"
	callClose   = "close"

	callHome = "home" // returns the directory of the Server's home
)

// The calls of a Server.
const (
	callNotice   = "notice"
	callProgress = "progress"
	callStalled  = "stalled"
	callResumed  = "resumed"
)

type none struct{}

// handle returns the handler of a call without descriptors.
func handle[T any](do func(context.Context, T) (any, error)) privsep.Handler {
	return privsep.Handle(func(ctx context.Context, args T) (any, []*os.File, error) {
		result, err := do(ctx, args)
		return result, nil, err
	})
}

// closeAll closes files.
func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
