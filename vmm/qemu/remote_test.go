package qemu_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/privsep/privseptest"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/qemu"
	"github.com/custody-project/custody/vmm/vmtest"
)

func TestMain(m *testing.M) { privseptest.Main(m, work) }

// work is the worker: it controls a machine that its parent starts.
func work() error {
	var c *privsep.Conn
	var vm vmm.VM
	var files []*os.File
	ctx := context.Background()
	none := struct{}{}
	var err error
	c, files, err = privsep.Enter(map[string]privsep.Handler{
		"start": privsep.Handle(func(context.Context, struct{}) (any, []*os.File, error) {
			started, err := qemu.NewRemote(c, false).Start(ctx, vmm.Machine{ID: "test", Memory: 512 << 20, Image: vmm.Image{State: files[0]}})
			if err == nil {
				vm = started
			}
			return none, nil, err
		}),
		"bash": privsep.Handle(func(_ context.Context, script string) (any, []*os.File, error) {
			out, err := bash(ctx, vm, script)
			return out, nil, err
		}),
		"save": privsep.Handle(func(context.Context, struct{}) (any, []*os.File, error) {
			state, err := saveFrozen(ctx, vm)
			return none, []*os.File{state}, err
		}),
		"err": privsep.Handle(func(context.Context, struct{}) (any, []*os.File, error) {
			<-vm.Done()
			return none, nil, vm.Err()
		}),
		"destroy": privsep.Handle(func(context.Context, struct{}) (any, []*os.File, error) { return none, nil, vm.Destroy(ctx) }),
	}, 1)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// bash wakes the guest, freezes and thaws it, and runs a script in it.
func bash(ctx context.Context, vm vmm.VM, script string) (string, error) {
	for _, step := range []func(context.Context) error{vm.Thaw, vm.Freeze, vm.Thaw} {
		if err := step(ctx); err != nil {
			return "", err
		}
	}
	guest, err := channel.Connect(ctx, vm.Channel(), vmtest.Wake(), nil)
	if err != nil {
		return "", err
	}
	if err := guest.Identify(ctx, vmtest.Identity(vmtest.Options{})); err != nil {
		return "", err
	}
	p, err := guest.Start(ctx, channel.Command{Step: "main", Argv: []string{"bash", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/workspace"})
	if err != nil {
		return "", err
	}
	p.Stdin.Close()
	go io.Copy(io.Discard, p.Stderr)
	out, err := io.ReadAll(p.Stdout)
	if err != nil {
		return "", err
	}
	_, err = p.Wait(ctx)
	return string(out), err
}

// saveFrozen freezes a machine and returns a file in memory with its device state.
func saveFrozen(ctx context.Context, vm vmm.VM) (*os.File, error) {
	if err := vm.Freeze(ctx); err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("state", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	state := os.NewFile(uintptr(fd), "state")
	return state, errors.Join(vm.(vmm.Saver).Save(ctx, state), vm.Thaw(ctx))
}

// newServer starts a worker and the server of its machine.
func newServer(t *testing.T) (privsep.Server, *privsep.Process) {
	t.Helper()
	d, err := qemu.New(false)
	if err != nil {
		t.Fatal(err)
	}
	m := vmtest.Describe(t, d, vmtest.Options{})
	s := d.NewServer(m)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	w := privseptest.Worker("vm")
	w.Files = []*os.File{m.Image.State}
	return s, privseptest.Start(t, w, s.Handlers())
}

// TestRemote: a process without privileges controls a machine and communicates with its guest.
func TestRemote(t *testing.T) {
	t.Parallel()
	_, worker := newServer(t)
	if _, err := worker.Call(t.Context(), "start", struct{}{}, nil); err != nil {
		t.Fatal(err)
	}
	var out string
	if _, err := worker.Call(t.Context(), "bash", "echo $((6*7)); cat /etc/hostname", &out); err != nil || !strings.HasPrefix(out, "42\n") {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := worker.Call(t.Context(), "start", struct{}{}, nil); err == nil || !strings.Contains(err.Error(), "was started or removed already") {
		t.Errorf("a second machine: %v", err)
	}
	files, err := worker.Call(t.Context(), "save", struct{}{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer files[0].Close()
	head := make([]byte, 4)
	if _, err := files[0].ReadAt(head, 0); err != nil || string(head) != "QEVM" {
		t.Errorf("a device state that begins with %q, %v", head, err)
	}
	if _, err := worker.Call(t.Context(), "destroy", struct{}{}, nil); err != nil {
		t.Error(err)
	}
}

// TestRemoteEnds: a machine ends with its server, and the worker gets the reason.
func TestRemoteEnds(t *testing.T) {
	t.Parallel()
	s, worker := newServer(t)
	if _, err := worker.Call(t.Context(), "start", struct{}{}, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := worker.Call(t.Context(), "err", struct{}{}, nil); err == nil || !strings.Contains(err.Error(), "qemu ended by itself: signal: killed") {
		t.Error(err)
	}
}
