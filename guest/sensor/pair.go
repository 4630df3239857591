package sensor

import (
	"os"

	"golang.org/x/sys/unix"
)

// pending are closed files that wait for fanotify's descriptor, by inode address.
type pending map[uint64][]*closing

// orphan is a descriptor without a record so far.
type orphan struct {
	state state
	fd    int
}

// pair gives fanotify's descriptors to the closed files that wait for them. A
// descriptor serves all closes of its inode so far, because fanotify merges
// them; whose content was another one is found out later. The record of a close
// is made just before fanotify's event: a descriptor without one belongs to a
// record that this cycle left for the next, or to a process that is not
// watched. A close that has no descriptor a whole cycle later is looked up by path.
func (c *collector) pair() (overflow bool, err error) {
	orphans := c.orphans
	c.orphans = nil
	for _, o := range orphans {
		if !c.adopt(o) {
			unix.Close(o.fd)
		}
	}
	more, overflow, err := c.watch.read(maxHeld-c.hasher.holding(), func(fd int) {
		s, err := c.id.state(fd)
		if err != nil {
			unix.Close(fd)
			return
		}
		if o := (orphan{s, fd}); !c.adopt(o) {
			c.orphans = append(c.orphans, o)
		}
	})
	if err != nil || more {
		return overflow, err
	}
	for inode, wants := range c.pending {
		if wants[len(wants)-1].cycle == c.cycle {
			continue
		}
		delete(c.pending, inode)
		c.hasher.add(nil, state{}, wants)
	}
	return overflow, nil
}

// adopt queues the content behind a descriptor for hashing, if a closed file waits for it.
func (c *collector) adopt(o orphan) bool {
	wants := c.pending[o.state.Inode]
	if len(wants) == 0 {
		return false
	}
	delete(c.pending, o.state.Inode)
	c.hasher.add(os.NewFile(uintptr(o.fd), "closed file"), o.state, wants)
	return true
}
