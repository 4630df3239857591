package firecracker

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/custody-project/custody/netpolicy/link"
)

// The files of a machine, in the root directory of its process. A snapshot contains their names.
const (
	kernelFile  = "kernel"
	initrdFile  = "initrd"
	rootFile    = "root"
	scratchFile = "scratch"
	memoryFile  = "memory"
	stateFile   = "state"
	newState    = "new-state" // that Snapshot makes
)

// guestCID is the guest's address. Every machine has the same one: its socket leads to no other machine.
const guestCID = 3

// kernelOptions is the guest kernel's command line. Each byte on the console makes the machine exit, so little is written.
// See the QEMU driver for the options that both have.
const kernelOptions = "console=ttyS0 quiet loglevel=4 panic=-1 reboot=k random.trust_cpu=on i8042.noaux i8042.nomux i8042.dumbkbd" +
	" init_on_free=1 lsm=landlock,lockdown,yama,bpf psi=0 audit=0 nowatchdog" +
	" GODEBUG=asyncpreemptoff=1,updatemaxprocs=0 GOGC=off GOMEMLIMIT=48MiB"

// The bodies of the API's requests: https://github.com/firecracker-microvm/firecracker, firecracker.yaml.
type (
	machineConfig struct {
		CPUs   int   `json:"vcpu_count"`
		Memory int64 `json:"mem_size_mib"`
		Dirty  bool  `json:"track_dirty_pages,omitempty"` // for snapshots of what changed
	}
	bootSource struct {
		Kernel  string `json:"kernel_image_path"`
		Initrd  string `json:"initrd_path"`
		Options string `json:"boot_args"`
	}
	drive struct {
		ID       string `json:"drive_id"`
		Path     string `json:"path_on_host"`
		Root     bool   `json:"is_root_device"`
		ReadOnly bool   `json:"is_read_only"`
		rated
	}
	networkInterface struct {
		ID  string `json:"iface_id"`
		MAC string `json:"guest_mac"`
		TAP string `json:"host_dev_name"`
		ratedNIC
	}
	vsock struct {
		CID  int    `json:"guest_cid"`
		Path string `json:"uds_path"`
	}
	memoryBackend struct {
		Type string `json:"backend_type"`
		Path string `json:"backend_path"`
	}
	snapshotLoad struct {
		State  string        `json:"snapshot_path"`
		Memory memoryBackend `json:"mem_backend"`
	}
	snapshotCreate struct {
		State  string `json:"snapshot_path"`
		Memory string `json:"mem_file_path"`
		Type   string `json:"snapshot_type"`
	}
)

// boot configures the machine and starts it. dirty makes snapshots of what changed possible.
func (v *vm) boot(ctx context.Context, dirty bool) error {
	type step struct {
		path string
		body any
	}
	disks, nic := limits(v.shape)
	steps := []step{
		{"/machine-config", machineConfig{max(v.CPUs, 1), v.Memory >> 20, dirty}},
		{"/boot-source", bootSource{"/" + kernelFile, "/" + initrdFile, kernelOptions}},
		{"/drives/" + rootFile, drive{ID: rootFile, Path: "/" + rootFile, ReadOnly: true, rated: disks}},
	}
	if v.HasScratch {
		steps = append(steps, step{"/drives/" + scratchFile, drive{ID: scratchFile, Path: "/" + scratchFile, rated: disks}})
	}
	mac := net.HardwareAddr(link.GuestMAC[:])
	steps = append(steps,
		step{"/network-interfaces/" + nicID, networkInterface{nicID, mac.String(), tapName, nic}},
		step{"/vsock", vsock{guestCID, vsockSocket}},
		step{"/actions", map[string]string{"action_type": "InstanceStart"}},
	)
	for _, s := range steps {
		if err := v.api.put(ctx, s.path, s.body); err != nil {
			return err
		}
	}
	return nil
}

// restore loads the snapshot, sets the limits of this machine, and leaves the machine frozen.
func (v *vm) restore(ctx context.Context) error {
	v.frozen = true
	err := v.api.put(ctx, "/snapshot/load", snapshotLoad{"/" + stateFile, memoryBackend{"File", "/" + memoryFile}})
	if err != nil {
		return err
	}
	return setLimits(ctx, v.api, v.shape)
}

// Snapshot implements vmm.VM.
func (v *vm) Snapshot(ctx context.Context, state *os.File) error {
	v.turn.Lock()
	defer v.turn.Unlock()
	if !v.CanSave {
		return errNotSaved
	}
	if err := v.set(ctx, true); err != nil {
		return err
	}
	slow := *v.api
	slow.limit = saveTimeout
	if err := slow.put(ctx, "/snapshot/create", snapshotCreate{"/" + newState, "/" + memoryFile, "Full"}); err != nil {
		return v.explain(err)
	}
	if err := v.copyState(ctx, state); err != nil {
		return fmt.Errorf("copy the device state: %w", err)
	}
	return nil
}

// copyState copies the device state that Firecracker wrote.
func (v *vm) copyState(ctx context.Context, to *os.File) error {
	f, err := v.process.Saved(ctx)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(to, io.LimitReader(f, maxState+1))
	if err == nil && n > maxState {
		err = fmt.Errorf("it has more than %d bytes", maxState)
	}
	return err
}
