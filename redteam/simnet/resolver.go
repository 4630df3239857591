package simnet

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// UseResolver gives the programs that Start and Run start from now on an /etc/resolv.conf with the network's resolver.
// They get a mount namespace for it, which receives the machine's mounts and propagates none.
func (n *Network) UseResolver() error {
	err := n.spaces.site.do(func() error {
		f, err := os.CreateTemp("", "custody-resolv-")
		if err != nil {
			return err
		}
		defer os.Remove(f.Name()) // the mount keeps the file
		_, err = fmt.Fprintf(f, "nameserver %s\nnameserver %s\n", Resolver4.Addr(), Resolver6.Addr())
		if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
			return err
		}
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("make a mount namespace: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
			return fmt.Errorf("keep mounts in their namespace: %w", err)
		}
		if err := unix.Mount(f.Name(), "/etc/resolv.conf", "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount over /etc/resolv.conf: %w", err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("use the simulated internet's resolver: %w", err)
	}
	return nil
}
