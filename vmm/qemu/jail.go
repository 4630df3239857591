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

	"golang.org/x/sys/unix"
)

// A jail is what a QEMU process is started in, as if it were hostile already:
// an unprivileged uid of its own; mount, pid, network, ipc and uts namespaces
// of its own; a root directory that holds the program, its libraries and
// firmware, read-only, and two device nodes; an empty keyring; no_new_privs;
// and an end that comes with the thread that started it. Files reach it as descriptors.
type jail struct {
	uid     int
	binary  string
	args    []string
	files   []*os.File // become descriptors 3, 4, ...
	stdout  *os.File   // nil discards
	stderr  *os.File
	lends   map[string]*os.File // paths whose opening for writing is answered with these
	reads   map[string]string   // files to be read: path in the jail to path on the host
	longest int64               // file that it may write, in bytes; 0 is no limit
}

// jailRoot is where the root is put together, inside the process's own mount
// namespace: on the host it stays an empty directory.
const jailRoot = "/run/custody/jail"

// inmate is a started process. Its thread stays with it: the kernel kills the
// process when that thread ends (PR_SET_PDEATHSIG), hence with Custody.
type inmate struct {
	process *os.Process
	waited  chan struct{} // closed when the process was reaped
	state   *os.ProcessState
	lender  *lender
}

// start starts the process and returns when it runs.
func (j jail) start() (*inmate, error) {
	if err := os.MkdirAll(jailRoot, 0o700); err != nil {
		return nil, err
	}
	in := &inmate{waited: make(chan struct{})}
	started := make(chan error, 1)
	offMainThread(func() {
		defer close(in.waited)
		err := j.enter(in)
		if err == nil {
			in.process, err = j.spawn()
		}
		if err != nil && in.lender != nil {
			in.lender.close()
		}
		started <- err
		if err == nil {
			in.state, _ = in.process.Wait()
			in.lender.close()
		}
	})
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(j.binary), err)
	}
	return in, nil
}

// offMainThread runs f on a thread of its own that ends with f. The main thread
// would not end, and its namespaces are what /proc/self shows of this process.
func offMainThread(f func()) {
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is not fit for other goroutines afterwards
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		done := make(chan struct{})
		offMainThread(func() {
			defer close(done)
			f()
		})
		<-done
		runtime.UnlockOSThread()
	}()
}

func (j jail) spawn() (*os.Process, error) {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	// What the caller left open for us is none of QEMU's business.
	if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, fmt.Errorf("keep descriptors from the process (needs Linux 5.11): %w", err)
	}
	stdout := j.stdout
	if stdout == nil {
		stdout = null
	}
	// A process with the process's uid may limit it, without a capability for that.
	if err := beReally(j.uid); err != nil {
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
		process.Kill() // an error: it has ended
		process.Wait()
		return nil, err
	}
	return process, nil
}

// beReally changes the calling thread's real uid and gid; what it may do follows from its effective ones.
func beReally(id int) error {
	const same = ^uintptr(0)
	for _, call := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
		if _, _, errno := unix.RawSyscall(call, uintptr(id), same, same); errno != 0 { // not package syscall's, which are for all threads
			return fmt.Errorf("take the process's uid: %w", errno)
		}
	}
	return nil
}

// limit bounds what the process writes. It has been given nothing yet that could have taken it over.
func (j jail) limit(pid int) error {
	limits := map[int]uint64{unix.RLIMIT_CORE: 0}
	if j.longest > 0 {
		limits[unix.RLIMIT_FSIZE] = uint64(j.longest)
	}
	for resource, most := range limits {
		if err := unix.Prlimit(pid, resource, &unix.Rlimit{Cur: most, Max: most}, nil); err != nil {
			return fmt.Errorf("limit what it writes: %w", err)
		}
	}
	return nil
}

// enter puts the calling thread into the jail's mount namespace and root, with
// no_new_privs and the lender's filter on it; a child inherits all of that.
func (j jail) enter(in *inmate) error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare mount namespace (Custody must run as root): %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := j.buildRoot(); err != nil {
		return err
	}
	if err := leaveKeyring(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	// Huge pages would triple what an idle machine's code buffer takes.
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("switch huge pages off: %w", err)
	}
	l, err := newLender(j.lends)
	if err != nil {
		return err
	}
	in.lender = l
	return nil
}

// leaveKeyring gives the calling thread an empty session keyring: with its own it would pass on what the
// caller keeps there, such as tickets of Kerberos and keys of encrypted directories.
func leaveKeyring() error {
	_, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
	if err == nil {
		return nil
	}
	// Without keyrings in the kernel there is nothing to pass on. A filter that keeps us from them keeps the process, too.
	if _, none := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false); errors.Is(none, err) {
		return nil
	}
	return fmt.Errorf("leave the session's keyring: %w", err)
}

func (j jail) buildRoot() error {
	if err := unix.Mount("jail", jailRoot, "tmpfs", unix.MS_NOSUID, "size=1m,mode=755"); err != nil {
		return fmt.Errorf("mount the jail's root: %w", err)
	}
	binds := []string{j.binary, "/usr/share/qemu", "/usr/share/seabios", "/etc/ld.so.cache"}
	binds = append(binds, libraryDirs()...)
	for _, path := range binds {
		if err := bind(path, path, unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV); err != nil {
			return err
		}
	}
	for target, path := range j.reads {
		if err := bind(path, target, unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC); err != nil {
			return err
		}
	}
	for _, path := range []string{"/dev/null", "/dev/urandom"} {
		if err := bind(path, path, unix.MS_NOSUID|unix.MS_NOEXEC); err != nil {
			return err
		}
	}
	for _, link := range []string{"lib", "lib64"} {
		if to, err := os.Readlink("/" + link); err == nil {
			if err := os.Symlink(to, filepath.Join(jailRoot, link)); err != nil {
				return err
			}
		}
	}
	return changeRoot()
}

// libraryDirs are where the dynamic linker finds QEMU's libraries.
func libraryDirs() []string {
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	return []string{"/usr/lib/" + triplet, "/usr/lib64", "/lib/" + triplet, "/lib64"}
}

// bind makes a path of the host visible in the jail as name. What the host does not
// have, or reaches only through a link to another entry, is left out.
func bind(path, name string, flags uintptr) error {
	parent, err := os.Lstat(filepath.Dir(path))
	if err != nil || (parent.Mode()&os.ModeSymlink != 0) {
		return nil
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSymlink != 0 {
		return nil
	}
	target := filepath.Join(jailRoot, name)
	if info.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(target), 0o755); err == nil {
		err = os.WriteFile(target, nil, 0o644)
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(path, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s into the jail: %w", path, err)
	}
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		return fmt.Errorf("restrict %s in the jail: %w", path, err)
	}
	return nil
}

func changeRoot() error {
	if err := unix.Mount("", jailRoot, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID, ""); err != nil {
		return fmt.Errorf("make the jail's root read-only: %w", err)
	}
	if err := unix.Chdir(jailRoot); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot into the jail: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the host's root: %w", err)
	}
	return unix.Chdir("/")
}

// killPatience bounds the wait for a killed process: one that hangs in a call into the kernel,
// such as one of a broken KVM, does not end before the call does.
const killPatience = 10 * time.Second

// errStuck means that a process was killed and does not end.
var errStuck = errors.New("does not end though it was killed: a call into the kernel hangs")

// kill ends the process and waits until it was reaped.
func (in *inmate) kill() error {
	err := in.process.Kill()
	select {
	case <-in.waited:
	case <-time.After(killPatience):
		return fmt.Errorf("process %d %w", in.process.Pid, errStuck)
	}
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}
