package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/confine"
	"github.com/custody-project/custody/vmm/gvisor/trace"
	"github.com/custody-project/custody/vmm/remote"
)

// spawned is runsc's process with what confines it, and with the layers of its file system. It needs privileges; the vm, which parses what the
// container sends, does not.
type spawned struct {
	id      string
	lease   *lease
	group   *group
	sink    *net.UnixListener // closed when the sentry has connected, or runsc has ended
	process *os.Process
	waited  chan struct{} // closed when runsc has ended
	state   string        // how; set before waited is closed
	stderr  tail
	changes *changes
	scans   *scans
	// hashOver bounds the size above which files are hashed.
	hashOver int64
}

// ends are Custody's ends of what leads to the container.
type ends struct {
	channel *net.UnixConn // to custody-guest
	sink    *net.UnixConn // from the sentry
	device  *os.File      // the container's network device; nil: there is none
	tap     *os.File      // of the fence; nil: there is none
}

func (e ends) close() {
	for _, c := range []*net.UnixConn{e.channel, e.sink} {
		if c != nil {
			c.Close()
		}
	}
	for _, f := range []*os.File{e.device, e.tap} {
		if f != nil {
			f.Close()
		}
	}
}

// spawn starts the container, which has connected its trace sink when it returns: nothing runs unobserved. What it has made is gone if it
// returns an error.
func (d *Driver) spawn(ctx context.Context, m vmm.Machine) (s *spawned, e ends, err error) {
	if os.Geteuid() != 0 {
		return nil, e, errors.New("starting a sandbox needs root, to confine it: run custody with sudo")
	}
	if m.Image.State != nil {
		return nil, e, errors.New("gvisor has no memory snapshots: a sandbox can only be started cold")
	}
	if err := Sweep(); err != nil {
		return nil, e, fmt.Errorf("clean up after sandboxes that were killed: %w", err)
	}
	s = &spawned{id: safeID(m.ID), hashOver: m.HashOver, waited: make(chan struct{}), scans: newScans()}
	if s.lease, err = takeLease(s.id); err != nil {
		return nil, e, err
	}
	if s.group, err = newGroup(s.lease.name, m.CPUs, m.Memory); err != nil {
		s.lease.release()
		return nil, e, err
	}
	started := make(chan error, 1)
	// The main thread would not end, and with it the namespaces.
	confine.OffMainThread(func() { s.run(d.binary, m, &e, started) })
	if err = <-started; err == nil {
		e.sink, err = s.awaitSink(ctx)
	}
	if err != nil {
		e.close()
		return nil, ends{}, errors.Join(err, s.Remove())
	}
	return s, e, nil
}

// run starts runsc in namespaces of its own, reports on started, and returns when runsc has ended. The
// calling thread stays in the namespaces and ends with it: runsc is killed when that thread dies.
func (s *spawned) run(binary string, m vmm.Machine, e *ends, started chan<- error) {
	defer close(s.waited)
	cmd, err := s.launch(binary, m, e)
	started <- err
	if err != nil {
		return
	}
	err = cmd.Wait()
	s.state = "exit status 0"
	if err != nil {
		s.state = err.Error()
	}
	if s.group.outOfMemory() {
		s.state += ", since the sandbox used more memory than its limit"
	}
	s.sink.Close() // ends awaitSink
}

// gate holds runsc back until its process is in the sandbox's control group.
const gate = `read -r _ <&4 || exit 1; exec 4<&-; exec "$@"`

// launch runs on the thread that enters the namespaces.
func (s *spawned) launch(binary string, m vmm.Machine, e *ends) (*exec.Cmd, error) {
	if err := enterSpace(); err != nil {
		return nil, err
	}
	limit := func(disk *os.File) error { return s.group.limitDisk(disk, m.DiskRate) }
	if err := furnish(m, s.lease.ids, limit); err != nil {
		return nil, err
	}
	if err := errors.Join(writeSpec(m, s.lease.ids), writeSession()); err != nil {
		return nil, err
	}
	if err := s.openLayers(); err != nil {
		return nil, err
	}
	var err error
	if s.sink, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: traceSock, Net: "unixpacket"}); err != nil {
		return nil, err
	}
	s.sink.SetUnlinkOnClose(false) // its path is another one in other namespaces
	if m.Tap != nil {
		if e.device, err = newDevice(); err != nil {
			return nil, err
		}
		if e.tap, err = openTap(m.Tap); err != nil {
			return nil, err
		}
		if err := errors.Join(offload(e.device), offload(e.tap)); err != nil {
			return nil, err
		}
	}
	theirs, err := e.openChannel()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	if err := reduceRights(); err != nil {
		return nil, err
	}
	return s.startProgram(m, append([]string{binary}, arguments(s.id, m)...), theirs)
}

// openLayers opens the directories of the file system, whose paths are those of other files in other namespaces.
func (s *spawned) openLayers() error {
	upper, err := os.Open(upperDir)
	if err != nil {
		return err
	}
	lower, err := os.Open(lowerDir)
	if err != nil {
		return errors.Join(err, upper.Close())
	}
	s.changes = newChanges(upper, lower)
	return nil
}

// startProgram starts runsc with the container's end of the channel.
func (s *spawned) startProgram(m vmm.Machine, command []string, channel *os.File) (*exec.Cmd, error) {
	wait, open, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer open.Close()
	defer wait.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-c", gate, "sh"}, command...)...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.ExtraFiles = []*os.File{channel, wait}
	cmd.Stderr = &s.stderr
	if m.Console != nil {
		cmd.Stdout, cmd.Stderr = m.Console, io.MultiWriter(m.Console, &s.stderr)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.process = cmd.Process
	if err = s.group.add(cmd.Process.Pid); err == nil {
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
func (e *ends) openChannel() (*os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs := os.NewFile(uintptr(fds[1]), "channel")
	if err := remote.Sockets([]*os.File{os.NewFile(uintptr(fds[0]), "channel")}, &e.channel); err != nil {
		return nil, errors.Join(err, theirs.Close())
	}
	return theirs, nil
}

// admitLimit bounds the start of a container, which takes a tenth of a second.
const admitLimit = time.Minute

// awaitSink returns the connection of the sentry's trace sink, which it makes before the container starts. It reads nothing from it.
func (s *spawned) awaitSink(ctx context.Context) (*net.UnixConn, error) {
	limited, cancel := context.WithTimeoutCause(ctx, admitLimit, fmt.Errorf("runsc did not connect its trace sink within %v", admitLimit))
	defer cancel()
	stop := context.AfterFunc(limited, func() { s.sink.Close() })
	defer stop()
	conn, err := s.sink.AcceptUnix()
	s.sink.Close() // nothing else connects
	if err == nil {
		if err = trace.Enlarge(conn); err == nil {
			return conn, nil
		}
		conn.Close()
		return nil, addCause(s, err)
	}
	if limited.Err() != nil {
		return nil, fmt.Errorf("%w%s", context.Cause(limited), s.Quote())
	}
	return nil, addCause(s, errors.New("runsc did not connect its trace sink"))
}

// addCause adds to the error of a failed start how runsc ended, if it did.
func addCause(c container, err error) error {
	select {
	case <-c.Waited():
		return fmt.Errorf("%w: runsc ended by itself: %s%s (%w)", vmm.ErrDied, c.End(), c.Quote(), err)
	case <-time.After(time.Second): // its end can be noticed later than its effects
		return fmt.Errorf("%w: %w%s", vmm.ErrDied, err, c.Quote())
	}
}

// Freeze implements container: the kernel stops the processes of the sandbox.
func (s *spawned) Freeze(ctx context.Context) error { return s.group.setFrozen(ctx, true) }

// Thaw implements container.
func (s *spawned) Thaw(ctx context.Context) error { return s.group.setFrozen(ctx, false) }

// Kill implements remote.Process. An error means that the process has ended.
func (s *spawned) Kill() { _ = s.process.Kill() }

// Waited implements remote.Process.
func (s *spawned) Waited() <-chan struct{} { return s.waited }

// End implements remote.Process.
func (s *spawned) End() string { return s.state }

// Quote implements remote.Process.
func (s *spawned) Quote() string { return s.stderr.quote() }

// UsedMemory returns what the machine uses, see confine.UsedMemory.
func (s *spawned) UsedMemory() (int64, error) { return confine.UsedMemory(s.group.path) }

// Remove implements remote.Process. After a start that failed, any part may be missing.
func (s *spawned) Remove() error {
	if s.process != nil {
		s.Kill()
	}
	errs := []error{s.group.remove()}
	<-s.waited
	if s.sink != nil {
		s.sink.Close()
	}
	s.scans.end()
	if s.changes != nil {
		errs = append(errs, s.changes.close())
	}
	s.lease.release()
	return errors.Join(errs...)
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
