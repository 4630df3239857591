package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// rootDir is where root directories are mounted, each in the mount namespace of its process. On the host it stays an
// empty directory.
const rootDir = "/run/custody/jail"

// Root is the root directory of a confined process: a read-only tmpfs with nothing but these paths of the host.
type Root struct {
	Binds []Bind
	Links []string // names of symbolic links in the host's root directory, such as lib, that are made here as well
}

// Bind is a file or directory of the host in a Root.
type Bind struct {
	Path  string  // on the host
	Name  string  // in the root directory; empty: the same path
	Flags uintptr // of the mount, such as MS_RDONLY
	// Optional skips a path that does not exist, or that is a symbolic link or in a directory that is one. Otherwise it is
	// an error.
	Optional bool
}

// Enter gives the calling thread, which must not be the main one, a mount namespace of its own with this root directory.
// Its children inherit both.
func (r Root) Enter() error {
	if err := os.MkdirAll(rootDir, 0o700); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare mount namespace (Custody must run as root): %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("jail", rootDir, "tmpfs", unix.MS_NOSUID, "size=1m,mode=755"); err != nil {
		return fmt.Errorf("mount the jail's root: %w", err)
	}
	for _, b := range r.Binds {
		if err := b.mount(); err != nil {
			return err
		}
	}
	for _, link := range r.Links {
		if to, err := os.Readlink("/" + link); err == nil {
			if err := os.Symlink(to, filepath.Join(rootDir, link)); err != nil {
				return err
			}
		}
	}
	return changeRoot()
}

var errLink = errors.New("it is a symbolic link, or in a directory that is one")

// check returns an error if the path does not exist, or if it or its parent directory is a symbolic link.
func (b Bind) check() (fs.FileInfo, error) {
	parent, err := os.Lstat(filepath.Dir(b.Path))
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(b.Path)
	if err == nil && (parent.Mode()|info.Mode())&os.ModeSymlink != 0 {
		err = errLink
	}
	return info, err
}

func (b Bind) mount() error {
	info, err := b.check()
	if err != nil && b.Optional {
		return nil
	}
	if err != nil {
		return fmt.Errorf("bind %s into the jail: %w", b.Path, err)
	}
	name := b.Name
	if name == "" {
		name = b.Path
	}
	target := filepath.Join(rootDir, name)
	if info.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(target), 0o755); err == nil {
		// A file that is never open, as a process that another thread forks meanwhile would keep the descriptor, and
		// the root directory would stay busy.
		err = unix.Mknod(target, unix.S_IFREG|0o644, 0)
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(b.Path, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s into the jail: %w", b.Path, err)
	}
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|b.Flags, ""); err != nil {
		return fmt.Errorf("restrict %s in the jail: %w", b.Path, err)
	}
	return nil
}

func changeRoot() error {
	if err := unix.Mount("", rootDir, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID, ""); err != nil {
		return fmt.Errorf("make the jail's root read-only: %w", err)
	}
	if err := unix.Chdir(rootDir); err != nil {
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
