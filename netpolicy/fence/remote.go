package fence

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/privsep"
)

// A Fence can belong to another process than its Namespace. These are the calls between the two (package privsep). The
// process of the Namespace checks each of them against the policy, because the other process parses
// what the guest and the network send.
const (
	callInstall    = "fence-install"
	callListen     = "fence-listen"
	callRanges     = "fence-ranges"
	callFragments  = "fence-fragments"
	callConnect    = "fence-connect"
	callDisconnect = "fence-disconnect"
	callGuard      = "fence-guard"
)

type (
	installed    struct{ Index int }
	listenCall   struct{ Network, Address string }
	rangesCall   struct{ Entries int }
	generation   struct{ Number uint32 }
	guardCall    struct{ Named []netip.Addr }
	emptyMessage struct{}
)

// Handlers returns the calls with which a Fence in another process uses the namespace. policy returns the policy that is in force
// or about to be; calls that it does not permit fail.
func (n *Namespace) Handlers(policy func() *netpolicy.Policy) map[string]privsep.Handler {
	h := &server{namespace: n, policy: policy}
	return map[string]privsep.Handler{
		callInstall:    privsep.Handle(h.install),
		callListen:     privsep.Handle(h.listen),
		callRanges:     privsep.Handle(h.ranges),
		callFragments:  privsep.Handle(h.fragments),
		callConnect:    privsep.Handle(h.connect),
		callDisconnect: privsep.Handle(h.disconnect),
		callGuard:      privsep.Handle(h.guard),
	}
}

// server checks and carries out the calls of a Fence in another process.
type server struct {
	namespace *Namespace
	policy    func() *netpolicy.Policy
}

func (s *server) install(context.Context, emptyMessage) (any, []*os.File, error) {
	filters, err := s.namespace.Install()
	if err != nil {
		return nil, nil, err
	}
	files, err := filters.files()
	// From here on only the other process has the table of admitted programs open: when it ends, all packets are dropped.
	return installed{filters.index}, files, errors.Join(err, filters.Close())
}

func (s *server) listen(ctx context.Context, c listenCall) (any, []*os.File, error) {
	at, err := netip.ParseAddrPort(c.Address)
	if err != nil {
		return nil, nil, err
	}
	resolver := at == netip.AddrPortFrom(netpolicy.Gateway4, netpolicy.ResolverPort)
	gateway := c.Network == "tcp4" && at.Addr() == netip.IPv4Unspecified() && slices.Contains(s.policy().TCPPorts(), at.Port())
	if !resolver && !gateway {
		return nil, nil, fmt.Errorf("listen at %s %s: the policy has no such port", c.Network, at)
	}
	f, err := s.namespace.Listen(ctx, c.Network, at.String())
	return emptyMessage{}, []*os.File{f}, err
}

func (s *server) ranges(_ context.Context, c rangesCall) (any, []*os.File, error) {
	most := len(rangesOf(s.policy(), func(*netpolicy.Rule, netpolicy.Port) uint32 { return 1 }))
	if c.Entries < 1 || c.Entries > most {
		return nil, nil, fmt.Errorf("a table of %d ranges: the policy has %d", c.Entries, most)
	}
	m, err := s.namespace.Ranges(c.Entries)
	if err != nil {
		return nil, nil, err
	}
	defer m.Close()
	f, err := duplicate(m.FD())
	return emptyMessage{}, []*os.File{f}, err
}

func (s *server) fragments(_ context.Context, g generation) (any, []*os.File, error) {
	if !s.policy().HasDirect() {
		return nil, nil, errNotDirect
	}
	return emptyMessage{}, nil, s.namespace.Fragments(g.Number)
}

var errNotDirect = errors.New("the policy has no direct rules")

func (s *server) connect(ctx context.Context, g generation) (any, []*os.File, error) {
	if !s.policy().HasDirect() {
		return nil, nil, errNotDirect
	}
	raw4, raw6, err := s.namespace.Connect(ctx, g.Number)
	if err != nil {
		return nil, nil, err
	}
	return emptyMessage{}, []*os.File{raw4, raw6}, nil
}

func (s *server) disconnect(context.Context, emptyMessage) (any, []*os.File, error) {
	return emptyMessage{}, nil, s.namespace.Disconnect()
}

func (s *server) guard(_ context.Context, c guardCall) (any, []*os.File, error) {
	if len(c.Named) > maxNamed {
		return nil, nil, errManyNamed
	}
	for _, a := range c.Named {
		if !names(s.policy(), a) {
			return nil, nil, fmt.Errorf("reach %s of the host: no rule names it", a)
		}
	}
	return emptyMessage{}, nil, s.namespace.Guard(c.Named)
}

// names reports whether a rule for direct flows names a single address, itself or among the addresses that its name may have.
func names(p *netpolicy.Policy, a netip.Addr) bool {
	return slices.ContainsFunc(p.Rules(), func(r netpolicy.Rule) bool {
		prefix, ok := r.Pattern.Prefix()
		return r.Mode == netpolicy.Direct && (ok && prefix.IsSingleIP() && prefix.Addr() == a ||
			slices.ContainsFunc(r.Addresses, func(in netip.Prefix) bool { return in.Contains(a) }))
	})
}

// Open returns a fence whose namespace is at the other end of a connection. It needs no privileges. The calling thread's
// namespace is the host's.
func Open(ctx context.Context, c *privsep.Conn, o Options) (*Fence, error) {
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	return &Fence{namespace: &remote{ctx, c, host}, host: host, options: o}, nil
}

// remote is a namespace of another process. Its ctx lasts as long as the fence.
type remote struct {
	ctx  context.Context
	conn *privsep.Conn
	host *netlink.Handle
}

// call makes a call that returns n files.
func (r *remote) call(ctx context.Context, name string, args, result any, n int) ([]*os.File, error) {
	files, err := r.conn.Call(ctx, name, args, result)
	if err == nil && len(files) != n {
		err = fmt.Errorf("call %s returned %d descriptors in place of %d", name, len(files), n)
		for _, f := range files {
			f.Close()
		}
	}
	return files, err
}

// Tap implements namespace. The device is with the process that starts the VM.
func (r *remote) Tap() *os.File { return nil }

func (r *remote) Install() (*Filters, error) {
	var is installed
	files, err := r.call(r.ctx, callInstall, emptyMessage{}, &is, filterFiles)
	if err != nil {
		return nil, err
	}
	return openFilters(is.Index, files)
}

func (r *remote) Listen(ctx context.Context, network, address string) (*os.File, error) {
	files, err := r.call(ctx, callListen, listenCall{network, address}, nil, 1)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Err: err}
	}
	return files[0], nil
}

func (r *remote) Ranges(entries int) (*ebpf.Map, error) {
	files, err := r.call(r.ctx, callRanges, rangesCall{entries}, nil, 1)
	if err != nil {
		return nil, err
	}
	defer files[0].Close()
	return mapOf(files[0])
}

func (r *remote) Fragments(number uint32) error {
	_, err := r.call(r.ctx, callFragments, generation{number}, nil, 0)
	return err
}

func (r *remote) Connect(ctx context.Context, number uint32) (raw4, raw6 *os.File, err error) {
	files, err := r.call(ctx, callConnect, generation{number}, nil, 2)
	if err != nil {
		return nil, nil, err
	}
	return files[0], files[1], nil
}

func (r *remote) Disconnect() error {
	_, err := r.call(r.ctx, callDisconnect, emptyMessage{}, nil, 0)
	return err
}

func (r *remote) Guard(named []netip.Addr) error {
	_, err := r.call(r.ctx, callGuard, guardCall{named}, nil, 0)
	return err
}

// Close implements namespace. The process of the Namespace closes that one when this one ends.
func (r *remote) Close() error {
	r.host.Close()
	return nil
}

// duplicate returns a file for another descriptor of what fd refers to.
func duplicate(fd int) (*os.File, error) {
	other, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("duplicate descriptor "+strconv.Itoa(fd), err)
	}
	return os.NewFile(uintptr(other), "duplicate"), nil
}
