package service

import (
	"context"
	"errors"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/service/remote"
	"github.com/custody-project/custody/workspace/transfer"
)

// remoteFiles are files that the client reads and writes.
type remoteFiles struct {
	*transfer.Relay
	size channel.Size
}

// Size implements run.Files.
func (f *remoteFiles) Size() channel.Size { return f.size }

// openFiles makes the client open the files of its run. Its process has only the rights of its user.
func (u *caller) openFiles(_ context.Context, s run.FileSpec) (run.Files, error) {
	spec, err := privsep.Memory("files", s)
	if err != nil {
		return nil, err
	}
	defer spec.Close()
	var m remote.Measured
	if err := u.call(remote.CallFiles, remote.None{}, &m, spec); err != nil {
		return nil, err
	}
	if f := m.Failed; f != nil {
		return nil, remote.NewFailure(f.Text, f.Advice)
	}
	if z := m.Size; z.Files < 0 || z.Folders < 0 || z.Bytes < 0 || z.Room < 0 {
		return nil, errors.New("the client reports a negative size")
	}
	return &remoteFiles{transfer.NewRelay(u.conn), m.Size}, nil
}
