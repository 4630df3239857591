// Package firecracker runs VMs with Firecracker. The user provides both of its programs, firecracker and jailer; it
// needs hardware virtualization.
//
//	custody ── API (unix socket) ─────────────┐
//	   |                                  firecracker ── /dev/kvm
//	   ├── channel (unix socket, CONNECT) ────┤  its own uid, root directory, pid and mount namespaces
//	   |                                      |
//	   └── fence's network namespace ─── TAP ─┘
//
// The root directory of a Firecracker process is on a tmpfs in a mount namespace of the machine: no other process of
// the host sees its sockets, and the kernel removes everything with the last process. Files of the machine are mounted
// there, each read-only unless the machine writes to it. The first process of the pid namespace is a shell that ends
// with Custody, and the kernel ends Firecracker with it.
package firecracker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/confine"
)

// Paths are those of the programs that the user provides.
type Paths struct {
	Firecracker string
	Jailer      string
}

// Driver starts machines with Firecracker. Its methods may be called concurrently.
type Driver struct {
	paths   Paths
	version version
}

// New checks the programs' versions and that the host has a KVM device. It does not check that KVM can boot a guest.
func New(ctx context.Context, p Paths) (*Driver, error) {
	if runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("firecracker is supported on amd64 only, this host is %s", runtime.GOARCH)
	}
	vmmVersion, err := programVersion(ctx, "isolation.firecracker", p.Firecracker, "Firecracker")
	if err != nil {
		return nil, err
	}
	jailerVersion, err := programVersion(ctx, "isolation.jailer", p.Jailer, "Jailer")
	if err != nil {
		return nil, err
	}
	if vmmVersion.text != jailerVersion.text {
		return nil, fmt.Errorf("firecracker is version %s and jailer is version %s: take both from one release", vmmVersion.text, jailerVersion.text)
	}
	if vmmVersion.less(oldest) || !vmmVersion.less(newest) {
		return nil, fmt.Errorf("%s is version %s: Custody supports versions from %s to below %s", p.Firecracker, vmmVersion.text, oldest.text, newest.text)
	}
	if err := checkKVM(); err != nil {
		return nil, err
	}
	return &Driver{paths: p, version: vmmVersion}, nil
}

// checkKVM returns an error if the host has no KVM device.
func checkKVM() error {
	info, err := os.Stat("/dev/kvm")
	if err != nil {
		return fmt.Errorf("firecracker needs hardware virtualization: %w", err)
	}
	if info.Mode()&os.ModeCharDevice == 0 {
		return errors.New("firecracker needs hardware virtualization: /dev/kvm is not a device")
	}
	return nil
}

// version is a version of Firecracker.
type version struct {
	major, minor int
	text         string
}

var (
	oldest   = version{1, 8, "1.8"} // the first that describes its devices with ACPI
	newest   = version{2, 0, "2.0"}
	unpacked = version{1, 17, "1.17"} // the first that boots a compressed kernel
)

func (v version) less(w version) bool {
	return v.major < w.major || v.major == w.major && v.minor < w.minor
}

// maxVersionLine bounds the output of a program that is asked for its version.
const maxVersionLine = 4096

// versionTimeout bounds the time in which a program prints its version.
const versionTimeout = 10 * time.Second

var versionLine = regexp.MustCompile(`^([A-Z][a-z]+) v(([0-9]{1,4})\.([0-9]{1,4})\.[0-9A-Za-z.+-]{1,40})$`)

// programVersion runs a program with --version. setting is the program's setting in host.yaml.
func programVersion(ctx context.Context, setting, path, name string) (version, error) {
	if path == "" {
		return version{}, fmt.Errorf("%s is not set in host.yaml: firecracker and jailer are needed", setting)
	}
	info, err := os.Stat(path)
	if err != nil {
		return version{}, fmt.Errorf("%s: %w", setting, err)
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return version{}, fmt.Errorf("%s: %s is not a program", setting, path)
	}
	within, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(within, path, "--version")
	cmd.Env, cmd.Dir, cmd.WaitDelay = []string{}, "/", time.Second
	out := &head{left: maxVersionLine}
	cmd.Stdout = out
	if err := cmd.Run(); err != nil {
		if within.Err() != nil && ctx.Err() == nil {
			return version{}, fmt.Errorf("%s: %s --version did not end within %v", setting, path, versionTimeout)
		}
		return version{}, fmt.Errorf("%s: %s --version: %w", setting, path, err)
	}
	first, _, _ := strings.Cut(string(out.kept), "\n")
	v, err := parseVersion(first, name)
	if err != nil {
		return version{}, fmt.Errorf("%s: %s --version: %w", setting, path, err)
	}
	return v, nil
}

// parseVersion parses the line "NAME vMAJOR.MINOR.PATCH".
func parseVersion(line, name string) (version, error) {
	m := versionLine.FindStringSubmatch(line)
	if m == nil || m[1] != name {
		return version{}, fmt.Errorf("it printed %.60q: this is not %s", line, strings.ToLower(name))
	}
	major, err1 := strconv.Atoi(m[3])
	minor, err2 := strconv.Atoi(m[4])
	return version{major, minor, m[2]}, errors.Join(err1, err2)
}

// head keeps the first bytes that are written to it.
type head struct {
	kept []byte
	left int
}

func (h *head) Write(b []byte) (int, error) {
	n := min(len(b), h.left)
	h.kept, h.left = append(h.kept, b[:n]...), h.left-n
	return len(b), nil
}

// Name implements vmm.Driver.
func (d *Driver) Name() string { return "firecracker" }

// Tier implements vmm.Driver.
func (d *Driver) Tier() string { return vmm.Firecracker }

// Snapshots implements vmm.Driver.
func (d *Driver) Snapshots() bool { return true }

// Fingerprint identifies both programs, the machine's configuration and the host's processor.
func (d *Driver) Fingerprint() string {
	id := d.version.text + " " + kernelOptions
	for _, path := range []string{d.paths.Firecracker, d.paths.Jailer} {
		info, err := os.Stat(path)
		if err != nil {
			return "gone"
		}
		id += fmt.Sprintf(" %d %d", info.Size(), info.ModTime().UnixNano())
	}
	return id + " " + confine.Processor()
}

// Start implements vmm.Driver.
func (d *Driver) Start(ctx context.Context, m vmm.Machine) (vmm.VM, error) {
	p, err := d.spawn(m)
	if err != nil {
		return nil, fmt.Errorf("vm %s: %w", m.ID, err)
	}
	var disk *os.File
	if m.Scratch != nil {
		if disk, err = pathOnly(m.Scratch); err != nil {
			return nil, fmt.Errorf("vm %s: %w", m.ID, errors.Join(err, p.Remove()))
		}
	}
	return connect(ctx, p, shapeOf(m), disk, m.ID)
}
