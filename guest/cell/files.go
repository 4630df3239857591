package cell

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"strings"
	"unsafe"

	"github.com/moby/sys/user"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
)

// File carries out an operation on a file of the session, as one of its users: on a thread that has this user's rights and those capabilities
// that root has in a cell, relative to the root directory of the session. A path cannot lead out of it, and /proc, with its links to other
// places, is refused. It is an error before the session has ended only if the operation failed.
func (b *Block) File(ctx context.Context, r channel.FileRequest, h channel.FileStreams) error {
	s, err := b.session.join(b)
	if err != nil {
		return err
	}
	defer s.members.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, h.Abort)()
	watch := make(chan struct{})
	defer close(watch)
	go func() {
		select {
		case <-s.closed:
			cancel()
		case <-watch:
		}
	}()
	who, err := b.userOf(&channel.Command{User: string(r.User)})
	if err != nil {
		return &channel.FileError{Code: channel.FileUser, Path: r.User}
	}
	f := &files{ctx: ctx, request: r, host: h}
	if err := f.open(s.shell); err != nil {
		return err
	}
	defer f.close()
	return b.confine.as(who, func() error { return explainFile(f.do(), &r) })
}

// as calls do on a thread with a user's rights, nil for root's in a cell. The thread ends afterwards. Goroutines that do starts have init's rights.
func (c *confinement) as(who *user.ExecUser, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlock it
		err := unix.Capset(c.header, &c.caps[0])
		if err == nil && who != nil {
			err = becomeHere(who)
		}
		if err != nil {
			done <- fmt.Errorf("become the user: %w", err)
			return
		}
		done <- do()
	}()
	return <-done
}

// becomeHere makes the calling thread, and no other, a user's. The kernel then takes its capabilities.
func becomeHere(u *user.ExecUser) error {
	groups := []uint32{uint32(u.Gid)}
	for _, g := range u.Sgids {
		groups = append(groups, uint32(g))
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])), 0); errno != 0 {
		return errno
	}
	for _, call := range []struct{ number, id uintptr }{{unix.SYS_SETRESGID, uintptr(u.Gid)}, {unix.SYS_SETRESUID, uintptr(u.Uid)}} {
		if _, _, errno := unix.RawSyscall(call.number, call.id, call.id, call.id); errno != 0 {
			return errno
		}
	}
	return nil
}

// files carries out one operation.
type files struct {
	ctx     context.Context
	request channel.FileRequest
	host    channel.FileStreams
	root    int    // of the session, a descriptor
	secrets uint64 // device of the file system for secrets, which is empty here
}

// open opens the root of a session, before the thread has a user's rights.
func (f *files) open(s *shell) (err error) {
	if f.root, err = unix.Open(fmt.Sprintf("/proc/%d/root", s.first.pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open the session's root: %w", err)
	}
	dir, err := s.secretsDir()
	if err == nil && dir < 0 {
		err = errors.New("the session has no file system for secrets")
	}
	if err != nil {
		f.close()
		return err
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		f.close()
		return err
	}
	f.secrets = uint64(st.Dev)
	return nil
}

func (f *files) close() { unix.Close(f.root) }

func (f *files) do() error {
	switch r := &f.request; r.Op {
	case channel.FileStat:
		return f.stat(string(r.Path))
	case channel.FileList:
		return f.list(string(r.Path))
	case channel.FileRead:
		return f.read(string(r.Path))
	case channel.FileWrite:
		return f.write(string(r.Path))
	case channel.FileMkdir:
		return f.mkdir(string(r.Path))
	case channel.FileRemove:
		return f.remove(string(r.Path))
	case channel.FileMove:
		return f.move(string(r.Path), string(r.To))
	case channel.FilePack:
		return f.pack(string(r.Path))
	case channel.FileWatch:
		return f.watch(string(r.Path))
	case channel.FileUnpack:
		return f.unpack(string(r.Path))
	default:
		return fmt.Errorf("the guest does not know the operation %.40q", r.Op)
	}
}

// lookup opens what a path leads to, without waiting for a FIFO or a device. It refuses the file systems that are not the session's data.
func (f *files) lookup(name string, flags int) (int, error) {
	if clean := path.Clean(name); clean == channel.SecretsDir || strings.HasPrefix(clean, channel.SecretsDir+"/") {
		return -1, refused(channel.FileSecret)
	}
	how := &unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	if flags&unix.O_PATH == 0 {
		how.Flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	}
	var fd int
	err := unix.EAGAIN
	for tries := 0; err == unix.EAGAIN && tries < 100; tries++ { // a directory of the path was moved meanwhile
		fd, err = openat2(f.root, name, how)
	}
	if err != 0 {
		return -1, err
	}
	if err := f.allowed(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func openat2(dir int, name string, how *unix.OpenHow) (int, unix.Errno) {
	fd, err := unix.Openat2(dir, name, how)
	if err == nil {
		return fd, 0
	}
	if errno := unix.Errno(0); errors.As(err, &errno) {
		return -1, errno
	}
	return -1, unix.EIO
}

// refused is a refusal by Custody, not by the kernel.
type refused channel.FileCode

func (r refused) Error() string { return string(r) }

// allowed refuses files of the kernel's interfaces and the secrets.
func (f *files) allowed(fd int) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return err
	}
	switch fs.Type {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.CGROUP_SUPER_MAGIC:
		return refused(channel.FileKernel)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if uint64(st.Dev) == f.secrets {
		return refused(channel.FileSecret)
	}
	return nil
}

// parent opens the directory of a path whose last part is a name that can be made, removed or replaced.
func (f *files) parent(name string) (dir int, base string, err error) {
	if clean := path.Clean(name); clean == channel.SecretsDir || strings.HasPrefix(clean, channel.SecretsDir+"/") {
		return -1, "", refused(channel.FileSecret)
	}
	name = strings.TrimRight(name, "/")
	at := strings.LastIndexByte(name, '/')
	base = name[at+1:]
	if base == "" || base == "." || base == ".." {
		return -1, "", unix.EINVAL
	}
	dir, err = f.lookup(name[:at+1], unix.O_PATH|unix.O_DIRECTORY)
	return dir, base, err
}

// explainFile returns the FileError for an error of the kernel.
func explainFile(err error, r *channel.FileRequest) error {
	var code channel.FileCode
	name := r.Path
	if in := (*entryError)(nil); errors.As(err, &in) {
		name, err = audit.Text(path.Join(string(r.Path), in.name)), in.err
	}
	var errno unix.Errno
	switch known := refused(""); {
	case err == nil:
		return nil
	case errors.As(err, &known):
		code = channel.FileCode(known)
	case errors.As(err, &errno):
		if code = codes[errno]; code == "" {
			return &channel.FileError{Code: channel.FileOther, Path: name, Text: errno.Error()}
		}
	default:
		return err
	}
	return &channel.FileError{Code: code, Path: name}
}

// entryError is the error of an entry of an archive.
type entryError struct {
	name string
	err  error
}

func (e *entryError) Error() string { return e.err.Error() }
func (e *entryError) Unwrap() error { return e.err }

var codes = map[unix.Errno]channel.FileCode{
	unix.ENOENT: channel.FileMissing, unix.EEXIST: channel.FileExists, unix.EACCES: channel.FileDenied, unix.EPERM: channel.FileDenied,
	unix.EROFS: channel.FileReadOnly, unix.ENOSPC: channel.FileNoSpace, unix.EDQUOT: channel.FileNoSpace, unix.ENOTDIR: channel.FileNotDirectory,
	unix.EISDIR: channel.FileIsDirectory, unix.ENOTEMPTY: channel.FileNotEmpty, unix.EBUSY: channel.FileBusy, unix.EXDEV: channel.FileAcross,
	unix.ELOOP: channel.FileTooDeep, unix.ENAMETOOLONG: channel.FileInvalid, unix.EINVAL: channel.FileInvalid, unix.ESTALE: channel.FileChanged,
	unix.ENXIO: channel.FileSpecial, unix.ENODEV: channel.FileSpecial,
}

// infoOf describes a file; dir and base name it, for the target of a link.
func infoOf(name string, st *unix.Stat_t, dir int, base string) channel.FileInfo {
	i := channel.FileInfo{
		Name: audit.Text(name), Size: st.Size, Mode: st.Mode & 0o7777, Modified: timeOf(st.Mtim), UID: st.Uid, GID: st.Gid,
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		i.Type = channel.TypeFile
	case unix.S_IFDIR:
		i.Type, i.Size = channel.TypeDirectory, 0
	case unix.S_IFLNK:
		i.Type = channel.TypeSymlink
		buf := make([]byte, unix.PathMax)
		if n, err := unix.Readlinkat(dir, base, buf); err == nil {
			i.Target = audit.Text(buf[:n])
		}
	case unix.S_IFIFO:
		i.Type = channel.TypeFIFO
	case unix.S_IFSOCK:
		i.Type = channel.TypeSocket
	default:
		i.Type = channel.TypeDevice
	}
	return i
}

// describe sends the description of an open file.
func (f *files) describe(name string, fd int) (unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return st, err
	}
	return st, f.host.Describe(infoOf(path.Base(name), &st, fd, ""))
}

// fileOf makes a descriptor an os.File without registering it with the runtime's poller.
func fileOf(fd int, name string) *os.File {
	unix.SetNonblock(fd, false)
	return os.NewFile(uintptr(fd), name)
}
