// Package vmm defines the interface to virtual machine monitors. A Driver
// starts machines, by a cold boot or from a memory snapshot; a VM is a
// started machine. The implementations are in subdirectories.
package vmm

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/custody-project/custody/audit"
)

// ErrDied means that a machine ended although Destroy was not called.
var ErrDied = errors.New("the vm died")

// The isolation tiers, one for each driver and mode.
const (
	Firecracker = "firecracker" // Firecracker with hardware virtualization
	QEMUKVM     = "qemu-kvm"    // QEMU with hardware virtualization
	GVisor      = "gvisor"      // gVisor: a kernel in user space, without hardware virtualization
	QEMUTCG     = "qemu-tcg"    // QEMU with software emulation
)

// Tiers returns the names of all tiers, best first.
func Tiers() []string { return []string{Firecracker, QEMUKVM, GVisor, QEMUTCG} }

// Image contains the files that a machine starts from. The caller opens them, so
// that a driver's process needs access to none of their paths.
type Image struct {
	Kernel string   // path of the kernel; read at the start of the machine
	Initrd string   // path of the initramfs
	Guest  string   // path of the custody-guest program, for drivers that need no Kernel and Initrd
	Root   *os.File // erofs userland, read-only
	// Memory backs the guest's RAM. A restored machine maps it privately (copy on write) and does not
	// change it, unless Own is set. A booted machine writes to it, so that Snapshot can be called.
	Memory *os.File
	// Own means that a restored machine is the only user of Memory and writes to it, so that its RAM needs no second
	// copy. Memory must then be open for reading and writing, otherwise for reading only.
	Own bool
	// Disk is the scratch disk at the time of the snapshot, when the guest had it mounted. A restored machine
	// needs a copy of it as Machine.Scratch. Nil for a cold boot.
	Disk *os.File
	// State is the device state that Snapshot or Save wrote. Nil means a cold boot.
	State *os.File
}

// Machine describes one VM.
type Machine struct {
	ID     string // used in messages only
	Image  Image
	CPUs   int
	Memory int64 // bytes
	// Scratch is the only disk that the VM can write to. It may be an unlinked file.
	Scratch *os.File
	// Tap is what the guest's network interface is connected to: a TAP queue opened with IFF_TAP, IFF_NO_PI
	// and IFF_VNET_HDR. The caller closes it; a driver that opens the device by its name closes it earlier, which
	// keeps the device, since it is persistent. If it is nil, the guest has an unconnected interface, because a
	// snapshot can be restored only into a machine with the same devices.
	Tap *os.File
	// HashOver bounds that of Observed, if the machine is an Observer.
	HashOver int64
	// DiskRate limits the bytes per second that are read from and written to each disk together; 0: no limit.
	DiskRate int64
	// NetworkRate limits the bytes per second in each direction of the network interface; 0: no limit. The TAP has
	// this limit, too: a driver that can delay packets avoids that they are dropped there.
	NetworkRate int64
	// Console receives the guest's serial console; nil discards it.
	Console *os.File
}

// Driver starts machines of one kind.
type Driver interface {
	// Name is the driver's name in the record: qemu, ...
	Name() string
	// Tier is the isolation tier that the driver provides: qemu-kvm, qemu-tcg, ...
	Tier() string
	// Snapshots reports whether machines can be restored from a snapshot. If not, each is booted.
	Snapshots() bool
	// Start boots m, or restores it if m.Image.State is set. A restored machine is
	// frozen: the guest does not run until Thaw.
	Start(ctx context.Context, m Machine) (VM, error)
}

// VM is a started machine. Its methods are safe for concurrent use.
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
	// Thaw makes the virtual CPUs run again.
	Thaw(ctx context.Context) error
	// Snapshot freezes the machine and writes its device state; Image.Memory then holds its RAM.
	Snapshot(ctx context.Context, state *os.File) error
	// Dump writes all of the machine's RAM to w as an ELF core file, whose program headers give the guest's
	// physical addresses. The machine is paused during the dump. After it, the machine is frozen or running as before.
	Dump(ctx context.Context, w io.Writer) error
	// Stalls receives a reason each time the machine has stopped because a write to its scratch disk
	// failed (the host's disk is full). Thaw makes it retry the write.
	Stalls() <-chan string
	// Done is closed when the machine has ended. Err then returns the reason, or nil after Destroy.
	Done() <-chan struct{}
	Err() error
	// Destroy ends the machine immediately and returns when its processes and resources have been removed.
	Destroy(ctx context.Context) error
}

// Saver is a VM that can be saved while it belongs to a run, and started again or more than once. Its scratch disk, its RAM and its
// device state are copied while it is frozen. What starts from them must have the same CPUs, memory and devices.
type Saver interface {
	// Save writes the device state of the frozen machine, which can continue after it. Its RAM is what Dump then returns (ReadCore); with
	// Image.Own it is also in Image.Memory after Destroy.
	Save(ctx context.Context, state *os.File) error
}

// Observer is a VM whose driver observes from the host what runs in it. The guest then has no sensor.
type Observer interface {
	// Observe calls emit with each event of the run, in the order of occurrence, until the machine has ended. It is
	// called once. Until emit returns, the workload waits; events that are lost meanwhile are reported as a gap.
	// What happens before BeginRun is followed, since processes can outlive it, but is not reported.
	Observe(ctx context.Context, emit func(context.Context, *audit.Event) error) error
	// BeginRun sets the run to which all later events belong. It is called once, before the first step.
	BeginRun(ctx context.Context, r Observed) error
	// BeginStep names the step whose command the guest starts next; the events of all processes that descend from it belong to it. Several
	// steps can run concurrently. File changes before the first one are not reported.
	BeginStep(ctx context.Context, name string) error
	// EndStep returns when emit has returned for all events before the call. A file that was changed by no known process is
	// reported as that step's.
	EndStep(ctx context.Context, name string) error
}

// Observed is what an Observer must know about a run.
type Observed struct {
	Run string // its ID
	// HashOver: written files larger than this many bytes are hashed; 0 hashes all.
	HashOver int64
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
