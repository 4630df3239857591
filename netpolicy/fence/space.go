package fence

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// space is a network namespace without a name, to which only descriptors refer.
type space struct {
	handle netns.NsHandle
	links  *netlink.Handle
}

// newSpace makes a namespace. The calling thread's namespace does not change.
func newSpace() (*space, error) {
	s := &space{handle: netns.None()}
	err := elsewhere(func() error {
		h, err := netns.New()
		s.handle = h
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	return s, s.open()
}

// currentSpace returns the namespace of the calling thread.
func currentSpace() (*space, error) {
	h, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("open the current network namespace: %w", err)
	}
	s := &space{handle: h}
	return s, s.open()
}

func (s *space) open() (err error) {
	if s.links, err = netlink.NewHandleAt(s.handle, unix.NETLINK_ROUTE); err != nil {
		return errors.Join(fmt.Errorf("open a netlink socket in a namespace (CAP_SYS_ADMIN and CAP_NET_ADMIN are needed: run as root): %w", err), s.handle.Close())
	}
	return nil
}

// in runs do on a thread inside the namespace. Sockets that do makes stay in it.
func (s *space) in(do func() error) error {
	return elsewhere(func() error {
		if err := netns.Set(s.handle); err != nil {
			return fmt.Errorf("enter a network namespace: %w", err)
		}
		return do()
	})
}

func (s *space) close() error {
	s.links.Close()
	return s.handle.Close()
}

// elsewhere runs do on a locked thread whose namespace do may change. If the thread cannot return to its namespace, it
// is not reused: it ends with its goroutine.
func elsewhere(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			done <- fmt.Errorf("open the current network namespace: %w", err)
			return
		}
		defer home.Close()
		err = do()
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// sysctls are settings of a namespace, by their path below /proc/sys/net.
type sysctls map[string]string

// set applies them in the namespace of the calling thread.
func (s sysctls) set() error {
	for name, value := range s {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
			return fmt.Errorf("set net/%s to %s (is /proc/sys writable, and IPv6 not switched off at boot?): %w", name, value, err)
		}
	}
	return nil
}
