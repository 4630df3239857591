package hostd

import (
	"context"
	"fmt"
	"os"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/privsep"
)

// The calls of a service that takes over the log of the time before it, see host.Handover.
const (
	callFiles = "handover-files" // with a file that has their names
	callFile  = "handover-file"
	callTaken = "handover-done"
)

// maxNames bounds the names of the files of a host in bytes.
const maxNames = 256 << 20

// handover returns the calls of a service.
func handover(v host.Handover) map[string]privsep.Handler {
	return map[string]privsep.Handler{
		callFiles: privsep.Handle(func(context.Context, none) (any, []*os.File, error) {
			names, err := v.Files()
			if err != nil {
				return nil, nil, err
			}
			f, err := privsep.Memory("files", names)
			return none{}, []*os.File{f}, err
		}),
		callFile: privsep.Handle(func(_ context.Context, name string) (any, []*os.File, error) {
			f, err := v.Open(name)
			if err != nil {
				return nil, nil, err
			}
			return none{}, []*os.File{f}, nil
		}),
		callTaken: handle(func(context.Context, none) (any, error) { return none{}, v.Done() }),
	}
}

// former is the Handover of the Server.
type former struct{ server signatures }

var _ host.Former = former{}

// Files implements host.Former.
func (f former) Files(ctx context.Context) (names []string, err error) {
	file, err := f.file(ctx, callFiles, none{})
	if err != nil {
		return nil, err
	}
	return names, privsep.FromMemoryUpTo(maxNames, file, &names)
}

// Open implements host.Former.
func (f former) Open(ctx context.Context, name string) (*os.File, error) {
	return f.file(ctx, callFile, name)
}

// Done implements host.Former.
func (f former) Done(ctx context.Context) error {
	_, err := f.server.Call(ctx, callTaken, none{}, nil)
	return err
}

// file makes a call that returns one file.
func (f former) file(ctx context.Context, call string, args any) (*os.File, error) {
	files, err := f.server.Call(ctx, call, args, nil)
	if err == nil && len(files) != 1 {
		closeAll(files)
		err = fmt.Errorf("%s: %d files in place of one", call, len(files))
	}
	if err != nil {
		return nil, err
	}
	return files[0], nil
}
