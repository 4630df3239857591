package cell

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/moby/sys/user"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
)

// A step's secrets lie in a tmpfs that every cell has, mounted when the cell is
// prepared, and in the environment of the command. Init writes them and keeps
// nothing:
//
//	mounted, empty --> deposit --> the step runs --> its processes are killed --> zeroed, gone
//	                                    |                                             ^
//	                                    +-- Wipe: zeroed, unmounted, the step goes on +
//	                                              |    ^
//	             of a session, suspended: Deliver v    | Wipe
//	                              another tmpfs with new files
//
// A step may have copied what it has read anywhere; the kernel
// zeroes that memory when it is freed (init_on_free).
const (
	secretsOptions = "size=8m,nr_inodes=256,mode=700"
	secretsFlags   = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
)

// environment returns a command's variables, each followed by a NUL, and
// those with secrets, to be erased. Secrets take precedence over others with their name.
func environment(cmd channel.Command) (all, secret []cstring) {
	if len(cmd.Secrets) == 0 {
		return cstrings(cmd.Env), nil
	}
	taken := map[string]bool{channel.SecretsEnv: true}
	for _, s := range cmd.Secrets {
		if s.Env == "" {
			continue
		}
		taken[s.Env] = true
		b := make([]byte, 0, len(s.Env)+1+len(s.Value)+1)
		b = append(append(append(append(b, s.Env...), '='), s.Value...), 0)
		secret = append(secret, b)
	}
	for _, kv := range cmd.Env {
		if name, _, _ := strings.Cut(kv, "="); !taken[name] {
			all = append(all, cstring(kv+"\x00"))
		}
	}
	all = append(all, cstring(channel.SecretsEnv+"="+channel.SecretsDir+"\x00"))
	return append(all, secret...), secret
}

func erase(list []cstring) {
	for _, b := range list {
		clear(b)
	}
}

// shellFile returns the variables as a shell reads them. Nothing is copied out of its buffer.
func shellFile(all []channel.Secret) []byte {
	const head, foot, quote = "export ", "'\n", `'\''`
	size := 0
	for _, s := range all {
		if s.Env != "" {
			size += len(head) + len(s.Env) + 2 + len(s.Value) + bytes.Count(s.Value, []byte("'"))*(len(quote)-1) + len(foot)
		}
	}
	b := make([]byte, 0, size)
	for _, s := range all {
		if s.Env == "" {
			continue
		}
		b = append(append(append(b, head...), s.Env...), "='"...)
		for i, part := range bytes.Split(s.Value, []byte("'")) {
			if i > 0 {
				b = append(b, quote...)
			}
			b = append(b, part...)
		}
		b = append(b, foot...)
	}
	return b
}

// holder is the process whose mount namespace has the tmpfs.
func (s *shell) holder() process {
	if s.own {
		return s.main.process
	}
	return s.first
}

// secretsDir opens the cell's tmpfs as long as its holder lives, which must not have executed anything of the workload: that could have
// changed its root. It returns -1 when it is not mounted any more. Nothing in the cell can put
// another in its place: both directories on the way are mount points.
func (s *shell) secretsDir() (int, error) {
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", s.holder().pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open the cell's root: %w", err)
	}
	defer unix.Close(root)
	how := &unix.OpenHow{Flags: unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	dir, err := unix.Openat2(root, channel.SecretsDir[1:], how)
	if err != nil {
		return -1, fmt.Errorf("open the cell's secrets: %w", err)
	}
	var in, out unix.Stat_t
	if err := errors.Join(unix.Fstat(dir, &in), unix.Fstatat(dir, "..", &out, 0)); err != nil || in.Dev == out.Dev {
		unix.Close(dir)
		return -1, err
	}
	return dir, nil
}

// deposit writes the files of a step's secrets, for root or the user who executes it. Nothing of the step runs yet.
func (s *shell) deposit(all []channel.Secret, who *user.ExecUser) error {
	if len(all) == 0 {
		return nil
	}
	dir, err := s.secretsDir()
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return write(dir, all, who)
}

// write writes the files of secrets into an empty directory.
func write(dir int, all []channel.Secret, who *user.ExecUser) error {
	env := shellFile(all)
	defer clear(env)
	if len(env) > 0 {
		if err := writeAt(dir, "env", env); err != nil {
			return err
		}
	}
	for _, item := range all {
		if item.File == "" {
			continue
		}
		if err := writeAt(dir, item.File, item.Value); err != nil {
			return err
		}
	}
	if who == nil {
		return nil
	}
	return give(dir, all, who)
}

// give makes a user the owner of the files in a directory of secrets.
func give(dir int, all []channel.Secret, who *user.ExecUser) error {
	names := []string{"env"}
	for _, item := range all {
		for name := item.File; name != "" && name != "."; name = path.Dir(name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if err := unix.Fchownat(dir, name, who.Uid, who.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil && err != unix.ENOENT {
			return fmt.Errorf("give the step's secrets to its user: %w", err)
		}
	}
	return os.NewSyscallError("fchown", unix.Fchown(dir, who.Uid, who.Gid))
}

// writeAt makes a file, and the directories in its name.
func writeAt(dir int, name string, value []byte) error {
	for i, c := range name {
		if c == '/' {
			if err := unix.Mkdirat(dir, name[:i], 0o700); err != nil && err != unix.EEXIST {
				return fmt.Errorf("make a directory for the step's secrets: %w", err)
			}
		}
	}
	fd, err := unix.Openat(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o400)
	if err != nil {
		return fmt.Errorf("make the file of a secret: %w", err)
	}
	defer unix.Close(fd)
	n, err := unix.Write(fd, value)
	if err == nil && n < len(value) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return fmt.Errorf("write the file of a secret: %w", err)
	}
	return nil
}

// zeroTree overwrites and removes the contents of a directory of a secrets' tmpfs. The
// step may be writing to it: zeroTree also removes files of the step, if it finds them.
func zeroTree(dir int) error {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("list the step's secrets: %w", err)
	}
	f := os.NewFile(uintptr(fd), "secrets")
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("list the step's secrets: %w", err)
	}
	var errs []error
	for _, name := range names {
		if err := zeroEntry(dir, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("zero the step's secrets: %w", err))
		}
	}
	return errors.Join(errs...)
}

func zeroEntry(dir int, name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		sub, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		err = zeroTree(sub)
		unix.Close(sub)
		return errors.Join(err, unix.Unlinkat(dir, name, unix.AT_REMOVEDIR))
	case unix.S_IFREG:
		if err := zeroFile(dir, name); err != nil {
			return err
		}
	}
	return unix.Unlinkat(dir, name, 0)
}

// mostZeroed is the capacity of the tmpfs; a file can be longer only if it has holes.
const mostZeroed = 8 << 20

var zeros [4096]byte // never written

func zeroFile(dir int, name string) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	for at := int64(0); at < min(st.Size, mostZeroed); at += int64(len(zeros)) {
		if _, err := unix.Pwrite(fd, zeros[:min(int64(len(zeros)), st.Size-at)], at); err != nil {
			return err
		}
	}
	return unix.Ftruncate(fd, 0)
}

// Wipe implements channel.Cell: it removes the files; the command continues.
func (c *cell) Wipe() error {
	c.ending.Lock()
	defer c.ending.Unlock()
	if c.finished || !c.secret {
		return nil
	}
	dir, err := c.shell.secretsDir()
	if err != nil {
		return err
	}
	if dir < 0 {
		return nil
	}
	err = zeroTree(dir)
	unix.Close(dir)
	return errors.Join(err, c.shell.holder().inMounts(unmountSecrets))
}

// unmountSecrets adds a call that detaches the tmpfs from the cell's namespace. It is freed when no process of the cell has it open.
func unmountSecrets(p *program) {
	p.call("unmount the secrets", unix.SYS_UMOUNT2, channel.SecretsDir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
}

// inMounts makes calls in the process's mount namespace, at its root.
func (p process) inMounts(calls func(*program)) error {
	list := &program{}
	list.call("enter the cell", unix.SYS_SETNS, p.pidfd, unix.CLONE_NEWNS)
	calls(list)
	list.call("end", unix.SYS_EXIT_GROUP, 0)
	child, err := list.start(0, -1)
	if err != nil {
		return err
	}
	child.wait()
	return nil
}

// mountSecrets adds the calls that make the tmpfs, before the cell has changed its root.
func (b *Block) mountSecrets(p *program) {
	at := path.Join(b.config.Root, channel.SecretsDir)
	p.call("make "+channel.SecretsDir, unix.SYS_MKDIRAT, unix.AT_FDCWD, at, 0o700)
	p.call("mount "+channel.SecretsDir, unix.SYS_MOUNT, "tmpfs", at, "tmpfs", secretsFlags, secretsOptions)
}
