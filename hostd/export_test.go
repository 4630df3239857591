package hostd

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/worker"
)

// Marks are what no two sandboxes have at the same time; the machine's ID is never used again.
type Marks struct {
	Machine string
	UID     int    // of the worker
	Network string // its namespace, as in proc(5)
}

// MarksOf returns those of a sandbox of Host or Pooled that has just been opened.
func MarksOf(w worker.Sandbox) (m Marks, err error) {
	var s *Sandbox
	switch w := w.(type) {
	case *Sandbox:
		s = w
	case *leased:
		s = w.Sandbox.(*idle).Sandbox
	default:
		return m, fmt.Errorf("a sandbox of the type %T", w)
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.process == nil || s.parts.Network.space == nil {
		return m, errors.New("the sandbox has ended")
	}
	fd, err := unix.IoctlRetInt(int(s.parts.Network.space.Tap().Fd()), unix.SIOCGSKNS)
	if err != nil {
		return m, fmt.Errorf("the namespace of the network device: %w", err)
	}
	defer unix.Close(fd)
	m.Machine, m.UID = s.parts.Machine.ID, s.process.UID()
	m.Network, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	return m, err
}
