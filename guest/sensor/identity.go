package sensor

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// identity opens files by path and checks that they have the inode that a record names.
type identity struct {
	kernel *kernel
	cookie uint64

	mu sync.Mutex // guards the kernel's answer, "identified"
}

// state is what the kernel has about an open file: file.h gives the fields' meaning.
type state = programsIdentity

// state returns the kernel's state of an open file.
func (id *identity) state(fd int) (state, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	answer := id.kernel.coll.Variables["identified"]
	var s state
	if err := answer.Set(&s); err != nil { // zero: an answer that does not come must not be an old one
		return s, err
	}
	if _, _, e := unix.Syscall(unix.SYS_FCNTL, uintptr(fd), unix.F_GETFL, uintptr(id.cookie)); e != 0 {
		return s, e
	}
	err := answer.Get(&s)
	return s, err
}

// inode is the kernel's address of the inode behind a descriptor.
func (id *identity) inode(fd int) (uint64, error) {
	s, err := id.state(fd)
	return s.Inode, err
}

// borrow sets a cookie for as long as do runs, which is before the run's own is known.
func (id *identity) borrow(do func() error) error {
	var random [8]byte
	rand.Read(random[:])
	id.cookie = binary.NativeEndian.Uint64(random[:]) | 1
	if err := id.kernel.set("cookie", id.cookie); err != nil {
		return err
	}
	err := do()
	id.cookie = 0
	return errors.Join(err, id.kernel.set("cookie", uint64(0)))
}

// open finds a closed file again by its path: in its process's mounts, or below its step's root.
func (id *identity) open(c *closing) (*os.File, error) {
	for _, root := range []string{fmt.Sprintf("/proc/%d/root", c.pid), c.root} {
		if root == "" {
			continue
		}
		if f, err := id.openAt(root, c); err == nil {
			return f, nil
		}
	}
	return nil, os.ErrNotExist
}

func (id *identity) openAt(root string, c *closing) (*os.File, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	fd, err := unix.Openat2(dir, c.path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if inode, err := id.inode(fd); err != nil || inode != c.inode {
		return nil, os.ErrNotExist
	}
	// The name is settled and the object a regular file: opening it cannot block or act.
	return os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY|unix.O_NOATIME, 0)
}
