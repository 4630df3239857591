package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Verdict is what a probe of hardware virtualisation found.
type Verdict struct {
	Kernel string `json:"kernel"`  // of the host, at the probe
	BootID string `json:"boot_id"` // of the host
	Works  bool   `json:"works"`
	Reason string `json:"reason,omitempty"` // why not
}

// ProbeTimeout is how long a guest may take to be ready under KVM.
const ProbeTimeout = 3 * time.Second

// KVM says whether this host boots guests under KVM. A device file proves
// nothing: boot is called to try it, once per host kernel and boot, and the
// answer is kept in the file cache.
func KVM(ctx context.Context, cache string, boot func(context.Context, *Driver) error) (Verdict, error) {
	now, err := thisHost()
	if err != nil {
		return Verdict{}, err
	}
	var v Verdict
	if b, err := os.ReadFile(cache); err == nil && json.Unmarshal(b, &v) == nil && v.Kernel == now.Kernel && v.BootID == now.BootID {
		return v, nil
	}
	v = now
	if err := tryKVM(ctx, boot); err != nil {
		v.Reason = err.Error()
	}
	v.Works = v.Reason == ""
	if ctx.Err() != nil {
		return v, ctx.Err()
	}
	b, err := json.Marshal(v)
	if err != nil {
		return v, err
	}
	return v, errors.Join(os.MkdirAll(filepath.Dir(cache), 0o700), os.WriteFile(cache, b, 0o600))
}

func tryKVM(ctx context.Context, boot func(context.Context, *Driver) error) error {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	f.Close()
	d, err := New(true)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ProbeTimeout)
	defer cancel()
	if err := boot(ctx, d); err != nil {
		return fmt.Errorf("no guest booted within %v: %w", ProbeTimeout, err)
	}
	return nil
}

func thisHost() (Verdict, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Verdict{}, err
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Verdict{}, err
	}
	return Verdict{Kernel: unix.ByteSliceToString(u.Release[:]), BootID: strings.TrimSpace(string(id))}, nil
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
