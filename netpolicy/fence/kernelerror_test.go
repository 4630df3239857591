package fence

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/bootid"
)

// A program that the verifier rejects: one line has the kernel, the first kernel that accepts the program, and the
// reason. The complete log is kept, and the hint is about kernels, although the kernel's error is "permission denied".
func TestRejectedProgram(t *testing.T) {
	t.Parallel()
	_, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "bad", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Reg(asm.R0, asm.R7), asm.Return()},
	})
	err = refused(err)
	var k *KernelError
	if !errors.As(err, &k) || !errors.Is(err, unix.EACCES) {
		t.Fatalf("the kernel accepted it: %v", err)
	}
	for _, part := range []string{bootid.Kernel(), MinimumKernel + " or newer", "R7 !read_ok"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %q; the log:\n%s", part, err, k.Log)
		}
	}
	if strings.Contains(err.Error(), "\n") || len(err.Error()) > 400 {
		t.Errorf("the error is long: %q", err)
	}
	if !strings.Contains(k.Log, "R7 !read_ok") || !strings.Contains(k.Hint(), "Linux "+MinimumKernel) {
		t.Errorf("log %q, hint %q", k.Log, k.Hint())
	}
}

// A kernel that does not attach a program causes a KernelError too.
func TestRefusedAttachment(t *testing.T) {
	t.Parallel()
	host := testSpace(t)
	var f *Fence
	must(t, host.in(func() (err error) {
		f, err = New(context.Background(), Options{attach: func(int, bool, *ebpf.Program) error { return unix.EINVAL }})
		return err
	}))
	defer f.Close()
	_, err := f.Denials()
	var k *KernelError
	if !errors.As(err, &k) || k.Log != "" || !strings.Contains(err.Error(), "attach a packet program") {
		t.Errorf("the fence was installed: %v", err)
	}
}

// The hint for a kernel that is too old is about kernels, whatever its error.
func TestHintOfOldKernels(t *testing.T) {
	t.Parallel()
	for release, old := range map[string]bool{
		"5.10.0-32-amd64": true, "5.15.0": true, "6.0.12": true, "6.1.0-50-amd64": false, "6.12.107+deb13": false, "7.3.4": false, "10.0": false, "": false, "custom": false,
	} {
		k := &KernelError{Release: release, text: "refused", err: unix.EPERM}
		if got := strings.Contains(k.Hint(), "use a host with Linux "+MinimumKernel); got != old {
			t.Errorf("%q: %s", release, k.Hint())
		}
	}
}
