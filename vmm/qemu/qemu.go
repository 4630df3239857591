// Package qemu runs VMs with QEMU's microvm machine type. The host needs only the distribution's
// QEMU package: VMs use hardware virtualization (KVM) where it boots a guest, and software
// emulation (TCG) elsewhere.
//
// A QEMU process sees none of Custody's paths: it runs with its own root directory and its own uid.
// The monitor and the guest's channel are socket pairs, the disks are inherited descriptors, and
// openHandler provides the memory file.
package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/remote"
)

// Driver starts microvm machines. Its methods may be called concurrently.
type Driver struct {
	binary string
	kvm    bool
}

// New finds QEMU on this host. With kvm, machines use hardware virtualization, and New returns an error
// if the host's KVM does not respond. New does not check that KVM can boot a guest.
func New(kvm bool) (*Driver, error) {
	name := map[string]string{"amd64": "qemu-system-x86_64", "arm64": "qemu-system-aarch64"}[runtime.GOARCH]
	path := "/usr/bin/" + name
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrMissing, path)
	}
	if kvm {
		f, err := openKVM()
		if err != nil {
			return nil, err
		}
		f.Close()
	}
	return &Driver{binary: path, kvm: kvm}, nil
}

// ErrMissing is returned by New where QEMU is not installed.
var ErrMissing = errors.New("qemu is not installed")

// Name implements vmm.Driver.
func (d *Driver) Name() string { return "qemu" }

// Snapshots implements vmm.Driver.
func (d *Driver) Snapshots() bool { return true }

// Tier implements vmm.Driver.
func (d *Driver) Tier() string {
	if d.kvm {
		return vmm.QEMUKVM
	}
	return vmm.QEMUTCG
}

// Start implements vmm.Driver.
func (d *Driver) Start(ctx context.Context, m vmm.Machine) (vmm.VM, error) {
	p, ends, err := d.spawn(m)
	if err != nil {
		return nil, fmt.Errorf("vm %s: %w", m.ID, err)
	}
	return connect(ctx, p, ends, m)
}

// connect returns the machine whose QEMU has been started, restored if m.Image.State is set.
func connect(ctx context.Context, p qemuProcess, ends ends, m vmm.Machine) (vmm.VM, error) {
	v := &vm{
		process: p, channel: ends.channel, memory: m.Memory,
		stalls: make(chan string, 1), stopped: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go v.watch()
	if err := v.start(ctx, ends.monitor, m.Image.State); err != nil {
		err = v.addCause(err)
		v.Destroy(context.WithoutCancel(ctx))
		return nil, fmt.Errorf("vm %s: %w", m.ID, err)
	}
	return v, nil
}

// addCause adds to the error of a failed start how QEMU ended, if it did.
func (v *vm) addCause(err error) error {
	select {
	case <-v.done:
		return fmt.Errorf("%w: %w (%w)", vmm.ErrDied, v.Err(), err)
	case <-time.After(time.Second): // watch can notice the end later than start sees the broken connection, on a busy host
		return err
	}
}

// qemuProcess is what a vm needs of QEMU's process, which can belong to another process of Custody.
type qemuProcess interface {
	remote.Process
	// Settle reports that the machine is up, after which QEMU can open no more files for writing.
	Settle()
	// StateFile returns an empty file in memory. QEMU gets the descriptor w, which must be open for writing only.
	StateFile(context.Context) (r, w *os.File, err error)
}

// vm implements vmm.VM.
type vm struct {
	process qemuProcess
	mon     *monitor
	channel *net.UnixConn
	memory  int64 // bytes of the machine's RAM
	stalls  chan string
	// stopped has an element if the machine has stopped since supervise last checked.
	stopped    chan struct{}
	supervised sync.WaitGroup

	done      chan struct{}
	mu        sync.Mutex // guards destroyed, fault and err
	destroyed bool
	fault     error // why supervise killed the machine
	err       error

	destroy  sync.Once
	leftover error // of cleanUp
}

// start connects to the monitor, and restores the machine if there is a state, or lets it boot.
func (v *vm) start(ctx context.Context, monitor *net.UnixConn, state *os.File) (err error) {
	if v.mon, err = newMonitor(ctx, monitor, v.event); err != nil {
		return v.explain(err)
	}
	v.supervised.Go(v.supervise)
	if state != nil {
		if err := v.restore(ctx, state); err != nil {
			return v.explain(fmt.Errorf("load the device state: %w", err))
		}
	}
	v.process.Settle()
	if state == nil {
		return v.explain(v.Thaw(ctx))
	}
	return nil
}

// Paths inside the jail.
const (
	memoryPath = "/memory" // does not exist: openHandler provides the file
	kernelPath = "/kernel"
	initrdPath = "/initrd"
)

// descriptors are the files that the process inherits as descriptors 3, 4, ...
type descriptors []*os.File

func (d *descriptors) add(f *os.File) string {
	*d = append(*d, f)
	return strconv.Itoa(2 + len(*d))
}

// args returns QEMU's arguments. saved reports whether Save wrote the state to restore.
func (d *Driver) args(m vmm.Machine, saved bool, files *descriptors, mon, channel, tap *os.File) []string {
	accel, cpu := "tcg,tb-size=64", "max"
	if d.kvm {
		accel, cpu = "kvm", "host"
	}
	share, machine := "off", machineType()
	if writesMemory(m.Image) {
		share = "on"
	}
	if saved {
		machine += ",suppress-vmdesc=on"
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-name", "custody",
		"-M", machine, "-accel", accel, "-cpu", cpu,
		"-smp", strconv.Itoa(max(m.CPUs, 1)), "-m", fmt.Sprintf("%dM", m.Memory>>20),
		"-object", fmt.Sprintf("memory-backend-file,id=ram,size=%dM,mem-path=%s,share=%s", m.Memory>>20, memoryPath, share),
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-chardev", "socket,id=qmp,fd=" + files.add(mon), "-mon", "chardev=qmp,mode=control",
		"-device", "virtio-serial-device,max_ports=2",
		"-chardev", "socket,id=channel,fd=" + files.add(channel), "-device", "virtserialport,chardev=channel,name=custody",
		// After a restore, the network must not be notified that the machine has moved.
		"-global", "migration.announce-rounds=0",
		"-S",
	}
	args = append(args, "-add-fd", "set=1,fd="+files.add(m.Image.Root),
		"-blockdev", "driver=raw,node-name=root,read-only=on,file.driver=file,file.filename=/dev/fdset/1,file.locking=off")
	args = append(args, throttle("root", m.DiskRate, "read-only=on")...)
	args = append(args, "-device", "virtio-blk-device,drive="+driveOf("root", m.DiskRate))
	if m.Scratch != nil {
		args = append(args, "-add-fd", "set=2,fd="+files.add(m.Scratch),
			"-blockdev", "driver=raw,node-name=scratch,discard=unmap,file.driver=file,file.filename=/dev/fdset/2,file.locking=off,file.discard=unmap")
		args = append(args, throttle("scratch", m.DiskRate, "discard=unmap")...)
		args = append(args, "-device", "virtio-blk-device,drive="+driveOf("scratch", m.DiskRate)+",werror=stop,rerror=stop")
	}
	args = append(args, "-netdev", "tap,id=net,vhost=off,fd="+files.add(tap), "-device", nicArg())
	if m.Console != nil {
		args = append(args, "-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console")
	} else {
		args = append(args, "-serial", "null")
	}
	if saved {
		args = append(args, "-global", "migration.send-configuration=off")
	}
	if m.Image.State != nil {
		return append(args, "-incoming", "defer")
	}
	return append(args, d.kernelArgs()...)
}

// throttle returns the arguments of a node that limits the bytes per second of the named one, if there is a limit.
func throttle(node string, bytesPerSecond int64, options string) []string {
	if bytesPerSecond == 0 {
		return nil
	}
	return []string{
		"-object", fmt.Sprintf("throttle-group,id=%s-rate,x-bps-total=%d", node, bytesPerSecond),
		"-blockdev", fmt.Sprintf("driver=throttle,node-name=%s,throttle-group=%s-rate,file=%s,%s", driveOf(node, bytesPerSecond), node, node, options),
	}
}

// driveOf is the node that the guest's disk uses.
func driveOf(node string, bytesPerSecond int64) string {
	if bytesPerSecond == 0 {
		return node
	}
	return node + "-limited"
}

func machineType() string {
	if runtime.GOARCH == "arm64" {
		return "virt,memory-backend=ram,gic-version=max"
	}
	return "microvm,memory-backend=ram"
}

// kernelOptions returns the guest kernel's command line without the options that are measured at each boot.
func (d *Driver) kernelOptions() string {
	console := "ttyS0"
	if runtime.GOARCH == "arm64" {
		console = "ttyAMA0"
	}
	options := "console=" + console + " quiet loglevel=4 panic=-1 reboot=t random.trust_cpu=on" +
		// Freed pages are zeroed, so that a snapshot does not contain what ended processes had in memory.
		" init_on_free=1 lsm=landlock,lockdown,yama,bpf psi=0 audit=0 nowatchdog" +
		// The kernel passes options that it does not know to its first process, a Go program, as environment
		// variables. These avoid preemption signals, garbage collections and CPU checks, which would delay it.
		" GODEBUG=asyncpreemptoff=1,updatemaxprocs=0 GOGC=off GOMEMLIMIT=48MiB"
	if !d.kvm {
		// QEMU translates code again for each address at which it runs: with randomized addresses that costs
		// every exec some 20 ms. QEMU does not emulate speculation, so mitigations are not needed.
		options += " norandmaps mitigations=off"
	}
	return options
}

func (d *Driver) kernelArgs() []string {
	options := d.kernelOptions()
	if !d.kvm {
		options += clockOptions()
	}
	return []string{"-kernel", kernelPath, "-initrd", initrdPath, "-append", options}
}

// Channel implements vmm.VM.
func (v *vm) Channel() io.ReadWriteCloser { return v.channel }

// Freeze implements vmm.VM.
func (v *vm) Freeze(ctx context.Context) error { return v.mon.run(ctx, "stop", nil, nil) }

// Thaw implements vmm.VM.
func (v *vm) Thaw(ctx context.Context) error { return v.mon.run(ctx, "cont", nil, nil) }

// Stalls implements vmm.VM.
func (v *vm) Stalls() <-chan string { return v.stalls }

// Done implements vmm.VM.
func (v *vm) Done() <-chan struct{} { return v.done }

// Err implements vmm.VM.
func (v *vm) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

// event handles an event of the monitor. It does not block.
func (v *vm) event(e event) {
	if e.Name == "STOP" {
		select {
		case v.stopped <- struct{}{}:
		default:
		}
		return
	}
	if e.Name != "BLOCK_IO_ERROR" {
		return
	}
	var data struct {
		Action  string `json:"action"`
		NoSpace bool   `json:"nospace"`
		Reason  string `json:"reason"`
	}
	if json.Unmarshal(e.Data, &data) != nil || data.Action != "stop" {
		return
	}
	select {
	case v.stalls <- data.Reason:
	default: // an earlier report has not been received yet
	}
}

// supervise kills a machine whose virtual CPU failed, for example because KVM reported an error: such a
// machine cannot continue. It returns when the process has ended.
func (v *vm) supervise() {
	for {
		select {
		case <-v.done:
			return
		case <-v.stopped:
		}
		if state := v.state(); state == "internal-error" {
			v.mu.Lock()
			v.fault = errors.New("the virtual CPU failed (QEMU: internal-error)")
			v.mu.Unlock()
			v.process.Kill()
		}
	}
}

// state returns QEMU's name of the machine's state, or "" if QEMU does not answer.
func (v *vm) state() string {
	raw, err := v.mon.query(context.Background(), "query-status", nil, nil) // the query fails when the process ends
	var status struct {
		Status string `json:"status"`
	}
	if err != nil || json.Unmarshal(raw, &status) != nil {
		return ""
	}
	return status.Status
}

// watch waits for the end of the process, sets err and closes done.
func (v *vm) watch() {
	<-v.process.Waited()
	v.mu.Lock()
	switch {
	case v.destroyed:
	case v.fault != nil:
		v.err = fmt.Errorf("%w%s", v.fault, v.process.Quote())
	default:
		v.err = fmt.Errorf("qemu ended by itself: %s%s", v.process.End(), v.process.Quote())
	}
	v.mu.Unlock()
	close(v.done)
}

// explain adds what QEMU wrote to its standard error to an error of the monitor.
func (v *vm) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w%s", err, v.process.Quote())
}

// Destroy implements vmm.VM. Further calls wait for the first and return its error.
func (v *vm) Destroy(context.Context) error {
	v.destroy.Do(func() { v.leftover = v.cleanUp() })
	return v.leftover
}

func (v *vm) cleanUp() error {
	v.mu.Lock()
	v.destroyed = true
	v.mu.Unlock()
	err := v.process.Remove()
	if errors.Is(err, remote.ErrStuck) {
		v.closeEnds()
		return err
	}
	<-v.done
	v.supervised.Wait()
	v.closeEnds()
	return err
}

// closeEnds closes Custody's ends of the monitor and the channel.
func (v *vm) closeEnds() {
	if v.mon != nil {
		v.mon.close()
	}
	v.channel.Close()
}
