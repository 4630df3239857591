package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// dumpHeads is more than a core file has beside the RAM: headers, notes, and what
// else of the machine has an address, as its firmware.
const dumpHeads = 64 << 20

// Dump implements vmm.VM. QEMU gets the end of a pipe, no file: what it writes
// passes through us, and no more of it than a machine's RAM can be.
func (v *vm) Dump(ctx context.Context, w io.Writer) error {
	r, pipe, err := os.Pipe()
	if err != nil {
		return err
	}
	copied := make(chan error, 1)
	go func() {
		defer r.Close() // ends a QEMU that writes on
		n, err := io.Copy(w, io.LimitReader(r, v.memory+dumpHeads))
		if err == nil && n == v.memory+dumpHeads {
			err = fmt.Errorf("qemu wrote more than the machine's %d bytes", v.memory)
		}
		copied <- err
	}()
	defer context.AfterFunc(ctx, func() { r.Close() })()
	fd := int(pipe.Fd())
	err = v.mon.run(ctx, "getfd", map[string]string{"fdname": "dump"}, &fd)
	pipe.Close() // QEMU's copy is the last
	if err == nil {
		err = v.mon.run(ctx, "dump-guest-memory", map[string]any{"paging": false, "protocol": "fd:dump"}, nil)
	}
	if err != nil {
		r.Close() // what QEMU does with its copy is of no more interest
		if why := <-copied; why != nil && !errors.Is(why, os.ErrClosed) {
			err = why
		}
		return v.explain(err)
	}
	return <-copied
}
