// Package vmm defines what Custody asks of a virtual machine monitor. A Driver
// starts machines, by a cold boot or from a memory snapshot; a VM is one of
// them while it lives. Implementations stand in folders below this one.
package vmm

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/custody-project/custody/audit"
)

// ErrDied means that a machine ended by itself.
var ErrDied = errors.New("the vm died")

// The isolation tiers that there are drivers for.
const (
	QEMUKVM = "qemu-kvm" // QEMU with hardware virtualization
	GVisor  = "gvisor"   // gVisor: a kernel in user space, without hardware virtualization
	QEMUTCG = "qemu-tcg" // QEMU with software emulation
)

// Tiers returns the names of all tiers, best first.
func Tiers() []string { return []string{QEMUKVM, GVisor, QEMUTCG} }

// Image is what a machine starts from. All files are opened by the caller, so
// that a driver's process needs no path of its own to any of them.
type Image struct {
	Kernel string   // path of the kernel; read when the machine is started
	Initrd string   // path of the initramfs
	Guest  string   // path of the custody-guest program, for drivers that need no Kernel and Initrd
	Root   *os.File // erofs userland, read-only
	// Memory backs the guest's RAM. A restore maps it privately (copy on write) and only ever
	// reads it; a boot that is to be snapshotted writes it.
	Memory *os.File
	// Disk is the scratch disk as the snapshot left it, mounted by the guest; a restored machine gets
	// a copy as its Scratch. Nil for a cold boot.
	Disk *os.File
	// State is the device state that Snapshot wrote. Nil means a cold boot.
	State *os.File
}

// Machine describes one VM.
type Machine struct {
	ID     string // for messages
	Image  Image
	CPUs   int
	Memory int64 // bytes
	// Scratch is the only disk the VM writes. The caller may have unlinked it already.
	Scratch *os.File
	// Tap is what the guest's network card leads to: a TAP queue opened with IFF_TAP, IFF_NO_PI
	// and IFF_VNET_HDR. It stays the caller's. Nil: the card is there all the same, so that a
	// snapshot fits, and its cable leads nowhere.
	Tap *os.File
	// Console receives the guest's serial console; nil discards it.
	Console *os.File
}

// Driver starts machines of one kind.
type Driver interface {
	// Name names the driver in the record: qemu, ...
	Name() string
	// Tier names the isolation that this driver gives on this host: qemu-kvm, qemu-tcg, ...
	Tier() string
	// Snapshots reports whether machines can be restored from a snapshot. If not, each is booted.
	Snapshots() bool
	// Start boots m, or restores it when m.Image.State is set. A restored machine is
	// frozen: nothing of the guest has run yet, and Thaw lets it.
	Start(ctx context.Context, m Machine) (VM, error)
}

// VM is one machine. Its methods may be called from several goroutines.
//
//	Start (restore)            Destroy
//	     |                        |
//	     v         Thaw           v
//	  frozen  <------------>  running ----> gone
//	     |        Freeze          ^           ^
//	     +------------------------+-----------+
//	      Start (boot) begins here     the process dies
type VM interface {
	// Channel is the byte stream to the guest's port named "custody".
	Channel() io.ReadWriteCloser
	// Freeze stops every virtual CPU; it returns when they have stopped.
	Freeze(ctx context.Context) error
	// Thaw lets them run.
	Thaw(ctx context.Context) error
	// Snapshot freezes the machine and writes its device state; Image.Memory then holds its RAM.
	Snapshot(ctx context.Context, state *os.File) error
	// Dump writes all of the machine's RAM to w as an ELF core file, whose program headers give the guest's
	// physical addresses. The machine stands still meanwhile and is then frozen or running, as it was.
	Dump(ctx context.Context, w io.Writer) error
	// Stalls reports each time the machine stopped by itself because its scratch disk could not
	// be written (the host's disk is full). Thaw makes it try again.
	Stalls() <-chan string
	// Done is closed when the machine is gone; Err then reports why, nil after Destroy.
	Done() <-chan struct{}
	Err() error
	// Destroy ends the machine immediately and returns when nothing of it is left.
	Destroy(ctx context.Context) error
}

// Observer is a VM whose driver observes from the host what runs in it. The guest then has no sensor.
type Observer interface {
	// Observe calls emit with each event until the machine has ended, in the order of occurrence; it is
	// called once. While emit does not return, the workload waits, and events can be lost, which is declared.
	Observe(ctx context.Context, emit func(context.Context, *audit.Event) error) error
	// BeginStep names the step that events from now on are of. What changed before it is not reported.
	BeginStep(ctx context.Context, name string) error
	// EndStep returns when emit has returned for everything that happened before the call.
	EndStep(ctx context.Context) error
}

// Close closes the files of the image.
func (i Image) Close() error {
	var errs []error
	for _, f := range []*os.File{i.Root, i.Memory, i.Disk, i.State} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
