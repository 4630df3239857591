// Package qemu drives QEMU's microvm machine. It needs nothing of the host
// but the distribution's package: hardware virtualization (KVM) is used where it
// boots a guest, software emulation (TCG) elsewhere.
//
// Custody and QEMU share no path. The monitor and the guest's channel are
// socket pairs, the disks descriptors, the memory file one that is lent (see
// lender), so that the process can live in a root of its own as a uid of its own.
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
	"golang.org/x/sys/unix"
)

// Driver starts microvm machines. Its methods may be called concurrently.
type Driver struct {
	binary string
	kvm    bool
}

// New finds QEMU on this host. With kvm, machines use hardware virtualization, and a host
// without a KVM that answers is an error; that it boots a guest only trying it shows.
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
	if os.Geteuid() != 0 {
		return nil, errors.New("starting a VM needs root, to confine it: run custody with sudo")
	}
	v := &vm{memory: m.Memory, stalls: make(chan string, 1), stopped: make(chan struct{}, 1), done: make(chan struct{})}
	if err := v.start(ctx, d, m); err != nil {
		err = v.obituary(err)
		v.Destroy(context.WithoutCancel(ctx))
		return nil, fmt.Errorf("vm %s: %w", m.ID, err)
	}
	return v, nil
}

// obituary says of a start that failed whether QEMU's end is why.
func (v *vm) obituary(err error) error {
	if v.inmate == nil {
		return err
	}
	select {
	case <-v.done:
		return fmt.Errorf("%w: %w (%w)", vmm.ErrDied, v.Err(), err)
	case <-time.After(50 * time.Millisecond): // the end is noticed a little later than what it broke
		return err
	}
}

// vm implements vmm.VM.
type vm struct {
	inmate  *inmate
	cage    *cage
	uid     *uidLease
	mon     *monitor
	channel *net.UnixConn
	stderr  *tail
	memory  int64 // bytes of the machine's RAM
	stalls  chan string
	// stopped has a token when the machine has stopped since supervise looked last.
	stopped    chan struct{}
	supervised sync.WaitGroup

	done      chan struct{}
	mu        sync.Mutex // guards what follows
	destroyed bool
	fault     error // of the machine, for which it was killed
	err       error

	destroy  sync.Once
	leftover error // of the one time that destroy ran
}

func (v *vm) start(ctx context.Context, d *Driver, m vmm.Machine) (err error) {
	if err := Sweep(); err != nil {
		return fmt.Errorf("clean up after machines that were killed: %w", err)
	}
	longest, err := longestFile(m)
	if err != nil {
		return err
	}
	if v.uid, err = leaseUID(); err != nil {
		return err
	}
	if v.cage, err = newCage(v.uid.uid, m.CPUs, m.Memory); err != nil {
		return err
	}
	monHost, monQEMU, err := socketPair()
	if err != nil {
		return err
	}
	chanHost, chanQEMU, err := socketPair()
	if err != nil {
		monHost.Close()
		monQEMU.Close()
		return err
	}
	v.channel = chanHost

	stderr, errW, err := newTail()
	if err != nil {
		return errors.Join(err, monHost.Close(), monQEMU.Close(), chanQEMU.Close())
	}
	v.stderr = stderr
	tap, err := m.Tap, error(nil)
	if tap == nil {
		if tap, err = newLooseEnd(); err == nil {
			defer tap.Close()
		}
	} else {
		err = checkTap(tap)
	}
	if err != nil {
		return errors.Join(err, monHost.Close(), monQEMU.Close(), chanQEMU.Close(), errW.Close())
	}
	files := descriptors{}
	args := d.args(m, &files, monQEMU, chanQEMU, tap)
	j := jail{
		uid: v.uid.uid, binary: d.binary, args: args, files: files, stdout: m.Console, stderr: errW,
		lends: map[string]*os.File{memoryPath: m.Image.Memory}, longest: longest,
	}
	if d.kvm {
		kvm, err := openKVM()
		if err != nil {
			return errors.Join(err, monHost.Close(), monQEMU.Close(), chanQEMU.Close(), errW.Close())
		}
		defer kvm.Close()
		j.lends[kvmPath] = kvm
	}
	if m.Image.State == nil {
		j.reads = map[string]string{kernelPath: m.Image.Kernel, initrdPath: m.Image.Initrd}
	}
	v.inmate, err = j.start()
	// Only QEMU may hold its ends: their closing is how we learn of its death.
	errW.Close()
	monQEMU.Close()
	chanQEMU.Close()
	if err != nil {
		monHost.Close()
		return err
	}
	go v.watch()
	if err := v.cage.add(v.inmate.process.Pid); err != nil {
		monHost.Close()
		return err
	}
	if v.mon, err = newMonitor(ctx, monHost, v.event); err != nil {
		return v.explain(err)
	}
	v.supervised.Go(v.supervise)
	if m.Image.State != nil {
		if err := v.restore(ctx, m.Image.State); err != nil {
			return v.explain(err)
		}
	}
	v.inmate.lender.close()
	if m.Image.State == nil {
		return v.explain(v.Thaw(ctx))
	}
	return nil
}

// maxState is far more than the state of a machine's devices takes in a file.
const maxState = 64 << 20

// longestFile is how long the longest of the files may become that QEMU writes: memory, disk and state.
func longestFile(m vmm.Machine) (int64, error) {
	longest := max(m.Memory, maxState)
	if m.Scratch == nil {
		return longest, nil
	}
	info, err := m.Scratch.Stat()
	if err != nil {
		return 0, fmt.Errorf("scratch disk: %w", err)
	}
	return max(longest, info.Size()), nil
}

// Paths inside the jail.
const (
	memoryPath = "/memory" // does not exist: the lender answers for it
	kernelPath = "/kernel"
	initrdPath = "/initrd"
)

// descriptors collects the files that the process inherits, from number 3 on.
type descriptors []*os.File

func (d *descriptors) add(f *os.File) string {
	*d = append(*d, f)
	return strconv.Itoa(2 + len(*d))
}

func (d *Driver) args(m vmm.Machine, files *descriptors, mon, channel, tap *os.File) []string {
	accel, cpu := "tcg,tb-size=64", "max"
	if d.kvm {
		accel, cpu = "kvm", "host"
	}
	share := "off"
	if m.Image.State == nil {
		share = "on"
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-name", "custody",
		"-M", machineType(), "-accel", accel, "-cpu", cpu,
		"-smp", strconv.Itoa(max(m.CPUs, 1)), "-m", fmt.Sprintf("%dM", m.Memory>>20),
		"-object", fmt.Sprintf("memory-backend-file,id=ram,size=%dM,mem-path=%s,share=%s", m.Memory>>20, memoryPath, share),
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-chardev", "socket,id=qmp,fd=" + files.add(mon), "-mon", "chardev=qmp,mode=control",
		"-device", "virtio-serial-device,max_ports=2",
		"-chardev", "socket,id=channel,fd=" + files.add(channel), "-device", "virtserialport,chardev=channel,name=custody",
		// No host is to be notified, at a restore, that the machine has moved.
		"-global", "migration.announce-rounds=0",
		"-S",
	}
	args = append(args, "-add-fd", "set=1,fd="+files.add(m.Image.Root),
		"-blockdev", "driver=raw,node-name=root,read-only=on,file.driver=file,file.filename=/dev/fdset/1,file.locking=off",
		"-device", "virtio-blk-device,drive=root")
	if m.Scratch != nil {
		args = append(args, "-add-fd", "set=2,fd="+files.add(m.Scratch),
			"-blockdev", "driver=raw,node-name=scratch,discard=unmap,file.driver=file,file.filename=/dev/fdset/2,file.locking=off,file.discard=unmap",
			"-device", "virtio-blk-device,drive=scratch,werror=stop,rerror=stop")
	}
	args = append(args, "-netdev", "tap,id=net,vhost=off,fd="+files.add(tap), "-device", card())
	if m.Console != nil {
		args = append(args, "-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console")
	} else {
		args = append(args, "-serial", "null")
	}
	if m.Image.State != nil {
		return append(args, "-incoming", "defer")
	}
	return append(args, d.kernelArgs()...)
}

func machineType() string {
	if runtime.GOARCH == "arm64" {
		return "virt,memory-backend=ram,gic-version=max"
	}
	return "microvm,memory-backend=ram"
}

// kernelWords is the guest kernel's command line, but for what is measured at each boot.
func (d *Driver) kernelWords() string {
	console := "ttyS0"
	if runtime.GOARCH == "arm64" {
		console = "ttyAMA0"
	}
	words := "console=" + console + " quiet loglevel=4 panic=-1 reboot=t random.trust_cpu=on" +
		// What a step had in its memory must not be found in a snapshot after it: freed pages are zeroed.
		" init_on_free=1 lsm=landlock,lockdown,yama,bpf psi=0 audit=0 nowatchdog" +
		// What the kernel does not know is the environment of its first process, a Go program: no
		// signals, collections or checks of the CPUs while it works for someone who waits.
		" GODEBUG=asyncpreemptoff=1,updatemaxprocs=0 GOGC=off GOMEMLIMIT=48MiB"
	if !d.kvm {
		// Emulated code is translated again at each address: with randomised addresses every exec pays
		// some 20 ms for that. Speculation is not emulated, so there is nothing to mitigate.
		words += " norandmaps mitigations=off"
	}
	return words
}

func (d *Driver) kernelArgs() []string {
	words := d.kernelWords()
	if !d.kvm {
		words += clockArgs()
	}
	return []string{"-kernel", kernelPath, "-initrd", initrdPath, "-append", words}
}

// ignoreShared makes a migration skip the memory that is in a file of its own.
func (v *vm) ignoreShared(ctx context.Context) error {
	on := map[string]any{"capabilities": []any{map[string]any{"capability": "x-ignore-shared", "state": true}}}
	return v.mon.run(ctx, "migrate-set-capabilities", on, nil)
}

// sendFile makes a file known to QEMU under the name "state".
func (v *vm) sendFile(ctx context.Context, f *os.File) error {
	fd := int(f.Fd())
	return v.mon.run(ctx, "getfd", map[string]string{"fdname": "state"}, &fd)
}

// restore loads the device state and leaves the machine frozen.
func (v *vm) restore(ctx context.Context, state *os.File) error {
	if err := v.ignoreShared(ctx); err != nil {
		return err
	}
	ours, theirs, err := pipeOf(true)
	if err != nil {
		return err
	}
	return v.migrate(ctx, "migrate-incoming", ours, theirs, func() error {
		_, err := io.Copy(ours, state)
		return errors.Join(err, ours.Close()) // the end of the state
	})
}

// pipeOf returns the ends of a pipe. QEMU takes the state of devices through one: since QEMU 11 it does not read and
// write files that it is given.
func pipeOf(weWrite bool) (ours, theirs *os.File, err error) {
	r, w, err := os.Pipe()
	if weWrite {
		r, w = w, r
	}
	return r, w, err
}

// migrate has QEMU send or take the state of its devices through its end of a pipe, while carry moves it through ours.
// Both ends are closed on return.
func (v *vm) migrate(ctx context.Context, command string, ours, theirs *os.File, carry func() error) error {
	err := v.sendFile(ctx, theirs)
	theirs.Close()
	if err != nil {
		ours.Close()
		return err
	}
	carried := make(chan error, 1)
	go func() { carried <- carry() }()
	err = v.mon.run(ctx, command, map[string]string{"uri": "fd:state"}, nil)
	if err == nil {
		err = v.migrated(ctx)
	}
	if err != nil {
		ours.Close() // ends carry
		<-carried
		return err
	}
	select {
	case err = <-carried:
	case <-ctx.Done():
		err = ctx.Err()
		ours.Close()
		<-carried
	}
	ours.Close()
	return err
}

// migrated waits for the end of a migration in either direction.
func (v *vm) migrated(ctx context.Context) error {
	for {
		raw, err := v.mon.query(ctx, "query-migrate", nil, nil)
		if err != nil {
			return err
		}
		var status struct {
			Status string `json:"status"`
			Error  string `json:"error-desc"`
		}
		if err := json.Unmarshal(raw, &status); err != nil {
			return fmt.Errorf("qmp query-migrate: %w", err)
		}
		switch status.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			return fmt.Errorf("device state: migration %s: %s", status.Status, status.Error)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
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

// Snapshot implements vmm.VM.
func (v *vm) Snapshot(ctx context.Context, state *os.File) error {
	if err := v.Freeze(ctx); err != nil {
		return err
	}
	if err := v.ignoreShared(ctx); err != nil {
		return err
	}
	ours, theirs, err := pipeOf(false)
	if err != nil {
		return err
	}
	return v.explain(v.migrate(ctx, "migrate", ours, theirs, func() error {
		_, err := io.Copy(state, ours)
		return err
	}))
}

// event is called by the monitor's reader.
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
	default: // one report is waiting already
	}
}

// supervise ends a machine that stopped because of a fault of its virtualization, such as a KVM that
// fails: nothing would ever make it go on. It ends with the process.
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
			_ = v.inmate.process.Kill() // an error: it has ended
		}
	}
}

// state is what QEMU calls the machine's state, "" when it does not say.
func (v *vm) state() string {
	raw, err := v.mon.query(context.Background(), "query-status", nil, nil) // which ends with the process
	var status struct {
		Status string `json:"status"`
	}
	if err != nil || json.Unmarshal(raw, &status) != nil {
		return ""
	}
	return status.Status
}

// watch ends with the process and reports why it ended.
func (v *vm) watch() {
	<-v.inmate.waited
	v.mu.Lock()
	switch {
	case v.destroyed:
	case v.fault != nil:
		v.err = fmt.Errorf("%w%s", v.fault, v.stderr.quote())
	default:
		v.err = fmt.Errorf("qemu ended by itself: %s%s", v.inmate.state, v.stderr.quote())
	}
	v.mu.Unlock()
	close(v.done)
}

// explain adds what QEMU wrote to its standard error to an error of the monitor.
func (v *vm) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w%s", err, v.stderr.quote())
}

// Destroy implements vmm.VM. Further calls wait for the first and return what it did.
func (v *vm) Destroy(context.Context) error {
	v.destroy.Do(func() { v.leftover = v.cleanUp() })
	return v.leftover
}

func (v *vm) cleanUp() error {
	v.mu.Lock()
	v.destroyed = true
	v.mu.Unlock()
	var errs []error
	if v.inmate != nil {
		err := v.inmate.kill()
		if errors.Is(err, errStuck) {
			// Its uid and its control group stay its own: Sweep removes them once it has ended.
			v.letGo()
			return err
		}
		errs = append(errs, err)
		<-v.done
	}
	v.supervised.Wait()
	v.letGo()
	if v.cage != nil {
		errs = append(errs, v.cage.remove())
	}
	if v.uid != nil {
		v.uid.release()
	}
	return errors.Join(errs...)
}

// letGo closes our ends of what the process has.
func (v *vm) letGo() {
	if v.mon != nil {
		v.mon.close()
	}
	if v.channel != nil {
		v.channel.Close()
	}
	if v.stderr != nil {
		v.stderr.close()
	}
}

// socketPair returns our end as a connection and QEMU's as a file.
func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours := os.NewFile(uintptr(fds[0]), "socket")
	defer ours.Close()
	theirs := os.NewFile(uintptr(fds[1]), "socket")
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}
