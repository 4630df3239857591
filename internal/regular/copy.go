package regular

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// Copy copies r to a temporary file without a name, so that a kill leaves nothing, and returns a path that opens it until remove
// is called. ctx ends the copying between two reads.
func Copy(ctx context.Context, r io.Reader) (path string, remove func(), err error) {
	f, err := os.CreateTemp("", "custody-copy-")
	if err != nil {
		return "", nil, err
	}
	if err = os.Remove(f.Name()); err == nil {
		_, err = io.Copy(f, untilDone{ctx, r})
	}
	if err != nil {
		return "", nil, errors.Join(err, f.Close())
	}
	return fmt.Sprintf("/proc/self/fd/%d", f.Fd()), func() { f.Close() }, nil
}

// untilDone reads until ctx ends.
type untilDone struct {
	ctx context.Context
	io.Reader
}

// Read implements io.Reader.
func (u untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.Reader.Read(p)
}
