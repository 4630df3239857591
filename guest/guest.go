// Package guest is the first process of the VM (init): it boots the guest, waits for the
// snapshot, wakes, becomes the sandbox of one run, and runs its steps.
//
//	boot --> sensors loaded --> cells prepared, warm-up --> READY --> waits for Wake   <- a snapshot is taken here
//	                                                                      |
//	    Awake sent, serves the channel: rehearsals only <-----------------+            <- after each restore
//	          |
//	          | Identity, once
//	          v
//	    clock, randomness, host name, limits, certificate, sensors started --> steps --> channel ended --> power off
//	                                                                            |  ^
//	                                                suspended: all steps frozen v  | Wake, clock, randomness, host name
//	                                                                            parked                             <- a pause is taken here
//
// No step can stop it: it runs in a control group with
// separate memory and most of the CPU's weight, outside every cell's
// namespaces, and the kernel never kills it for lack of memory.
package guest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/cell"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/guest/sensor"
)

// Sensor observes the cells. It is loaded before the snapshot, and started after it.
type Sensor interface {
	cell.Watcher
	Prime(root string, over int64) error
	Prepare(root string) error
	Start(context.Context, sensor.Settings, func(context.Context, *audit.Event) error) error
	Flush(context.Context) error
	Close() error
}

// Paths in the guest.
const (
	lowerDir    = "/lower" // the template's read-only root, /dev/vda
	scratchDisk = "/dev/vdb"
	scratchDir  = "/scratch"  // the run's disk, /dev/vdb
	cellDir     = "/cell"     // both as the cells see them
	deviceDir   = "/device"   // the cells' /dev
	identityDir = "/identity" // the run's files of the cells' /etc
	groupDir    = "/sys/fs/cgroup"
)

// Run boots the guest and serves the host. It returns only on failure or when the channel has ended.
func Run(ctx context.Context, load func() (Sensor, error)) error {
	if err := boot(); err != nil {
		return fmt.Errorf("boot: %w", err)
	}
	s, err := load()
	if err != nil {
		return fmt.Errorf("load the sensors: %w", err)
	}
	defer s.Close()
	var st *stage
	if _, err := os.Stat(scratchDisk); err == nil { // a machine without one was started only to test that it boots
		if st, err = newStage(ctx, s); err != nil {
			return fmt.Errorf("prepare the cells: %w", err)
		}
	}
	port, err := openHostPort()
	if err != nil {
		return err
	}
	if _, err := port.awaitWake(); err != nil {
		return err
	}
	if st == nil {
		const reason = "this VM was booted without a scratch disk, for inspection only"
		channel.SendAwake(port, channel.Awake{Error: reason})
		return errors.New("wake: " + reason)
	}
	server := channel.NewServer(st.block, openWorkspace, nil)
	server.Drain, server.EndSession, server.File = cell.DrainPages, st.block.EndSession, st.block.File
	server.CPU, server.Dial, server.Ports = st.block.CPU, dialPort, listeningPorts
	server.Freeze, server.Thaw = st.freeze, st.block.Thaw
	server.Identify = func(_ context.Context, id channel.Identity) error { // ctx, because the sensors outlive a session
		server.Identify = func(_ context.Context, id channel.Identity) error { return again(st, id) }
		return identify(ctx, server, s, st, id)
	}
	return serve(ctx, port, server)
}

// identify makes the guest the sandbox of a run. It renews the randomness first: nothing of the run has begun.
func identify(ctx context.Context, server *channel.Server, s Sensor, st *stage, id channel.Identity) error {
	if err := renew(id, st.random); err != nil {
		return err
	}
	limits, err := st.assume(id)
	if err != nil {
		return err
	}
	if !id.Sensor {
		return st.block.Open(limits, id.Hostname, nil)
	}
	server.Flush = s.Flush
	set := sensor.Settings{
		Boot: id.MachineID, Run: id.Run, Cookie: binary.LittleEndian.Uint64(id.Entropy[entropyForKernel:]),
		HashOver: id.Files.HashOver, ReadOver: id.Files.ReadOver,
	}
	if err := s.Start(ctx, set, server.Emit); err != nil {
		return fmt.Errorf("start the sensors: %w", err)
	}
	return st.block.Open(limits, id.Hostname, s)
}

// again makes a guest that was suspended continue as the sandbox of a run. The limits and the sensors stay.
func again(st *stage, id channel.Identity) error {
	if err := renew(id, st.random); err != nil {
		return err
	}
	return st.resume(id)
}

// serve serves the host until the channel ends. When the guest was suspended, it waits for the next host.
func serve(ctx context.Context, port hostPort, server *channel.Server) error {
	for {
		if err := channel.SendAwake(port, channel.Awake{OK: true}); err != nil {
			return err
		}
		err := server.Serve(ctx, port)
		if !errors.Is(err, channel.ErrSuspended) {
			log.Print(err)
			return nil
		}
		if _, err := port.awaitNext(); err != nil {
			return err
		}
	}
}

// openWorkspace opens the workspace as the cells see it, unless a step has put a link in its place.
func openWorkspace() (*os.Root, error) {
	info, err := os.Lstat(cellDir + cell.DefaultDir)
	if err != nil {
		return nil, fmt.Errorf("open the workspace: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("open the workspace: %s is not a directory any more", cell.DefaultDir)
	}
	root, err := os.OpenRoot(cellDir)
	if err != nil {
		return nil, fmt.Errorf("open the workspace: %w", err)
	}
	defer root.Close()
	return root.OpenRoot(cell.DefaultDir[1:])
}

// PowerOff ends the VM. A machine whose monitor offers only a reset has the kernel option reboot=k.
func PowerOff() {
	if options, err := os.ReadFile("/proc/cmdline"); err == nil && strings.Contains(string(options), " reboot=k") {
		unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	}
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}
