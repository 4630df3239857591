package simnet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// space is a network namespace without a name, with a thread in it.
type space struct {
	file  *os.File
	link  *netlink.Handle
	tasks chan task
	ended chan struct{} // closed when the thread has ended
}

type task struct {
	do   func() error
	done chan error
}

// newSpace makes a namespace with its loopback up.
func newSpace(name string) (*space, error) {
	s := &space{tasks: make(chan task), ended: make(chan struct{})}
	ready := make(chan error, 1)
	go s.live(name, ready)
	if err := <-ready; err != nil {
		return nil, err
	}
	var err error
	if s.link, err = netlink.NewHandleAt(netns.NsHandle(s.file.Fd()), unix.NETLINK_ROUTE); err != nil {
		return nil, errors.Join(fmt.Errorf("namespace %s: %w", name, err), s.close())
	}
	lo, err := s.link.LinkByName("lo")
	if err == nil {
		err = s.link.LinkSetUp(lo)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("namespace %s: loopback: %w", name, err), s.close())
	}
	return s, nil
}

// live runs on the space's thread. The thread is not reused for another goroutine: it ends with this function.
func (s *space) live(name string, ready chan<- error) {
	defer close(s.ended)
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		ready <- fmt.Errorf("make the namespace %s: %w", name, err)
		return
	}
	var err error
	s.file, err = os.Open("/proc/thread-self/ns/net")
	ready <- err
	for t := range s.tasks {
		t.done <- t.do()
	}
}

// do calls f on the space's thread.
func (s *space) do(f func() error) error {
	t := task{f, make(chan error, 1)}
	s.tasks <- t
	return <-t.done
}

func (s *space) close() error {
	close(s.tasks)
	<-s.ended
	if s.link != nil {
		s.link.Close()
	}
	return s.file.Close()
}

// sysctl sets values below /proc/sys/net, which belongs to the caller's namespace.
func (s *space) sysctl(values map[string]string) error {
	return s.do(func() error {
		var errs []error
		for key, v := range values {
			errs = append(errs, os.WriteFile(filepath.Join("/proc/sys/net", key), []byte(v), 0o644))
		}
		return errors.Join(errs...)
	})
}
