package fence

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Namespace is the part of a fence that needs privileges: the sandbox's network namespace with its device, packet filters
// and tables, and the uplink of direct flows. The other part, Fence, uses the filters and needs none. A
// Namespace is safe for concurrent use.
//
//	NewNamespace         Install                      Close
//	------------> quiet ---------> drops all packets -------> gone
//	                                  |          ^
//	                          Connect +--uplink--+ Disconnect
type Namespace struct {
	space, host *space
	tap         *os.File
	index       int // of the TAP, in the namespace
	marks       marks
	attach      attacher
	gates       *gates
	ranges      *ebpf.MapSpec // of one generation

	mu        sync.Mutex // guards the fields below
	installed bool
	uplink    *uplink // nil unless there is one
}

// NewNamespace makes a namespace with a TAP for the guest's machine, which is down. The calling thread's namespace is the
// host's, from which direct flows leave.
func NewNamespace(ctx context.Context) (*Namespace, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	host, err := currentSpace()
	if err != nil {
		return nil, err
	}
	return makeNamespace(host)
}

// makeNamespace owns host, also if it fails.
func makeNamespace(host *space) (n *Namespace, err error) {
	n = &Namespace{host: host, attach: attach}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if n.marks, err = newMarks(); err != nil {
		return n, err
	}
	if n.space, err = newSpace(); err != nil {
		return n, hint(err)
	}
	if err = n.makeTap(); err != nil {
		return n, hint(err)
	}
	return n, nil
}

func newMarks() (marks, error) {
	const top = 1 << 31 // so that the marks of fragments of all generations are distinct
	var b [12]byte
	for {
		if _, err := rand.Read(b[:]); err != nil {
			return marks{}, err
		}
		m := marks{
			pass: binary.NativeEndian.Uint32(b[:]) &^ top, inject: binary.NativeEndian.Uint32(b[4:]) &^ top, part: binary.NativeEndian.Uint32(b[8:]) | top,
		}
		if m.pass != 0 && m.inject != 0 && m.pass != m.inject {
			return m, nil
		}
	}
}

func (n *Namespace) makeTap() error {
	err := n.space.in(func() (err error) {
		if err = quiet.set(); err == nil {
			n.tap, err = newTap()
		}
		return err
	})
	if err != nil {
		return err
	}
	tap, err := n.space.links.LinkByName(tapName)
	if err != nil {
		return fmt.Errorf("find the guest's network device: %w", err)
	}
	n.index = tap.Attrs().Index
	return nil
}

// Tap returns the guest's network device (IFF_TAP, IFF_NO_PI, IFF_VNET_HDR): each frame has a virtio-net header before
// it. The namespace keeps it open until Close.
func (n *Namespace) Tap() *os.File { return n.tap }

// Install installs the packet filters, and then brings up the TAP. The filters drop all packets until a program is
// admitted. Install is called once; the caller owns the result.
func (n *Namespace) Install() (filters *Filters, err error) {
	n.mu.Lock()
	before := n.installed
	n.installed = true
	n.mu.Unlock()
	if before {
		return nil, errors.New("the packet filters are installed already")
	}
	spec, err := readPrograms(n.marks)
	if err != nil {
		return nil, err
	}
	filters = &Filters{index: n.index, frames: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, filters.Close())
			filters = nil
		}
	}()
	var tables sync.WaitGroup
	var tablesErr error
	tables.Go(func() { filters.admitted, tablesErr = n.putFilters() }) // this waits for the kernel while the verifier checks the programs
	n.ranges = spec.Maps[programsMapRanges].InnerMap.Copy()
	filters.maps, err = loadObjects(spec)
	tables.Wait()
	if err == nil {
		err = tablesErr
	}
	if err != nil { // the first error is enough
		return filters, hint(err)
	}
	err = n.space.in(func() (err error) {
		filters.frames, err = n.rawSocket(unix.AF_PACKET, 0) // does not receive
		return err
	})
	if err != nil {
		return filters, hint(err)
	}
	return filters, hint(n.space.configure())
}

// putFilters installs both packet filters, and returns the table of admitted programs.
func (n *Namespace) putFilters() (admitted *ebpf.Map, err error) {
	if err := n.space.writeTable(n.marks, 0); err != nil {
		return nil, err
	}
	if n.gates, err = newGates(n.attach); err != nil {
		return nil, err
	}
	err = n.space.in(func() error {
		if err := n.gates.attachTo(n.index, fromGuest); err != nil {
			return err
		}
		return n.gates.attachTo(n.index, toGuest)
	})
	return n.gates.takeAdmitted(), err
}

// rawSocket makes a raw socket whose packets carry the mark of Custody's own; it must be called in the namespace.
func (n *Namespace) rawSocket(family, proto int) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
	if err != nil {
		return -1, fmt.Errorf("make a raw socket in the namespace: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(n.marks.inject)); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("mark a socket in the namespace: %w", err)
	}
	return fd, nil
}

// dropAll is the filter of a socket for packets until the process that receives from it removes the filter, so that no
// packet gets into a process with privileges.
var dropAll = unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}}

// Listen makes a socket inside the namespace that listens at a literal address. A socket for packets has a filter that
// drops all of them; the process that receives from it removes the filter.
func (n *Namespace) Listen(ctx context.Context, network, address string) (f *os.File, err error) {
	err = n.space.in(func() (err error) {
		f, err = n.listen(ctx, network, address)
		return err
	})
	return f, err
}

// listen sets the mark, so that packets of the socket pass the namespace's nftables. Sockets that another part of the
// process makes in the namespace by mistake have no mark.
func (n *Namespace) listen(ctx context.Context, network, address string) (*os.File, error) {
	config := net.ListenConfig{Control: func(network, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(n.marks.pass))
			if strings.HasPrefix(network, "udp") && set == nil {
				set = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &dropAll)
			}
		})
		return errors.Join(err, set)
	}}
	switch network {
	case "udp", "udp4", "udp6":
		c, err := config.ListenPacket(ctx, network, address)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		return c.(*net.UDPConn).File()
	case "tcp", "tcp4", "tcp6":
		l, err := config.Listen(ctx, network, address)
		if err != nil {
			return nil, err
		}
		defer l.Close()
		return l.(*net.TCPListener).File()
	}
	return nil, net.UnknownNetworkError(network)
}

// Ranges makes an empty table for n ranges of a policy.
func (n *Namespace) Ranges(entries int) (*ebpf.Map, error) {
	spec := n.ranges.Copy()
	spec.MaxEntries = uint32(entries)
	return ebpf.NewMap(spec)
}

// Fragments makes the tables drop fragments that were checked under another generation of the policy.
func (n *Namespace) Fragments(generation uint32) error {
	return n.space.writeTable(n.marks, generation)
}

var errUplink = errors.New("there is an uplink already")

// Connect makes the uplink for direct flows under a generation of the policy, and returns two raw sockets that send into
// it. Its gate drops all packets until a program is admitted.
func (n *Namespace) Connect(ctx context.Context, generation uint32) (raw4, raw6 *os.File, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.uplink != nil {
		return nil, nil, errUplink
	}
	u, err := newUplink(ctx, n.space, n.host, n.gates, n.marks, generation)
	if err != nil {
		return nil, nil, err
	}
	err = n.space.in(func() error {
		fd4, err := n.rawSocket(unix.AF_INET, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		raw4 = os.NewFile(uintptr(fd4), "raw4")
		fd6, err := n.rawSocket(unix.AF_INET6, unix.IPPROTO_RAW)
		if err != nil {
			return errors.Join(err, raw4.Close())
		}
		raw6 = os.NewFile(uintptr(fd6), "raw6")
		return nil
	})
	if err != nil {
		return nil, nil, errors.Join(err, u.close(n.marks))
	}
	n.uplink = u
	return raw4, raw6, nil
}

// Disconnect removes the uplink, if there is one.
func (n *Namespace) Disconnect() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.uplink == nil {
		return nil
	}
	u := n.uplink
	n.uplink = nil
	return u.close(n.marks)
}

// Guard lets direct flows reach these addresses of the host, which rules name, and no other ones.
func (n *Namespace) Guard(named []netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.uplink == nil {
		return errNoUplink
	}
	return n.uplink.guard.write(named, n.uplink.forwarding.opened())
}

// Close removes the uplink and frees everything; any of it may be missing. The kernel removes the guest's device with its
// namespace, asynchronously.
func (n *Namespace) Close() error {
	var errs []error
	if n.gates != nil {
		errs = append(errs, n.gates.Close())
	}
	errs = append(errs, n.Disconnect())
	if n.tap != nil {
		if err := n.tap.Close(); !errors.Is(err, os.ErrClosed) { // a driver that opens the device by its name has closed it
			errs = append(errs, err)
		}
	}
	if n.space != nil {
		errs = append(errs, n.space.close())
	}
	return errors.Join(append(errs, n.host.close())...)
}
