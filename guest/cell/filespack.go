package cell

import (
	"archive/tar"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
)

// maxName bounds the name of an entry of an archive, in bytes.
const maxName = 4095

// packer packs what is in a directory. It follows no link.
type packer struct {
	*files
	out *tar.Writer
	buf []byte
}

func (f *files) pack(name string) error {
	fd, err := f.lookup(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	if _, err := f.describe(name, fd); err != nil {
		unix.Close(fd)
		return err
	}
	p := &packer{f, tar.NewWriter(f.host.Out), make([]byte, copyPiece)}
	if err := p.directory(fd, "", 0); err != nil {
		return err
	}
	return p.out.Close()
}

// directory packs the entries of a directory, which it closes. prefix is its name with a slash at the end, empty for the top.
func (p *packer) directory(fd int, prefix string, depth int) error {
	dir := fileOf(fd, prefix)
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(256)
		for _, n := range names {
			if err := p.entry(fd, n, prefix+n, depth); err != nil && !errors.Is(err, unix.ENOENT) { // it is gone since the directory was read
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = p.ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

func (p *packer) entry(dir int, base, name string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &entryError{name, err}
	}
	if len(name) > maxName || depth >= channel.MaxDepth {
		return &entryError{name, refused(channel.FileTooDeep)}
	}
	h := &tar.Header{Name: name, Mode: int64(st.Mode & 0o777), ModTime: timeOf(st.Mtim), Format: tar.FormatPAX}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return p.below(dir, base, h, depth)
	case unix.S_IFREG:
		return p.file(dir, base, h)
	case unix.S_IFLNK:
		h.Typeflag, h.Linkname = tar.TypeSymlink, string(infoOf(base, &st, dir, base).Target)
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	case unix.S_IFCHR:
		h.Typeflag = tar.TypeChar
	case unix.S_IFBLK:
		h.Typeflag = tar.TypeBlock
	default:
		return nil // tar has no sockets
	}
	return p.out.WriteHeader(h)
}

// below packs a directory, unless it is an interface of the kernel or has secrets.
func (p *packer) below(dir int, base string, h *tar.Header, depth int) error {
	name := h.Name
	fd, err := unix.Openat(dir, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &entryError{name, err}
	}
	if err := p.allowed(fd); err != nil {
		unix.Close(fd)
		if errors.As(err, new(refused)) {
			return nil
		}
		return &entryError{name, err}
	}
	h.Typeflag, h.Name = tar.TypeDir, name+"/"
	if err := p.out.WriteHeader(h); err != nil {
		unix.Close(fd)
		return err
	}
	return p.directory(fd, name+"/", depth+1)
}

// file packs a regular file. Its name can have become that of something else.
func (p *packer) file(dir int, base string, h *tar.Header) error {
	fd, err := unix.Openat(dir, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &entryError{h.Name, err}
	}
	file := fileOf(fd, base)
	defer file.Close()
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = p.allowed(fd)
	}
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = refused(channel.FileChanged)
	}
	if err != nil {
		return &entryError{h.Name, err}
	}
	h.Typeflag, h.Size = tar.TypeReg, st.Size
	if err := p.out.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.CopyBuffer(onlyWriter{p.out}, io.LimitReader(file, h.Size), p.buf)
	if err == nil && n < h.Size { // it was truncated meanwhile
		err = refused(channel.FileChanged)
	}
	if err != nil {
		return &entryError{h.Name, err}
	}
	return nil
}

// unpacker unpacks an archive into a directory. It stays in the directory of the last entry, as most come after others of their directory, and
// follows no link: those that it makes lead nowhere.
type unpacker struct {
	*files
	top  int    // descriptor of the directory
	dir  int    // of the last entry's
	name string // of dir below top; empty: top itself
	buf  []byte
}

func (f *files) unpack(name string) error {
	top, err := f.lookup(name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	u := &unpacker{files: f, top: top, dir: top, buf: make([]byte, copyPiece)}
	defer u.leave()
	for in := tar.NewReader(f.host.In); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		entry, err := channel.EntryName(h)
		if err != nil {
			return err
		}
		if err := u.put(entry, h, in); err != nil {
			return &entryError{entry, err}
		}
	}
	if err := f.host.Complete(); err != nil {
		return err
	}
	_, err = f.describe(name, top)
	return err
}

func (u *unpacker) leave() {
	if u.dir != u.top {
		unix.Close(u.dir)
	}
	u.dir, u.name = u.top, ""
}

// enter goes to a directory below the top, and makes what is missing of its path.
func (u *unpacker) enter(name string) error {
	if name == u.name {
		return nil
	}
	u.leave()
	if name == "" {
		return nil
	}
	for part := range strings.SplitSeq(name, "/") {
		next, err := u.directory(u.dir, part, 0o755)
		if err != nil {
			u.leave()
			return err
		}
		if u.dir != u.top {
			unix.Close(u.dir)
		}
		u.dir = next
	}
	u.name = name
	return nil
}

// directory opens a directory, and makes it if it is missing. Its owner can then write in it.
func (u *unpacker) directory(dir int, base string, mode uint32) (int, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	err := unix.Mkdirat(dir, base, mode|0o700)
	made := err == nil
	if err != nil && err != unix.EEXIST {
		return -1, err
	}
	fd, err := unix.Openat(dir, base, flags, 0)
	if err != nil {
		return -1, err
	}
	if err = u.allowed(fd); err == nil && made {
		err = unix.Fchmodat(dir, base, mode|0o700, 0)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (u *unpacker) put(name string, h *tar.Header, content io.Reader) error {
	at := strings.LastIndexByte(name, '/')
	if err := u.enter(name[:max(at, 0)]); err != nil {
		return err
	}
	base, mode := name[at+1:], uint32(h.Mode&0o777)
	switch h.Typeflag {
	case tar.TypeDir:
		fd, err := u.directory(u.dir, base, mode)
		if err == nil {
			unix.Close(fd)
		}
		return err
	case tar.TypeSymlink:
		return link(u.dir, base, h.Linkname)
	}
	var old unix.Stat_t
	if err := unix.Fstatat(u.dir, base, &old, unix.AT_SYMLINK_NOFOLLOW); err != nil && err != unix.ENOENT {
		return err
	}
	file, err := u.place(u.dir, base, false, func(to *os.File) error {
		if _, err := io.CopyBuffer(onlyWriter{to}, content, u.buf); err != nil {
			return err
		}
		return finish(int(to.Fd()), mode, &old)
	})
	if err == nil {
		err = file.Close()
	}
	return err
}

// link makes a symbolic link, in place of another file.
func link(dir int, base, target string) error {
	part := ".custody-" + rand.Text()
	if err := unix.Symlinkat(target, dir, part); err != nil {
		return err
	}
	if err := unix.Renameat(dir, part, dir, base); err != nil {
		return errors.Join(err, unix.Unlinkat(dir, part, 0))
	}
	return nil
}
