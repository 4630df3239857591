package qemu

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/confine"
	"github.com/custody-project/custody/vmm/remote"
)

// spawned is QEMU's process with what confines it. It needs privileges; the vm, which communicates with QEMU, does not.
type spawned struct {
	process *process
	cgroup  *confine.Group
	uid     *confine.Lease
	stderr  *confine.Tail
	kvm     *os.File // open until QEMU has opened it; nil: the machine is emulated
}

// ends are Custody's ends of QEMU's sockets.
type ends struct{ monitor, channel *net.UnixConn }

func (e ends) close() {
	for _, c := range []*net.UnixConn{e.monitor, e.channel} {
		if c != nil {
			c.Close()
		}
	}
}

// spawn starts QEMU for a machine, which does not run yet.
func (d *Driver) spawn(m vmm.Machine) (s *spawned, e ends, err error) {
	if os.Geteuid() != 0 {
		return nil, e, errors.New("starting a VM needs root, to confine it: run custody with sudo")
	}
	if err := checkMemory(m); err != nil {
		return nil, e, err
	}
	saved, err := isSaved(m.Image.State)
	if err != nil {
		return nil, e, err
	}
	if err := confine.Sweep(); err != nil {
		return nil, e, fmt.Errorf("clean up after machines whose custody process was killed: %w", err)
	}
	s = &spawned{}
	defer func() {
		if err != nil {
			e.close()
			err = errors.Join(err, s.Remove())
		}
	}()
	j := jail{stdout: m.Console, binary: d.binary, opens: map[string]*os.File{memoryPath: m.Image.Memory}}
	if j.maxFile, err = maxFileSize(m); err != nil {
		return s, e, err
	}
	if s.uid, err = confine.LeaseUID(); err != nil {
		return s, e, err
	}
	j.uid = s.uid.UID()
	if s.cgroup, err = confine.NewGroup(j.uid, m.CPUs, m.Memory); err != nil {
		return s, e, err
	}
	// QEMU must have the only copies of its ends: Custody detects QEMU's end when they are closed.
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	for _, ours := range []**net.UnixConn{&e.monitor, &e.channel} {
		var f *os.File
		if *ours, f, err = socketPair(); err != nil {
			return s, e, err
		}
		theirs = append(theirs, f)
	}
	if s.stderr, j.stderr, err = confine.NewTail("qemu"); err != nil {
		return s, e, err
	}
	theirs = append(theirs, j.stderr)
	tap := m.Tap
	if tap == nil {
		if tap, err = newUnconnectedTap(); err == nil {
			defer tap.Close()
		}
	} else {
		err = checkTap(tap)
	}
	if err != nil {
		return s, e, err
	}
	files := descriptors{}
	j.args = d.args(m, saved, &files, theirs[0], theirs[1], tap)
	j.files = files
	if d.kvm {
		if s.kvm, err = openKVM(); err != nil {
			return s, e, err
		}
		j.opens[kvmPath] = s.kvm
	}
	if m.Image.State == nil {
		j.binds = map[string]string{kernelPath: m.Image.Kernel, initrdPath: m.Image.Initrd}
	}
	if s.process, err = j.start(); err != nil {
		return s, e, err
	}
	if err = s.cgroup.Add(s.process.handle.Pid); err != nil {
		err = s.addCause(err)
	}
	return s, e, err
}

// addCause adds to an error how QEMU ended, if it did.
func (s *spawned) addCause(err error) error {
	select {
	case <-s.Waited():
		return fmt.Errorf("%w: qemu ended by itself: %s%s (%w)", vmm.ErrDied, s.End(), s.Quote(), err)
	case <-time.After(time.Second): // its end can be noticed later than its effects
		return err
	}
}

// maxState bounds the size of a machine's device state, which is far smaller.
const maxState = 64 << 20

// maxFileSize returns the size limit, in bytes, of the files that QEMU writes: memory, disk and device state.
func maxFileSize(m vmm.Machine) (int64, error) {
	size := max(m.Memory, maxState)
	if m.Scratch == nil {
		return size, nil
	}
	info, err := m.Scratch.Stat()
	if err != nil {
		return 0, fmt.Errorf("scratch disk: %w", err)
	}
	return max(size, info.Size()), nil
}

// Kill implements remote.Process. An error means that the process has ended.
func (s *spawned) Kill() { _ = s.process.handle.Kill() }

// Waited implements remote.Process.
func (s *spawned) Waited() <-chan struct{} { return s.process.waited }

// End implements remote.Process.
func (s *spawned) End() string { return s.process.state.String() }

// Quote implements remote.Process.
func (s *spawned) Quote() string { return s.stderr.Quote() }

// UsedMemory returns what the machine uses, see confine.UsedMemory.
func (s *spawned) UsedMemory() (int64, error) { return s.cgroup.UsedMemory() }

// Settle implements qemuProcess.
func (s *spawned) Settle() {
	s.process.opens.close()
	if s.kvm != nil {
		s.kvm.Close()
	}
}

// Remove implements remote.Process. Any part may be missing.
func (s *spawned) Remove() error {
	var errs []error
	if s.process != nil {
		err := s.process.kill()
		if errors.Is(err, remote.ErrStuck) {
			// It keeps its uid and its control group. Sweep removes them after it has ended.
			s.stderr.Close()
			s.uid.Abandon()
			return err
		}
		errs = append(errs, err)
	}
	if s.kvm != nil {
		s.kvm.Close()
	}
	if s.stderr != nil {
		s.stderr.Close()
	}
	if s.cgroup != nil {
		errs = append(errs, s.cgroup.Remove())
	}
	if s.uid != nil {
		s.uid.Release()
	}
	return errors.Join(errs...)
}

// socketPair returns Custody's end as a connection and QEMU's end as a file.
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
