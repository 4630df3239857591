package hostd

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/proof/sealer"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/project/registry"
	"github.com/custody-project/custody/state"
	"github.com/custody-project/custody/vmm/qemu"
	"github.com/custody-project/custody/vmm/template"
	"github.com/custody-project/custody/vmm/tier"
	"github.com/custody-project/custody/worker"
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

	callSave      = "save"
	callContinued = "continued"

	callStored  = "stored" // of a paused sandbox
	callDiscard = "discard"
	callExport  = "export"
	callImport  = "import"
	callAbout   = "about"

	callHome = "home" // returns the directory of the Server's home
)

// The calls of a Server.
const (
	callNotice   = "notice"
	callProgress = "progress"
	callStalled  = "stalled"
	callResumed  = "resumed"
	callAlive    = "alive"
)

// kinds are the errors that cross the connection as what they are.
var kinds = privsep.Kinds{
	"isolation": tier.ErrUnavailable, "template": template.ErrNotFound, "broken-template": template.ErrBroken, "qemu": qemu.ErrMissing,
	"project": registry.ErrUnknown, "full": unix.ENOSPC, "read-only": unix.EROFS, "live": sealer.ErrLive,
	"silent":     worker.ErrSilent,
	"not stored": state.ErrNotFound, "claimed": state.ErrClaimed, "expired": state.ErrExpired, "altered": state.ErrAltered, "no key": state.ErrNoKey, "budget": state.ErrBudget, "no archive": host.ErrNoArchive, "bound": state.ErrBound,
}

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
