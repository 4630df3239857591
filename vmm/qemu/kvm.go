package qemu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/custody-project/custody/vmm/confine"
	"golang.org/x/sys/unix"
)

const (
	kvmPath = "/dev/kvm"
	// Linux, Documentation/virt/kvm/api.rst, 4.1.
	kvmGetAPIVersion = 0xae00
	kvmAPIVersion    = 12
	// kvmTimeout bounds the wait for the device. Only a probe shows whether it can boot a guest.
	kvmTimeout = 5 * time.Second
)

var errKVMHangs = fmt.Errorf("%s does not answer within %v", kvmPath, kvmTimeout)

// openKVM opens the host's KVM device and checks its API version. If the device hangs, a goroutine
// stays until the system call returns.
func openKVM() (*os.File, error) {
	type result struct {
		f   *os.File
		err error
	}
	opened := make(chan result, 1)
	go func() {
		f, err := openKVMPath(kvmPath)
		opened <- result{f, err}
	}()
	select {
	case r := <-opened:
		return r.f, r.err
	case <-time.After(kvmTimeout):
		go func() { // closes a device that was opened too late
			if r := <-opened; r.f != nil {
				r.f.Close()
			}
		}()
		return nil, errKVMHangs
	}
}

func openKVMPath(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	version, err := unix.IoctlRetInt(int(f.Fd()), kvmGetAPIVersion)
	if err == nil && version != kvmAPIVersion {
		err = fmt.Errorf("its API version is %d, expected %d", version, kvmAPIVersion)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s is not a usable KVM device: %w", path, err), f.Close())
	}
	return f, nil
}

// Fingerprint identifies QEMU's program, the machine's configuration and, with KVM, the host's
// processor. A snapshot is restored only with the fingerprint that it was made with.
func (d *Driver) Fingerprint() string {
	info, err := os.Stat(d.binary)
	if err != nil {
		return "gone"
	}
	id := fmt.Sprintf("%s %d %d %s %s %s", filepath.Base(d.binary), info.Size(), info.ModTime().UnixNano(), machineType(), nicArg(), d.kernelOptions())
	if d.kvm {
		id += " " + confine.Processor()
	}
	return id
}
