package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/gvisor/trace"
)

// vm implements vmm.VM and vmm.Observer.
type vm struct {
	id      string
	lease   *lease
	group   *group
	channel *net.UnixConn
	relay   *relay
	sink    *net.UnixListener
	process *os.Process
	stderr  tail
	upper   *os.File // directory of what the workload changed
	lower   *os.File // directory of the template's root
	cell    *os.File // directory of what the workload sees

	stream   *trace.Stream // valid once streamed is closed; nil: the sentry did not connect
	streamed chan struct{}
	accept   sync.WaitGroup

	done      chan struct{}
	mu        sync.Mutex // guards the fields below
	destroyed bool
	err       error
	observer  *observer // valid once observed is closed

	observed chan struct{}
	changes  *changes
	hashOver int64

	destroy  sync.Once
	leftover error
}

// start starts the container. What it has made is gone if it returns an error.
func start(ctx context.Context, binary string, m vmm.Machine) (*vm, error) {
	v := &vm{id: safeID(m.ID), hashOver: m.HashOver, streamed: make(chan struct{}), done: make(chan struct{}), observed: make(chan struct{})}
	var err error
	if v.lease, err = takeLease(v.id); err != nil {
		return nil, err
	}
	if v.group, err = newGroup(v.lease.name, m.CPUs, m.Memory); err != nil {
		v.lease.release()
		return nil, err
	}
	started := make(chan error, 1)
	go v.run(binary, m, started)
	err = <-started
	if err == nil {
		err = v.admit(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, v.Destroy(context.WithoutCancel(ctx)))
	}
	return v, nil
}

// run starts runsc in namespaces of its own, reports on started, and returns when runsc has ended. The
// goroutine's thread stays in the namespaces and ends with it: runsc is killed when that thread dies.
func (v *vm) run(binary string, m vmm.Machine, started chan<- error) {
	runtime.LockOSThread()
	defer close(v.done)
	cmd, err := v.launch(binary, m)
	started <- err
	if err != nil {
		return
	}
	err = cmd.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.destroyed {
		state := "exit status 0"
		if err != nil {
			state = err.Error()
		}
		if v.group.outOfMemory() {
			state += ", since the sandbox used more memory than its limit"
		}
		v.err = fmt.Errorf("runsc ended by itself: %s%s", state, v.stderr.quote())
	}
}

// gate holds runsc back until its process is in the sandbox's control group.
const gate = `read -r _ <&4 || exit 1; exec 4<&-; exec "$@"`

// launch runs on the thread that enters the namespaces.
func (v *vm) launch(binary string, m vmm.Machine) (*exec.Cmd, error) {
	if err := enterSpace(); err != nil {
		return nil, err
	}
	limit := func(disk *os.File) error { return v.group.limitDisk(disk, m.DiskRate) }
	if err := furnish(m, limit); err != nil {
		return nil, err
	}
	if err := errors.Join(writeSpec(m), writeSession()); err != nil {
		return nil, err
	}
	var err error
	if v.upper, err = os.Open(upperDir); err != nil {
		return nil, err
	}
	if v.lower, err = os.Open(lowerDir); err != nil {
		return nil, err
	}
	v.changes = newChanges(v.upper, v.lower)
	if v.cell, err = os.Open(cellDir); err != nil {
		return nil, err
	}
	if v.sink, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: traceSock, Net: "unixpacket"}); err != nil {
		return nil, err
	}
	v.sink.SetUnlinkOnClose(false) // its path is another one in other namespaces
	v.accept.Go(v.acceptSink)
	if m.Tap != nil {
		device, err := newDevice()
		if err != nil {
			return nil, err
		}
		if v.relay, err = newRelay(device, m.Tap); err != nil {
			return nil, errors.Join(err, device.Close())
		}
	}
	theirs, err := v.openChannel()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	wait, open, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer open.Close()
	defer wait.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-c", gate, "sh", binary}, arguments(v.id, m)...)...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.ExtraFiles = []*os.File{theirs, wait}
	cmd.Stderr = &v.stderr
	if m.Console != nil {
		cmd.Stdout, cmd.Stderr = m.Console, io.MultiWriter(m.Console, &v.stderr)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	v.process = cmd.Process
	if err = v.group.add(cmd.Process.Pid); err == nil {
		_, err = open.Write([]byte("\n"))
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	return cmd, nil
}

// arguments are those of runsc.
func arguments(id string, m vmm.Machine) []string {
	network := "sandbox"
	if m.Tap == nil {
		network = "none"
	}
	return []string{
		"--root=" + stateDir, "--network=" + network, "--platform=systrap", "--overlay2=root:memory", "--ignore-cgroups",
		"--in-sandbox-cgroup=v2", "--host-uds=none", "--net-raw=false", "--host-settings=ignore",
		"--pod-init-config=" + initFile, "run", fmt.Sprintf("--pass-fd=%d:%d", channelFD, channelFD), "--bundle=" + bundleDir, id,
	}
}

// openChannel makes the socket pair of the channel and returns the container's end.
func (v *vm) openChannel() (*os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours := os.NewFile(uintptr(fds[0]), "channel")
	defer ours.Close()
	theirs := os.NewFile(uintptr(fds[1]), "channel")
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, errors.Join(err, theirs.Close())
	}
	v.channel = conn.(*net.UnixConn)
	return theirs, nil
}

// acceptSink waits for the sentry's trace sink, which connects before the container starts.
func (v *vm) acceptSink() {
	defer close(v.streamed)
	conn, err := v.sink.AcceptUnix()
	if err != nil {
		return
	}
	s, err := trace.Accept(conn)
	if err != nil {
		conn.Close() // runsc ends, since its sink has failed
		return
	}
	v.stream = s
}

// admit waits for the trace sink: nothing runs unobserved.
func (v *vm) admit(ctx context.Context) error {
	select {
	case <-v.streamed:
		if v.stream != nil {
			return nil
		}
		select {
		case <-v.done:
		case <-time.After(time.Second):
		}
		return fmt.Errorf("%w: runsc did not connect its trace sink%s", vmm.ErrDied, v.stderr.quote())
	case <-v.done:
		return fmt.Errorf("%w: %w", vmm.ErrDied, v.Err())
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(admitLimit):
		return fmt.Errorf("runsc did not connect its trace sink within %v%s", admitLimit, v.stderr.quote())
	}
}

// admitLimit bounds the start of a container, which takes a tenth of a second.
const admitLimit = time.Minute

// Channel implements vmm.VM.
func (v *vm) Channel() io.ReadWriteCloser { return v.channel }

// Freeze implements vmm.VM: the kernel stops the processes of the sandbox.
func (v *vm) Freeze(context.Context) error { return v.group.freeze() }

// Thaw implements vmm.VM.
func (v *vm) Thaw(context.Context) error { return v.group.thaw() }

// ErrNoMemoryImage means that the memory of a gVisor sandbox cannot be written as an image: it is
// that of the sentry and of many processes, not of one machine.
var ErrNoMemoryImage = errors.New("a sandbox of the tier gvisor has no memory image: it has no machine whose memory could be written")

// Snapshot implements vmm.VM.
func (v *vm) Snapshot(context.Context, *os.File) error { return ErrNoMemoryImage }

// Dump implements vmm.VM.
func (v *vm) Dump(context.Context, io.Writer) error { return ErrNoMemoryImage }

// Stalls implements vmm.VM: a full disk is an error of the workload's write, the sandbox goes on.
func (v *vm) Stalls() <-chan string { return nil }

// Done implements vmm.VM.
func (v *vm) Done() <-chan struct{} { return v.done }

// Err implements vmm.VM.
func (v *vm) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

// Destroy implements vmm.VM. Further calls wait for the first and return its result.
func (v *vm) Destroy(context.Context) error {
	v.destroy.Do(func() { v.leftover = v.cleanUp() })
	return v.leftover
}

func (v *vm) cleanUp() error {
	v.mu.Lock()
	v.destroyed = true
	v.mu.Unlock()
	if v.process != nil {
		_ = v.process.Kill() // an error: it has ended
	}
	var unplugging sync.WaitGroup
	var unplugged error
	if v.relay != nil { // the kernel takes some 20 ms to remove the device
		unplugging.Go(func() { unplugged = v.relay.close() })
	}
	errs := []error{v.group.remove()}
	<-v.done
	if v.sink != nil {
		errs = append(errs, v.sink.Close())
	}
	v.accept.Wait()
	if v.stream != nil {
		v.stream.Close()
	}
	if v.channel != nil {
		v.channel.Close()
	}
	for _, f := range []*os.File{v.upper, v.lower, v.cell} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	unplugging.Wait()
	v.lease.release()
	return errors.Join(append(errs, unplugged)...)
}

// tailBytes is how much of runsc's messages an error quotes.
const tailBytes = 2048

// tail keeps the end of what is written to it. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex // guards last
	last []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, b...)
	t.last = t.last[max(0, len(t.last)-tailBytes):]
	return len(b), nil
}

// quote returns what was written as a suffix for an error, empty if nothing was.
func (t *tail) quote() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := strings.TrimSpace(string(t.last)); s != "" {
		return " (runsc: " + s + ")"
	}
	return ""
}
