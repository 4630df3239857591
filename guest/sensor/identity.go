package sensor

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// identity opens files by path and makes sure that they are the very inode a record named.
type identity struct {
	kernel *kernel
	cookie uint64

	mu sync.Mutex // guards the kernel's answer, "identified"
}

// inode is the kernel's address of the inode behind a descriptor.
func (id *identity) inode(fd int) (uint64, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	answer := id.kernel.coll.Variables["identified"]
	if err := answer.Set(uint64(0)); err != nil {
		return 0, err
	}
	if _, _, e := unix.Syscall(unix.SYS_FCNTL, uintptr(fd), unix.F_GETFL, uintptr(id.cookie)); e != 0 {
		return 0, e
	}
	var inode uint64
	err := answer.Get(&inode)
	return inode, err
}

// open finds a closed file again by its path, as its process or its step sees it.
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

// touched is when an inode was last opened for writing, 0 when that is not
// remembered (among the last 8,192 files): mtime is then the only witness.
func (id *identity) touched(inode uint64) uint64 {
	var at uint64
	if err := id.kernel.coll.Maps["touched"].Lookup(inode, &at); err != nil {
		return 0
	}
	return at
}
