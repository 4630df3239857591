package qemu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	kvmPath = "/dev/kvm"
	// Linux, Documentation/virt/kvm/api.rst, 4.1.
	kvmGetAPIVersion = 0xae00
	kvmAPIVersion    = 12
	// kvmPatience bounds an answer of the device. Whether it boots a guest only a probe tells.
	kvmPatience = 5 * time.Second
)

var errKVMHangs = fmt.Errorf("%s does not answer within %v", kvmPath, kvmPatience)

// openKVM opens the host's KVM, if it reports that it is one. A device that hangs costs a
// goroutine, which ends with the call into the kernel.
func openKVM() (*os.File, error) {
	type result struct {
		f   *os.File
		err error
	}
	opened := make(chan result, 1)
	go func() {
		f, err := askKVM(kvmPath)
		opened <- result{f, err}
	}()
	select {
	case r := <-opened:
		return r.f, r.err
	case <-time.After(kvmPatience):
		go func() { // who comes too late is turned away
			if r := <-opened; r.f != nil {
				r.f.Close()
			}
		}()
		return nil, errKVMHangs
	}
}

func askKVM(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	version, err := unix.IoctlRetInt(int(f.Fd()), kvmGetAPIVersion)
	if err == nil && version != kvmAPIVersion {
		err = fmt.Errorf("its API has the version %d, expected %d", version, kvmAPIVersion)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s is no usable KVM: %w", path, err), f.Close())
	}
	return f, nil
}

// Fingerprint changes with QEMU's program, the machine we make of it and,
// under KVM, the host's processor: a snapshot made before such a change is not
// restored after it.
func (d *Driver) Fingerprint() string {
	info, err := os.Stat(d.binary)
	if err != nil {
		return "gone"
	}
	id := fmt.Sprintf("%s %d %d %s %s %s", filepath.Base(d.binary), info.Size(), info.ModTime().UnixNano(), machineType(), card(), d.kernelWords())
	if d.kvm {
		id += " " + processor()
	}
	return id
}

func processor() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.Trim(name, "\t :\n")
		}
	}
	return ""
}
