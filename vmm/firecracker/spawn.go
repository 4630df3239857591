package firecracker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/confine"
	"github.com/custody-project/custody/vmm/remote"
)

// spawned is a Firecracker without a machine, with what confines it. It needs privileges; the vm, which communicates with Firecracker, does
// not. It connects to Firecracker's sockets, and neither reads from them nor writes to them.
type spawned struct {
	process *process
	cgroup  *confine.Group
	uid     *confine.Lease
	stderr  *confine.Tail
	saved   *os.File // receives the RAM with Snapshot; nil: the machine cannot be saved
}

// maxState bounds the size of a machine's device state, which is far smaller.
const maxState = 32 << 20

// spawn starts Firecracker for a machine. What it has made is gone if it returns an error.
func (d *Driver) spawn(m vmm.Machine) (s *spawned, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("starting a VM needs root, to confine it: run custody with sudo")
	}
	if err := confine.Sweep(); err != nil {
		return nil, fmt.Errorf("clean up after machines whose custody process was killed: %w", err)
	}
	s = &spawned{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Remove())
		}
	}()
	if s.uid, err = confine.LeaseUID(); err != nil {
		return s, err
	}
	if s.cgroup, err = confine.NewGroup(s.uid.UID(), m.CPUs, m.Memory); err != nil {
		return s, err
	}
	return s, s.launch(d, m)
}

// launch starts the process.
func (s *spawned) launch(d *Driver, m vmm.Machine) error {
	stderr, errW, err := confine.NewTail("firecracker")
	if err != nil {
		return err
	}
	s.stderr = stderr
	defer errW.Close()
	j := jail{
		uid: s.uid.UID(), paths: d.paths, network: network(m.Tap), stdout: m.Console, stderr: errW,
		admit: s.cgroup.Add, maxFile: max(m.Memory, maxState),
	}
	files, err := s.inputs(d, m, &j)
	defer remote.CloseAll(files)
	if err != nil {
		return err
	}
	s.process, err = j.start()
	return errors.Join(err, s.uid.Unname())
}

// inputs sets the files of the jail. The caller closes the files that are returned.
func (s *spawned) inputs(d *Driver, m vmm.Machine, j *jail) (opened []*os.File, err error) {
	uid := s.uid.UID()
	j.files = []file{{name: rootFile, file: m.Image.Root}}
	if m.Image.Own {
		return nil, errors.New("firecracker maps the memory file of a restored machine privately: the machine cannot own it")
	}
	if m.Image.State != nil {
		state, err := readState(m.Image.State)
		if err != nil {
			return nil, err
		}
		j.copies = map[string][]byte{stateFile: state}
		j.files = append(j.files, file{name: memoryFile, file: m.Image.Memory})
	} else {
		kernel, initrd, err := bootFiles(m.Image, d.version.less(unpacked))
		if err != nil {
			return nil, err
		}
		j.copies = map[string][]byte{kernelFile: kernel, initrdFile: initrd}
		if onDisk(m.Image.Memory) {
			s.saved = m.Image.Memory
			if err := s.saved.Chown(uid, uid); err != nil {
				return nil, err
			}
			j.files = append(j.files, file{name: memoryFile, file: m.Image.Memory, write: true})
		}
	}
	if m.Scratch == nil {
		return nil, nil
	}
	info, err := m.Scratch.Stat()
	if err != nil {
		return nil, fmt.Errorf("scratch disk: %w", err)
	}
	j.maxFile = max(j.maxFile, info.Size())
	if err := m.Scratch.Chown(uid, uid); err != nil {
		return nil, fmt.Errorf("scratch disk: %w", err)
	}
	disk, err := s.uid.Name(m.Scratch)
	if err != nil {
		return nil, fmt.Errorf("scratch disk: %w", err)
	}
	j.files = append(j.files, file{name: scratchFile, file: disk, write: true})
	return []*os.File{disk}, nil
}

// readState reads the device state.
func readState(f *os.File) ([]byte, error) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxState+1))
	if err == nil && len(b) > maxState {
		err = fmt.Errorf("it has more than %d bytes", maxState)
	}
	if err != nil {
		return nil, fmt.Errorf("read the device state: %w", err)
	}
	return b, nil
}

// onDisk reports whether f is a file with a name: an anonymous file cannot be mounted.
func onDisk(f *os.File) bool {
	var st unix.Stat_t
	return f != nil && unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink > 0
}

// Kill implements remote.Process. An error means that it has ended.
func (s *spawned) Kill() { _ = s.process.handle.Kill() }

// Waited implements remote.Process.
func (s *spawned) Waited() <-chan struct{} { return s.process.waited }

// End implements remote.Process, given the state of the shell that started Firecracker.
func (s *spawned) End() string {
	if code := s.process.state.ExitCode(); code > 128 {
		return "signal: " + syscall.Signal(code-128).String()
	}
	return s.process.state.String()
}

// Quote implements remote.Process.
func (s *spawned) Quote() string { return s.stderr.Quote() }

// UsedMemory returns what the machine uses, see confine.UsedMemory.
func (s *spawned) UsedMemory() (int64, error) { return s.cgroup.UsedMemory() }

// Remove implements remote.Process. After a start that failed, any part may be missing.
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
		errs = append(errs, err, s.process.root.Close())
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

// Dial implements fcProcess.
func (s *spawned) Dial(ctx context.Context, socket string) (net.Conn, error) {
	if socket != apiSocket && socket != vsockSocket {
		return nil, fmt.Errorf("firecracker has no socket %.40q", socket)
	}
	fd, err := s.process.open(socket, unix.O_PATH)
	if err == nil {
		return dialOwned(ctx, fd, socket, s.uid.UID())
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = errNotListening
	}
	return nil, &os.PathError{Op: "connect", Path: socket, Err: err}
}

// Memory implements fcProcess.
func (s *spawned) Memory(ctx context.Context) (maps, mem *os.File, err error) {
	pid, err := s.pid(ctx)
	if err != nil {
		return nil, nil, err
	}
	// The directory stays that of one process: what has the PID later is another one.
	dir, err := os.OpenRoot(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return nil, nil, err
	}
	defer dir.Close()
	status, err := dir.ReadFile("status")
	if err != nil {
		return nil, nil, err
	}
	if uid := s.uid.UID(); !runsAs(string(status), uid) {
		return nil, nil, fmt.Errorf("process %d does not run as uid %d: firecracker has ended", pid, uid)
	}
	if maps, err = dir.Open("maps"); err != nil {
		return nil, nil, err
	}
	if mem, err = dir.Open("mem"); err != nil {
		return nil, nil, errors.Join(err, maps.Close())
	}
	return maps, mem, nil
}

// runsAs reports whether the status of a process (proc_pid_status(5)) has no other uid than this one.
func runsAs(status string, uid int) bool {
	for line := range strings.Lines(status) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			return strings.TrimSpace(ids) == strings.TrimSuffix(strings.Repeat(fmt.Sprintf("%d\t", uid), 4), "\t")
		}
	}
	return false
}

// pid returns Firecracker's process, which is not the shell's.
func (s *spawned) pid(ctx context.Context) (int, error) {
	conn, err := s.Dial(ctx, apiSocket)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	peer, err := privsep.PeerOf(conn.(*net.UnixConn))
	return peer.PID, err
}

// Saved implements fcProcess.
func (s *spawned) Saved(context.Context) (state *os.File, err error) {
	if s.saved == nil {
		return nil, errNotSaved
	}
	fd, err := s.process.open("/"+newState, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), newState)
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	// A restored machine reads the memory with another uid. The directory of the file is root's alone.
	if err = errors.Join(err, s.saved.Chown(0, 0), s.saved.Chmod(0o444)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
