package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/vmm"
)

// stateSet is the descriptor set (add-fd) of the file that Save lets QEMU write to. The disks have sets 1 and 2.
const stateSet = 3

// Save implements vmm.Saver. A migration would write the RAM, too, which a restored machine has mapped privately. The command that
// writes only the devices was made for Xen, and works with every accelerator. It opens a regular file, which QEMU could change
// later; for that reason state gets a copy.
func (v *vm) Save(ctx context.Context, state *os.File) error {
	if v.state() == "running" {
		return errors.New("the machine runs: freeze it before its state is saved")
	}
	r, w, err := v.process.StateFile(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	fd := int(w.Fd())
	err = v.mon.run(ctx, "add-fd", map[string]any{"fdset-id": stateSet}, &fd)
	w.Close() // QEMU has its own copy
	if err != nil {
		return v.explain(err)
	}
	to := map[string]any{"filename": "/dev/fdset/" + strconv.Itoa(stateSet), "live": false}
	err = v.mon.run(ctx, "xen-save-devices-state", to, nil)
	err = errors.Join(err, v.mon.run(ctx, "remove-fd", map[string]any{"fdset-id": stateSet}, nil))
	if err != nil {
		return v.explain(err)
	}
	return copyState(state, r)
}

// copyState copies the device state that QEMU wrote to r.
func copyState(state, r *os.File) error {
	info, err := r.Stat()
	if err == nil && info.Size() > maxState {
		err = fmt.Errorf("qemu wrote a device state of %d bytes, which is more than %d", info.Size(), maxState)
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(state, io.NewSectionReader(r, 0, info.Size()))
	return err
}

// StateFile implements qemuProcess.
func (s *spawned) StateFile(context.Context) (r, w *os.File, err error) {
	fd, err := unix.MemfdCreate("state", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, os.NewSyscallError("memfd_create", err)
	}
	r = os.NewFile(uintptr(fd), "state")
	if w, err = os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_WRONLY, 0); err != nil {
		return nil, nil, errors.Join(err, r.Close())
	}
	return r, w, nil
}

// The header of a device state: QEMU's magic, a version, and, in one that a migration wrote, a section that describes the machine.
const (
	stateMagic         = "QEVM\x00\x00\x00\x03"
	stateConfiguration = 7
)

// isSaved reports whether Save wrote the state, whose format differs a little from that of a migration. A machine without a
// state is booted.
func isSaved(state *os.File) (bool, error) {
	if state == nil {
		return false, nil
	}
	head := make([]byte, len(stateMagic)+1)
	if _, err := state.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("device state: %w", err)
	}
	if string(head[:len(stateMagic)]) != stateMagic {
		return false, errors.New("the file of the device state contains none that QEMU wrote")
	}
	return head[len(stateMagic)] != stateConfiguration, nil
}

// writesMemory reports whether the machine writes to its memory file.
func writesMemory(i vmm.Image) bool { return i.State == nil || i.Own }

// checkMemory checks the memory file of a machine that is restored. If other machines start from it, too, QEMU must not get a
// descriptor with which it could change it.
func checkMemory(m vmm.Machine) error {
	if m.Image.State == nil {
		return nil
	}
	flags, err := unix.FcntlInt(m.Image.Memory.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return fmt.Errorf("memory file: %w", err)
	}
	info, err := m.Image.Memory.Stat()
	if err != nil {
		return fmt.Errorf("memory file: %w", err)
	}
	mode := flags & unix.O_ACCMODE
	switch {
	case info.Size() != m.Memory:
		return fmt.Errorf("the memory file has %d bytes in place of the machine's %d", info.Size(), m.Memory)
	case m.Image.Own && mode != unix.O_RDWR:
		return errors.New("the memory file of a machine that owns it must be open for reading and writing")
	case !m.Image.Own && mode != unix.O_RDONLY:
		return errors.New("the memory file of a machine that does not own it must be open for reading only")
	}
	return nil
}
