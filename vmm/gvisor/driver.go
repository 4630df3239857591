// Package gvisor drives gVisor's runsc, for hosts without hardware
// virtualization: the sandbox is a container whose system calls the sentry, a
// kernel written in Go, answers in a confined process.
//
//	custody ── channel (socket) ─────────────── custody-guest, PID 1
//	   |                                          |
//	   |                                        cells of the steps
//	   |                                   ═══════╪═══════ system calls
//	   ├── trace sink (socket) ◄──────────── the sentry
//	   └── TAP of the fence ── relay ── TAP ── AF_PACKET
//
// The container's file system is an overlay of the template's root and the
// scratch disk, both mounted on the host in a mount namespace of their own, so
// that the host sees which files a step changed. There is no guest kernel, no
// memory snapshot and no memory image.
package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/custody-project/custody/vmm"
)

// Paths at which New looks for runsc.
var usual = []string{"/usr/bin/runsc", "/usr/local/bin/runsc"}

// ErrMissing is returned by New where runsc is not installed.
var ErrMissing = errors.New("runsc (gVisor) is not installed")

// Driver starts containers with runsc. It is safe for concurrent use.
type Driver struct{ binary string }

// New finds runsc: at the given path, or where distributions install it if path is empty.
func New(path string) (*Driver, error) {
	candidates := usual
	if path != "" {
		candidates = []string{path}
	}
	for _, c := range candidates {
		if info, err := os.Stat(c); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return &Driver{binary: c}, nil
		}
	}
	return nil, fmt.Errorf("%w: no program at %s", ErrMissing, strings.Join(candidates, ", "))
}

// Name implements vmm.Driver.
func (d *Driver) Name() string { return "gvisor" }

// Tier implements vmm.Driver.
func (d *Driver) Tier() string { return vmm.GVisor }

// Snapshots implements vmm.Driver: every container starts from the beginning.
func (d *Driver) Snapshots() bool { return false }

// Fingerprint changes with the runsc program.
func (d *Driver) Fingerprint() string {
	info, err := os.Stat(d.binary)
	if err != nil {
		return d.binary
	}
	return fmt.Sprintf("%s %d %d %s", d.binary, info.Size(), info.ModTime().UnixNano(), runtime.GOARCH)
}

// Start implements vmm.Driver.
func (d *Driver) Start(ctx context.Context, m vmm.Machine) (vmm.VM, error) {
	c, ends, err := d.spawn(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", m.ID, err)
	}
	return connect(ctx, c, ends, m.ID)
}
