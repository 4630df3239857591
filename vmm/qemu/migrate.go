package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Snapshot implements vmm.VM.
func (v *vm) Snapshot(ctx context.Context, state *os.File) error {
	if err := v.Freeze(ctx); err != nil {
		return err
	}
	if err := v.ignoreShared(ctx); err != nil {
		return err
	}
	ours, theirs, err := pipeOf(false)
	if err != nil {
		return err
	}
	return v.explain(v.migrate(ctx, "migrate", ours, theirs, func() error {
		_, err := io.Copy(state, ours)
		return err
	}))
}

// ignoreShared makes a migration skip the guest's RAM, which is in a file already.
func (v *vm) ignoreShared(ctx context.Context) error {
	on := map[string]any{"capabilities": []any{map[string]any{"capability": "x-ignore-shared", "state": true}}}
	return v.mon.run(ctx, "migrate-set-capabilities", on, nil)
}

// sendFile passes a file to QEMU under the name "state".
func (v *vm) sendFile(ctx context.Context, f *os.File) error {
	fd := int(f.Fd())
	return v.mon.run(ctx, "getfd", map[string]string{"fdname": "state"}, &fd)
}

// restore loads the device state and leaves the machine frozen.
func (v *vm) restore(ctx context.Context, state *os.File) error {
	if err := v.ignoreShared(ctx); err != nil {
		return err
	}
	ours, theirs, err := pipeOf(true)
	if err != nil {
		return err
	}
	return v.migrate(ctx, "migrate-incoming", ours, theirs, func() error {
		_, err := io.Copy(ours, io.NewSectionReader(state, 0, maxState)) // other machines may read the same open file
		return errors.Join(err, ours.Close())                            // the end of the state
	})
}

// pipeOf returns the ends of a pipe for the device state; ours is the writing end if weWrite is set. A pipe is
// needed because QEMU 11 and later do not migrate to or from a file descriptor of a regular file.
func pipeOf(weWrite bool) (ours, theirs *os.File, err error) {
	r, w, err := os.Pipe()
	if weWrite {
		r, w = w, r
	}
	return r, w, err
}

// migrate makes QEMU write or read its device state through theirs, while transfer reads or writes ours. Both ends
// are closed on return.
func (v *vm) migrate(ctx context.Context, command string, ours, theirs *os.File, transfer func() error) error {
	err := v.sendFile(ctx, theirs)
	theirs.Close()
	if err != nil {
		ours.Close()
		return err
	}
	transferred := make(chan error, 1)
	go func() { transferred <- transfer() }()
	err = v.mon.run(ctx, command, map[string]string{"uri": "fd:state"}, nil)
	if err == nil {
		err = v.migrated(ctx)
	}
	if err != nil {
		ours.Close() // ends transfer
		<-transferred
		return err
	}
	select {
	case err = <-transferred:
	case <-ctx.Done():
		err = ctx.Err()
		ours.Close()
		<-transferred
	}
	ours.Close()
	return err
}

// migrated waits for the end of a migration in either direction.
func (v *vm) migrated(ctx context.Context) error {
	for {
		raw, err := v.mon.query(ctx, "query-migrate", nil, nil)
		if err != nil {
			return err
		}
		var status struct {
			Status string `json:"status"`
			Error  string `json:"error-desc"`
		}
		if err := json.Unmarshal(raw, &status); err != nil {
			return fmt.Errorf("qmp query-migrate: %w", err)
		}
		switch status.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			return fmt.Errorf("device state: migration %s: %s", status.Status, status.Error)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
