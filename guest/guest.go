// Package guest is the first process of the VM (init): it boots the guest, waits for the
// snapshot, applies the host's Wake message, and runs the steps.
//
//	boot --> sensors loaded --> cells prepared, warm-up --> READY --> waits for Wake   <- a snapshot is taken here
//	                                                               |
//	                    clock, randomness, identity, disk, limits <-+           <- once, after each restore
//	          |
//	          v
//	     Awake sent -->  serves the channel --> channel ended --> power off
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
	wake, err := port.awaitWake()
	if err != nil {
		return err
	}
	if err := live(ctx, port, s, st, wake); err != nil {
		channel.SendAwake(port, channel.Awake{Error: err.Error()})
		return fmt.Errorf("wake: %w", err)
	}
	return nil
}

// live applies the wake and serves the host until the channel ends.
func live(ctx context.Context, port hostPort, s Sensor, st *stage, w channel.Wake) error {
	if st == nil {
		return errors.New("this VM was booted without a scratch disk, for inspection only")
	}
	if err := renew(w, st.random); err != nil {
		return err
	}
	if err := st.writeIdentity(w.Hostname, w.MachineID); err != nil {
		return err
	}
	if len(w.Trust) > 0 {
		if err := st.trustFiles.add(w.Trust); err != nil {
			return fmt.Errorf("have the cells trust the host's certificates: %w", err)
		}
	}
	limits := st.limits(w.Limits)
	server := channel.NewServer(st.block, openWorkspace, nil)
	server.Run, server.Drain = w.Run, cell.DrainPages
	if !w.Sensor {
		return serve(ctx, port, server, st.block.Open(limits, w.Hostname, nil))
	}
	server.Flush = s.Flush
	set := sensor.Settings{Boot: w.MachineID, Run: w.Run, Cookie: binary.LittleEndian.Uint64(w.Entropy[entropyForKernel:]), HashOver: w.Files.HashOver, ReadOver: w.Files.ReadOver}
	if err := s.Start(ctx, set, server.Emit); err != nil {
		return fmt.Errorf("start the sensors: %w", err)
	}
	return serve(ctx, port, server, st.block.Open(limits, w.Hostname, s))
}

func serve(ctx context.Context, port hostPort, server *channel.Server, err error) error {
	if err != nil {
		return err
	}
	if err := channel.SendAwake(port, channel.Awake{OK: true, Time: now()}); err != nil {
		return err
	}
	log.Print(server.Serve(ctx, port))
	return nil
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
