package cell

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
)

const (
	copyPiece   = 256 << 10 // bytes of content that are copied at a time
	maxNested   = 256       // directories in each other that remove goes through
	removeTries = 3         // passes over a directory to which a process adds files meanwhile
)

func timeOf(t unix.Timespec) time.Time {
	at := time.Unix(t.Unix()).UTC()
	if y := at.Year(); y < 0 || y > 9999 { // no process can set such a time by accident, and JSON has none
		return time.Time{}
	}
	return at
}

func (f *files) stat(name string) error {
	flags := unix.O_PATH
	if f.request.Link && !strings.HasSuffix(name, "/") {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := f.lookup(name, flags)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = f.describe(name, fd)
	return err
}

// list sends the first names after request.After, however many there are in the directory.
func (f *files) list(name string) error {
	fd, err := f.lookup(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	dir := fileOf(fd, name)
	defer dir.Close()
	if _, err := f.describe(name, fd); err != nil {
		return err
	}
	after, most := string(f.request.After), f.request.Max+1
	var names []string
	for {
		some, err := dir.Readdirnames(1024)
		for _, n := range some {
			if n > after {
				names = append(names, n)
			}
		}
		if ended := errors.Is(err, io.EOF); ended || len(names) > 4*most {
			slices.Sort(names)
			names = names[:min(len(names), most)]
			if ended {
				break
			}
		}
		if err == nil {
			err = f.ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	more := len(names) == most
	if more {
		names = names[:most-1]
	}
	var entries []channel.FileInfo
	for _, n := range names {
		var st unix.Stat_t
		if err := unix.Fstatat(fd, n, &st, unix.AT_SYMLINK_NOFOLLOW); err == unix.ENOENT {
			continue // gone since the directory was read
		} else if err != nil {
			return err
		}
		entries = append(entries, infoOf(n, &st, fd, n))
	}
	return f.host.List(entries, more)
}

// read sends a part of the content that the file has now.
func (f *files) read(name string) error {
	fd, err := f.lookup(name, unix.O_RDONLY)
	if err != nil {
		return err
	}
	file := fileOf(fd, name)
	defer file.Close()
	st, err := f.describe(name, fd)
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return special(&st)
	}
	size := max(0, st.Size-f.request.Offset)
	if f.request.Limit > 0 {
		size = min(size, f.request.Limit)
	}
	_, err = io.CopyBuffer(onlyWriter{f.host.Out}, io.NewSectionReader(file, f.request.Offset, size), make([]byte, copyPiece))
	return err
}

func special(st *unix.Stat_t) error {
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return unix.EISDIR
	}
	return refused(channel.FileSpecial)
}

// onlyWriter hides other methods of a writer, so that io.CopyBuffer uses its buffer.
type onlyWriter struct{ io.Writer }

// write writes a new file beside the old one, and replaces that when the content is complete. A symbolic link is replaced, not followed.
func (f *files) write(name string) error {
	dir, base, err := f.parent(name)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	var old unix.Stat_t
	err = unix.Fstatat(dir, base, &old, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err == unix.ENOENT:
		old = unix.Stat_t{}
	case err != nil:
		return err
	case f.request.Exclusive:
		return unix.EEXIST
	case old.Mode&unix.S_IFMT == unix.S_IFDIR:
		return unix.EISDIR
	}
	file, err := f.place(dir, base, f.request.Exclusive, func(to *os.File) error { return f.fill(to, &old) })
	if err != nil {
		return err
	}
	defer file.Close()
	return f.placed(dir, base, int(file.Fd()))
}

// place makes a regular file with the content that fill writes. It has its name, and replaces another file, when fill has returned.
func (f *files) place(dir int, base string, exclusive bool, fill func(*os.File) error) (*os.File, error) {
	part := ".custody-" + rand.Text()
	fd, err := unix.Openat(dir, part, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	file := fileOf(fd, part)
	if err = fill(file); err == nil {
		err = rename(dir, part, dir, base, exclusive)
	}
	if err != nil {
		file.Close()
		return nil, errors.Join(err, unix.Unlinkat(dir, part, 0))
	}
	return file, nil
}

// fill writes the content, and sets the mode, and the owner of a file that will be replaced.
func (f *files) fill(to *os.File, old *unix.Stat_t) error {
	if _, err := io.CopyBuffer(onlyWriter{to}, f.host.In, make([]byte, copyPiece)); err != nil {
		return err
	}
	if err := f.host.Complete(); err != nil {
		return err
	}
	return finish(int(to.Fd()), f.request.Mode, old)
}

// finish sets the mode of a file that was written, 0: that of the old one or 0644, and the owner of the old one.
func finish(fd int, mode uint32, old *unix.Stat_t) error {
	if old.Mode&unix.S_IFMT == unix.S_IFREG {
		unix.Fchown(fd, int(old.Uid), int(old.Gid)) // only root can, as for any process
		if mode == 0 {
			mode = old.Mode & 0o777
		}
	}
	if mode == 0 {
		mode = 0o644
	}
	return unix.Fchmod(fd, mode)
}

// placed describes the file that was written, if its name is still its own.
func (f *files) placed(dir int, base string, fd int) error {
	var now, mine unix.Stat_t
	if err := unix.Fstat(fd, &mine); err != nil {
		return err
	}
	err := unix.Fstatat(dir, base, &now, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil || now.Ino != mine.Ino || now.Dev != mine.Dev {
		return refused(channel.FileChanged)
	}
	return f.host.Describe(infoOf(base, &mine, dir, base))
}

// rename gives a file another name; if exclusive is set, one that does not exist.
func rename(dir int, base string, into int, as string, exclusive bool) error {
	if !exclusive {
		return unix.Renameat(dir, base, into, as)
	}
	err := unix.Renameat2(dir, base, into, as, unix.RENAME_NOREPLACE)
	if err != unix.EINVAL {
		return err
	}
	// The file system cannot do it in one operation, as those of gVisor.
	var st unix.Stat_t
	if err := unix.Fstatat(into, as, &st, unix.AT_SYMLINK_NOFOLLOW); err != unix.ENOENT {
		if err == nil {
			err = unix.EEXIST
		}
		return err
	}
	return unix.Renameat(dir, base, into, as)
}

func (f *files) mkdir(name string) error {
	mode := f.request.Mode
	if mode == 0 {
		mode = 0o755
	}
	if f.request.Recursive {
		parents := strings.TrimRight(name, "/")
		if err := f.parents(parents[:strings.LastIndexByte(parents, '/')+1]); err != nil {
			return err
		}
	}
	dir, base, err := f.parent(name)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	err = unix.Mkdirat(dir, base, mode)
	if err == nil {
		err = unix.Fchmodat(dir, base, mode, 0)
	} else if err == unix.EEXIST && f.request.Recursive {
		err = nil
	}
	if err != nil {
		return err
	}
	fd, err := f.lookup(name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = f.describe(name, fd)
	return err
}

// parents makes the directories of a path that are missing. It has no "..", which depends on them.
func (f *files) parents(name string) error {
	var made string
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." {
			continue
		}
		if part == ".." {
			return unix.EINVAL
		}
		made += "/" + part
		fd, err := f.lookup(made, unix.O_PATH|unix.O_DIRECTORY)
		if err == nil {
			unix.Close(fd)
			continue
		}
		if !errors.Is(err, unix.ENOENT) {
			return err
		}
		dir, base, err := f.parent(made)
		if err != nil {
			return err
		}
		err = unix.Mkdirat(dir, base, 0o755)
		unix.Close(dir)
		if err != nil && err != unix.EEXIST {
			return err
		}
	}
	return nil
}

func (f *files) remove(name string) error {
	dir, base, err := f.parent(name)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return f.removeAt(dir, base, 0)
}

// removeAt removes a name, and with request.Recursive what is in it. It follows no link.
func (f *files) removeAt(dir int, name string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return unix.Unlinkat(dir, name, 0)
	}
	var err error
	for range removeTries {
		if f.request.Recursive {
			if err := f.empty(dir, name, depth); err != nil {
				return err
			}
		}
		if err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err != unix.ENOTEMPTY || !f.request.Recursive {
			break
		}
	}
	return err
}

// empty removes what is in a directory.
func (f *files) empty(dir int, name string, depth int) error {
	if depth == maxNested {
		return refused(channel.FileTooDeep)
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	in := fileOf(fd, name)
	defer in.Close()
	if err := f.allowed(fd); err != nil {
		return err
	}
	for {
		names, err := in.Readdirnames(256)
		for _, n := range names {
			if err := f.removeAt(fd, n, depth+1); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = f.ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

func (f *files) move(from, to string) error {
	dir, base, err := f.parent(from)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	into, as, err := f.parent(to)
	if err != nil {
		return err
	}
	defer unix.Close(into)
	if err := rename(dir, base, into, as, f.request.Exclusive); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(into, as, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return f.host.Describe(infoOf(as, &st, into, as))
}
