package cell

import (
	"fmt"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// shell is a cell in which nothing runs yet: namespaces, mounts, a control
// group and the first process of its pid namespace, which only sleeps.
//
//	newShell --> waits for a command --> execute --> end
//	                                                  |
//	                         control group killed, first process reaped:
//	                         the kernel lets that happen only when the
//	                         pid namespace is empty
type shell struct {
	group *group
	first *process
}

// Sizes of a cell's file systems in memory, which count as its memory.
const (
	shmOptions = "size=25%,mode=1777"
	runOptions = "size=16m,mode=755"
	ptsOptions = "newinstance,ptmxmode=0666,mode=0620,gid=5"
)

func (b *Block) newShell(n int) (*shell, error) {
	g, err := makeGroup(filepath.Join(b.config.Group, fmt.Sprint(n)))
	if err != nil {
		return nil, err
	}
	p := newProgram()
	b.furnish(p)
	ignoreChildren(p)
	b.confine.apply(p)
	p.call("sleep", unix.SYS_EXECVEAT, b.reaper, "", []string{"cell"}, []string(nil), unix.AT_EMPTY_PATH)
	flags := unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	first, err := p.start(uint64(flags), g.fd, -1)
	if err != nil {
		g.remove()
		return nil, err
	}
	return &shell{group: g, first: first}, nil
}

// furnish mounts what a cell needs for itself and makes the overlay its root.
// /dev and /sys stand there already, read-only and shared by all cells.
func (b *Block) furnish(p *program) {
	in := func(dir string) string { return filepath.Join(b.config.Root, dir) }
	const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	p.call("make a control group namespace", unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP)
	p.call("mount /proc", unix.SYS_MOUNT, "proc", in("proc"), "proc", quiet|unix.MS_RDONLY, 0)
	p.call("mount /dev/pts", unix.SYS_MOUNT, "devpts", in("dev/pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, ptsOptions)
	p.call("mount /dev/shm", unix.SYS_MOUNT, "tmpfs", in("dev/shm"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, shmOptions)
	p.call("mount /run", unix.SYS_MOUNT, "tmpfs", in("run"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, runOptions)
	p.call("enter the root", unix.SYS_CHDIR, b.config.Root)
	p.call("change the root", unix.SYS_PIVOT_ROOT, ".", ".") // the old root now lies on top of the new
	p.call("leave the guest's root", unix.SYS_UMOUNT2, ".", unix.MNT_DETACH)
	p.call("enter the root", unix.SYS_CHDIR, "/")
}

// end kills whatever is in the cell and returns when nothing is.
func (s *shell) end() {
	if err := s.group.kill(); err != nil {
		unix.Kill(s.first.pid, unix.SIGKILL) // the end of a pid namespace's first process is the end of all
	}
	s.first.wait()
}

// sigaction is the kernel's struct sigaction, not libc's.
type sigaction struct {
	handler, flags, restorer, mask uint64
}

// ignoreChildren has the kernel reap the process's children.
func ignoreChildren(p *program) {
	p.call("ignore children", unix.SYS_RT_SIGACTION, int(unix.SIGCHLD), unsafe.Pointer(&sigaction{handler: 1}), 0, 8)
}

func unblockSignals(p *program) {
	p.call("unblock signals", unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, unsafe.Pointer(new(uint64)), 0, 8)
}

// setLimits undoes what the Go runtime did to the limit of open files, and keeps cores off the disk.
func setLimits(p *program) {
	p.call("limit open files", unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, unsafe.Pointer(&unix.Rlimit{Cur: 1024, Max: 4096}), 0)
	p.call("limit cores", unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, unsafe.Pointer(&unix.Rlimit{Cur: 0, Max: unix.RLIM_INFINITY}), 0)
}
