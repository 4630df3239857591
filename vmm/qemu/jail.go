package qemu

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/custody-project/custody/internal/seccomp"
	"github.com/custody-project/custody/vmm/confine"
	"github.com/custody-project/custody/vmm/remote"
	"golang.org/x/sys/unix"
)

// A jail confines a QEMU process from its start, as if it were hostile: an unprivileged uid that
// no other process has; new mount, pid, network, ipc and uts namespaces; a root directory that contains
// only the program, its libraries and firmware, read-only, and two device nodes; an empty keyring; and
// no_new_privs. The kernel kills it when the thread that started it ends. It gets files as descriptors.
type jail struct {
	uid     int
	binary  string
	args    []string
	files   []*os.File // become descriptors 3, 4, ...
	stdout  *os.File   // nil discards
	stderr  *os.File
	opens   map[string]*os.File // by path: what the process gets when it opens the path for reading and writing
	binds   map[string]string   // read-only files: path in the jail to path on the host
	maxFile int64               // size limit of files that it writes, in bytes; 0: no limit
}

// process is a started process. The thread that started it waits for it: the kernel kills the
// process when that thread ends (PR_SET_PDEATHSIG), and so when Custody ends.
type process struct {
	handle *os.Process
	waited chan struct{} // closed when the process was reaped
	state  *os.ProcessState
	opens  *openHandler
}

// start starts the process and returns when it is running.
func (j jail) start() (*process, error) {
	p := &process{waited: make(chan struct{})}
	started := make(chan error, 1)
	confine.OffMainThread(func() {
		defer close(p.waited)
		err := j.enter(p)
		if err == nil {
			p.handle, err = j.spawn()
		}
		if err != nil && p.opens != nil {
			p.opens.close()
		}
		started <- err
		if err == nil {
			p.state, _ = p.handle.Wait()
			p.opens.close()
		}
	})
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(j.binary), err)
	}
	return p, nil
}

func (j jail) spawn() (*os.Process, error) {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	// QEMU must not inherit descriptors that Custody inherited from its caller.
	if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, fmt.Errorf("keep descriptors from the process (needs Linux 5.11): %w", err)
	}
	stdout := j.stdout
	if stdout == nil {
		stdout = null
	}
	// With the same real uid, this thread can set the process's limits without a capability.
	if err := setRealIDs(j.uid); err != nil {
		return nil, err
	}
	process, err := os.StartProcess(j.binary, append([]string{j.binary}, j.args...), &os.ProcAttr{
		Dir:   "/",
		Env:   []string{"PATH=/usr/bin", "LANG=C.UTF-8"},
		Files: append([]*os.File{null, stdout, j.stderr}, j.files...),
		Sys: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
			Credential: &syscall.Credential{Uid: uint32(j.uid), Gid: uint32(j.uid)},
			Pdeathsig:  syscall.SIGKILL,
			Setsid:     true,
		},
	})
	if err != nil {
		return nil, err
	}
	if err := j.limit(process.Pid); err != nil {
		process.Kill() // fails only if the process has ended
		process.Wait()
		return nil, err
	}
	return process, nil
}

// setRealIDs changes the calling thread's real uid and gid. Its permissions depend on the effective ones, which stay.
func setRealIDs(id int) error {
	const same = ^uintptr(0)
	for _, call := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
		if _, _, errno := unix.RawSyscall(call, uintptr(id), same, same); errno != 0 { // package syscall's functions would change all threads
			return fmt.Errorf("take the process's uid: %w", errno)
		}
	}
	return nil
}

// limit sets the process's limits for core files and for the size of files. The process has read no input yet, so it
// cannot be compromised before they are set.
func (j jail) limit(pid int) error {
	limits := map[int]uint64{unix.RLIMIT_CORE: 0}
	if j.maxFile > 0 {
		limits[unix.RLIMIT_FSIZE] = uint64(j.maxFile)
	}
	for resource, most := range limits {
		if err := unix.Prlimit(pid, resource, &unix.Rlimit{Cur: most, Max: most}, nil); err != nil {
			return fmt.Errorf("limit the size of its files: %w", err)
		}
	}
	return nil
}

// enter moves the calling thread into the jail's mount namespace and root, and sets no_new_privs and
// the seccomp filters. A child inherits all of this.
func (j jail) enter(p *process) error {
	if err := j.root().Enter(); err != nil {
		return err
	}
	if err := confine.LeaveKeyring(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	// Huge pages would triple the memory of an idle machine's code buffer.
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("switch huge pages off: %w", err)
	}
	filter, err := seccomp.Filter(seccomp.Confining(), seccomp.LastCall) // QEMU's own -sandbox has other gaps, such as io_uring
	if err == nil {
		err = seccomp.Install(filter, false)
	}
	if err != nil {
		return err
	}
	h, err := newOpenHandler(j.opens)
	if err != nil {
		return err
	}
	p.opens = h
	return nil
}

// root returns the jail's root directory.
func (j jail) root() confine.Root {
	r := confine.Root{Links: []string{"lib", "lib64"}}
	add := func(path, name string, flags uintptr) {
		r.Binds = append(r.Binds, confine.Bind{Path: path, Name: name, Flags: unix.MS_NOSUID | flags, Optional: true})
	}
	for _, path := range append([]string{j.binary, "/usr/share/qemu", "/usr/share/seabios", "/etc/ld.so.cache"}, libraryDirs()...) {
		add(path, path, unix.MS_RDONLY|unix.MS_NODEV)
	}
	for name, path := range j.binds {
		add(path, name, unix.MS_RDONLY|unix.MS_NODEV|unix.MS_NOEXEC)
	}
	for _, path := range []string{"/dev/null", "/dev/urandom"} {
		add(path, path, unix.MS_NOEXEC)
	}
	return r
}

// libraryDirs are where the dynamic linker finds QEMU's libraries.
func libraryDirs() []string {
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	return []string{"/usr/lib/" + triplet, "/usr/lib64", "/lib/" + triplet, "/lib64"}
}

// killTimeout bounds the wait for a killed process. A process in a system call that hangs,
// for example in a broken KVM, ends only when the call returns.
const killTimeout = 10 * time.Second

// kill ends the process and waits until it has been reaped.
func (p *process) kill() error {
	err := p.handle.Kill()
	select {
	case <-p.waited:
	case <-time.After(killTimeout):
		return fmt.Errorf("process %d %w", p.handle.Pid, remote.ErrStuck)
	}
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}
