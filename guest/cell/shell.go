package cell

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
)

// shell is a prepared cell without a command: namespaces, mounts, a control
// group, the sleeping first process of its pid namespace, and the
// process that will execute the command, which is already confined and sleeps, too.
//
//	newShell --> waits for a command --> main runs it --> end
//	                                                       |
//	                         control group killed, both processes reaped:
//	                         the kernel lets the first one go only when
//	                         the pid namespace is empty
type shell struct {
	group *group
	first process
	main  *child
	pipes pipes // of main's standard streams
	// own is set if main has a mount namespace of its own, with its own secrets: first is shared with other commands.
	own bool
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
	s := &shell{group: g}
	if s.first, err = b.newFirst(g); err != nil {
		g.remove()
		return nil, err
	}
	if err := b.newMain(s); err != nil {
		g.kill()
		s.first.wait()
		g.remove()
		return nil, err
	}
	return s, nil
}

// newFirst makes the namespaces, and the process that keeps them alive.
func (b *Block) newFirst(g *group) (process, error) {
	p := &program{}
	b.mountRoot(p)
	b.confine.apply(p)
	b.holdNamespace(p)
	flags := unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	return p.start(uint64(flags), g.fd)
}

// holdNamespace makes a pid namespace's first process sleep forever.
func (b *Block) holdNamespace(p *program) {
	p.call("ignore children", unix.SYS_RT_SIGACTION, int(unix.SIGCHLD), unsafe.Pointer(&sigaction{handler: ignore}), 0, 8)
	p.call("mark descriptors", unix.SYS_CLOSE_RANGE, 0, uintptr(^uint32(0)), unix.CLOSE_RANGE_CLOEXEC)
	p.call("sleep", unix.SYS_EXECVEAT, b.reaper, "", []string{"cell"}, []string(nil), unix.AT_EMPTY_PATH)
}

// newMain makes the process that will execute the command. It shares init's
// memory until then, but nothing of the workload runs that could look at it.
func (b *Block) newMain(s *shell) (err error) {
	if s.pipes, err = openPipes(); err != nil {
		return err
	}
	p := &program{}
	p.call("enter the cell", unix.SYS_SETNS, s.first.pidfd, unix.CLONE_NEWNS|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS|unix.CLONE_NEWCGROUP)
	if s.own {
		p.call("make a mount namespace", unix.SYS_UNSHARE, unix.CLONE_NEWNS)
		p.call("mount "+channel.SecretsDir, unix.SYS_MOUNT, "tmpfs", channel.SecretsDir, "tmpfs", secretsFlags, secretsOptions)
	}
	p.call("start a session", unix.SYS_SETSID)
	p.call("set umask", unix.SYS_UMASK, 0o022)
	limit(p, unix.RLIMIT_NOFILE, 1024, 4096)
	limit(p, unix.RLIMIT_CORE, 0, 0) // a core would put a step's secrets on the disk
	b.confine.apply(p)
	s.main, err = p.startSleeper(s.group.fd, s.first.pidfd, s.pipes.theirs, b.config.Sentry)
	s.pipes.closeTheirs()
	if err != nil {
		s.pipes.closeOurs()
	}
	return err
}

// mountRoot mounts the cell's file systems and makes the overlay its root.
// /dev and /sys are mounted there already, read-only and shared by all cells.
func (b *Block) mountRoot(p *program) {
	in := func(dir string) string { return filepath.Join(b.config.Root, dir) }
	const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	p.call("make a control group namespace", unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP)
	p.call("mount /proc", unix.SYS_MOUNT, "proc", in("proc"), "proc", quiet|unix.MS_RDONLY, 0)
	p.call("mount /dev/pts", unix.SYS_MOUNT, "devpts", in("dev/pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, ptsOptions)
	p.call("mount /dev/shm", unix.SYS_MOUNT, "tmpfs", in("dev/shm"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, shmOptions)
	p.call("mount /run", unix.SYS_MOUNT, "tmpfs", in("run"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, runOptions)
	b.mountSecrets(p)
	p.call("enter the root", unix.SYS_CHDIR, b.config.Root)
	p.call("change the root", unix.SYS_PIVOT_ROOT, ".", ".") // the old root now lies on top of the new
	p.call("leave the guest's root", unix.SYS_UMOUNT2, ".", unix.MNT_DETACH)
	p.call("enter the root", unix.SYS_CHDIR, "/")
}

// kill kills all processes of the cell, or of a session's command. The caller must still reap the shell's own processes.
func (s *shell) kill() {
	if err := s.group.kill(); err != nil {
		unix.Kill(s.holder().pid, unix.SIGKILL) // the end of a pid namespace's first process is the end of all
	}
}

// alone reports whether only the cell's first process is left, which runs
// nothing; the command's end can then be reported before the cell is removed.
func (s *shell) alone() bool {
	b, err := os.ReadFile(filepath.Join(s.group.path, "cgroup.procs"))
	return err == nil && strings.TrimSpace(string(b)) == strconv.Itoa(s.first.pid)
}

// discard removes a shell that never ran a command.
func (s *shell) discard() error {
	s.kill()
	s.pipes.closeOurs()
	s.main.close()
	s.main.wait()
	s.first.wait()
	return s.group.remove()
}

// sigaction is the kernel's struct sigaction, not libc's.
type sigaction struct {
	handler, flags, restorer, mask uint64
}

// ignore adds a call that ignores a signal. If SIGCHLD is ignored, the kernel reaps a process's children.
const ignore = 1

// limit sets a resource limit; the Go runtime has raised init's.
func limit(p *program, resource int, soft, hard uint64) {
	p.call("set limits", unix.SYS_PRLIMIT64, 0, resource, unsafe.Pointer(&unix.Rlimit{Cur: soft, Max: hard}), 0)
}
