package firecracker

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/vmm/confine"
	"github.com/custody-project/custody/vmm/remote"
)

// jailBase is where a machine's tmpfs is mounted, in the machine's own mount namespace. On the host it stays an empty
// directory.
const jailBase = "/run/custody/firecracker"

// jailSize bounds the tmpfs: the program, an unpacked kernel and the device state.
const jailSize = "256m"

// file is a file of the host that a Firecracker process sees.
type file struct {
	name  string // in the root directory
	file  *os.File
	write bool
}

// jail describes a Firecracker process.
type jail struct {
	uid     int
	paths   Paths
	files   []file
	copies  map[string][]byte // files with these contents, which the process can read
	network func(uid int) error
	stdout  *os.File // nil: stderr
	stderr  *os.File
	maxFile int64 // size limit of the files that it writes, in bytes
	admit   func(pid int) error
}

// process is the shell that is the first process of the machine's pid namespace. The kernel kills it when the thread
// that started it ends, and so when Custody ends, and with it Firecracker.
type process struct {
	handle *os.Process
	waited chan struct{} // closed when the process was reaped
	state  *os.ProcessState
	root   *os.File // the root directory of Firecracker
}

// gate keeps the jailer waiting until the shell is in the machine's control group. It is not replaced by the jailer,
// since the kernel no longer kills a process with its parent once its uid has changed.
const gate = `read -r _ <&3 || exit 1; exec 3<&-; "$@"; exit $?`

// start starts the process and returns when it is in its control group.
func (j jail) start() (*process, error) {
	if err := os.MkdirAll(jailBase, 0o700); err != nil {
		return nil, err
	}
	p := &process{waited: make(chan struct{})}
	started := make(chan error, 1)
	confine.OffMainThread(func() {
		defer close(p.waited)
		err := j.launch(p)
		started <- err
		if err == nil {
			p.state, _ = p.handle.Wait()
		}
	})
	if err := <-started; err != nil {
		if p.root != nil {
			p.root.Close()
		}
		return nil, fmt.Errorf("start firecracker: %w", err)
	}
	return p, nil
}

// launch prepares the calling thread, which ends with the process, and starts the shell.
func (j jail) launch(p *process) error {
	trees, err := j.openTrees()
	defer func() {
		for _, fd := range trees {
			unix.Close(fd)
		}
	}()
	if err != nil {
		return err
	}
	if err := j.network(j.uid); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := j.buildRoot(trees); err != nil {
		return err
	}
	if p.root, err = os.OpenFile(j.root(), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	if err := confine.LeaveKeyring(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	p.handle, err = j.spawn()
	return err
}

// id is the jailer's name of the machine.
func (j jail) id() string { return strconv.Itoa(j.uid) }

// root is the directory that the jailer makes Firecracker's root.
func (j jail) root() string {
	return filepath.Join(jailBase, filepath.Base(j.paths.Firecracker), j.id(), "root")
}

// openTrees returns a detached mount of each file. It is called before the thread leaves the mount namespace in which
// the files were opened, since a file can be mounted from its own namespace only.
func (j jail) openTrees() (trees []int, err error) {
	for _, f := range j.files {
		fd, err := unix.OpenTree(int(f.file.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
		if err != nil {
			return trees, fmt.Errorf("mount %s (needs Linux 5.2): %w", f.name, err)
		}
		trees = append(trees, fd)
	}
	return trees, nil
}

// buildRoot mounts the machine's tmpfs and the files in it.
func (j jail) buildRoot(trees []int) error {
	if err := unix.Mount("custody", jailBase, "tmpfs", unix.MS_NOSUID, "size="+jailSize+",mode=700"); err != nil {
		return fmt.Errorf("mount %s: %w", jailBase, err)
	}
	if err := os.MkdirAll(j.root(), 0o700); err != nil {
		return err
	}
	for name, content := range j.copies {
		if err := os.WriteFile(filepath.Join(j.root(), name), content, 0o444); err != nil {
			return err
		}
	}
	for i, f := range j.files {
		if err := j.mountFile(f, trees[i]); err != nil {
			return fmt.Errorf("mount %s: %w", f.name, err)
		}
	}
	return nil
}

func (j jail) mountFile(f file, tree int) error {
	target := filepath.Join(j.root(), f.name)
	if err := os.WriteFile(target, nil, 0o400); err != nil {
		return err
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return err
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if !f.write {
		flags |= unix.MS_RDONLY
	}
	return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|flags, "")
}

// apiSocket and vsockSocket are paths in Firecracker's root directory.
const (
	apiSocket   = "/api.sock"
	vsockSocket = "/v.sock"
)

// maxFiles is the number of descriptors that a Firecracker process can have.
const maxFiles = 256

func (j jail) spawn() (*os.Process, error) {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	wait, open, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer open.Close()
	defer wait.Close()
	// The process must not inherit descriptors that Custody inherited from its caller.
	if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, fmt.Errorf("keep descriptors from the process (needs Linux 5.11): %w", err)
	}
	stdout := j.stdout
	if stdout == nil {
		stdout = j.stderr
	}
	p, err := os.StartProcess("/bin/sh", append([]string{"sh", "-c", gate, "sh"}, j.command()...), &os.ProcAttr{
		Dir:   "/",
		Env:   []string{"PATH=/usr/bin:/bin"},
		Files: []*os.File{null, stdout, j.stderr, wait},
		Sys:   &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS, Pdeathsig: syscall.SIGKILL, Setsid: true},
	})
	if err != nil {
		return nil, err
	}
	err = unix.Prlimit(p.Pid, unix.RLIMIT_CORE, &unix.Rlimit{}, nil)
	if err == nil {
		err = j.admit(p.Pid)
	}
	if err == nil {
		_, err = open.Write([]byte("\n"))
	}
	if err != nil {
		_ = p.Kill() // fails only if the process has ended
		_, _ = p.Wait()
		return nil, err
	}
	return p, nil
}

// command is the jailer's command line.
func (j jail) command() []string {
	uid := strconv.Itoa(j.uid)
	return []string{
		j.paths.Jailer, "--id", j.id(), "--exec-file", j.paths.Firecracker, "--uid", uid, "--gid", uid, "--chroot-base-dir", jailBase,
		"--resource-limit", "fsize=" + strconv.FormatInt(j.maxFile, 10), "--resource-limit", "no-file=" + strconv.Itoa(maxFiles),
		"--", "--api-sock", apiSocket, "--level", "Error",
	}
}

// open opens a file in Firecracker's root directory. It follows no link: the process could lead Custody to a file of the host.
func (p *process) open(path string, flags int) (fd int, err error) {
	raw, err := p.root.SyscallConn()
	if err != nil {
		return -1, err
	}
	closed := raw.Control(func(root uintptr) {
		fd, err = unix.Openat(int(root), strings.TrimPrefix(path, "/"), flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err := errors.Join(closed, err); err != nil {
		return -1, err
	}
	return fd, nil
}

// killTimeout bounds the wait for a killed process. A process in a system call that hangs,
// for example in a broken KVM, ends only when the call returns.
const killTimeout = 10 * time.Second

// kill ends all processes of the machine and waits until they have been reaped.
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
