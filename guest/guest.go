// Package guest is the first process of the VM: it boots it, waits to be
// snapshotted, wakes with what the host says, and runs the steps.
//
//	boot --> sensors loaded --> rehearsal --> READY --> waits for Wake      <- a snapshot is taken here
//	                                                        |
//	     clock, randomness, identity, scratch disk, cells <-+               <- once, after each restore
//	          |
//	          v
//	     Awake said --> serves the channel --> channel ended --> power off
//
// Nothing that a step does may stop it: it lives in a control group with
// memory of its own and most of the CPU's weight, outside every cell's
// namespaces, and the kernel never kills it for memory.
package guest

import (
	"context"
	"fmt"
	"log"
	"os"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/cell"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/guest/sensor"
)

// Sensor observes the cells. It is loaded before the snapshot, and started after it.
type Sensor interface {
	cell.Watcher
	Start(context.Context, sensor.Settings, func(context.Context, *audit.Event) error) error
	Flush(context.Context) error
	Close() error
}

// Where things are in the guest.
const (
	lowerDir   = "/lower"   // the template's read-only root, /dev/vda
	scratchDir = "/scratch" // the run's disk, /dev/vdb
	cellDir    = "/cell"    // both as the cells see them
	deviceDir  = "/device"  // the cells' /dev
	groupDir   = "/sys/fs/cgroup"
)

// Run is the whole life of the VM. It returns only when it is over.
func Run(ctx context.Context, load func() (Sensor, error)) error {
	if err := boot(); err != nil {
		return fmt.Errorf("boot: %w", err)
	}
	s, err := load()
	if err != nil {
		return fmt.Errorf("load the sensors: %w", err)
	}
	defer s.Close()
	if err := rehearse(ctx); err != nil {
		log.Printf("rehearsal: %v", err) // the first command will be slower, nothing else
	}
	port, err := openPort("custody")
	if err != nil {
		return err
	}
	wake, err := port.awaitWake()
	if err != nil {
		return err
	}
	return live(ctx, port, s, wake)
}

// live applies the wake and serves the host until the channel ends.
func live(ctx context.Context, port *port, s Sensor, w channel.Wake) error {
	block, err := rise(w, s)
	if err != nil {
		channel.SayAwake(port, channel.Awake{Error: err.Error()})
		return fmt.Errorf("wake: %w", err)
	}
	server := channel.NewServer(block, openWorkspace, nil)
	if w.Sensor {
		server.Flush = s.Flush
		set := sensor.Settings{Boot: bootID(), Run: w.Run, HashOver: w.Files.HashOver, ReadOver: w.Files.ReadOver}
		if err := s.Start(ctx, set, server.Emit); err != nil {
			channel.SayAwake(port, channel.Awake{Error: err.Error()})
			return fmt.Errorf("start the sensors: %w", err)
		}
	}
	if err := channel.SayAwake(port, channel.Awake{OK: true, Time: now(), BootID: bootID()}); err != nil {
		return err
	}
	return server.Serve(ctx, port)
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

// PowerOff ends the VM.
func PowerOff() {
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}
