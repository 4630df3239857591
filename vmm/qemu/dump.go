package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// dumpOverhead bounds what a core file contains beside the RAM: headers, notes, and other
// memory of the machine, such as its firmware.
const dumpOverhead = 64 << 20

// Dump implements vmm.VM. QEMU writes to a pipe instead of a file, so that Custody can limit the size
// of what it writes.
func (v *vm) Dump(ctx context.Context, w io.Writer) error {
	r, pipe, err := os.Pipe()
	if err != nil {
		return err
	}
	copied := make(chan error, 1)
	go func() {
		defer r.Close() // makes further writes of QEMU fail
		n, err := io.Copy(w, io.LimitReader(r, v.memory+dumpOverhead))
		if err == nil && n == v.memory+dumpOverhead {
			err = fmt.Errorf("qemu wrote more than the machine's %d bytes", v.memory)
		}
		copied <- err
	}()
	defer context.AfterFunc(ctx, func() { r.Close() })()
	fd := int(pipe.Fd())
	err = v.mon.run(ctx, "getfd", map[string]string{"fdname": "dump"}, &fd)
	pipe.Close() // QEMU has its own copy
	if err == nil {
		err = v.mon.run(ctx, "dump-guest-memory", map[string]any{"paging": false, "protocol": "fd:dump"}, nil)
	}
	if err != nil {
		r.Close() // ends the copying goroutine
		if why := <-copied; why != nil && !errors.Is(why, os.ErrClosed) {
			err = why
		}
		return v.explain(err)
	}
	return <-copied
}
