package egress

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// self has the host's own addresses, to which no name may resolve unless the policy allows it. The zero value is ready
// for use.
type self struct {
	mu    sync.Mutex // guards the fields below
	addrs map[netip.Addr]bool
	asked time.Time
}

// fresh is how long the addresses are cached.
const fresh = time.Second

// has reports whether an address belongs to the host. It returns true for every address while the host's addresses
// cannot be read.
func (s *self) has(a netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.addrs == nil || now.Sub(s.asked) > fresh {
		s.addrs, s.asked = ownAddrs(), now
	}
	return s.addrs == nil || s.addrs[a.WithZone("").Unmap()]
}

func ownAddrs() map[netip.Addr]bool {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	own := map[netip.Addr]bool{}
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own[p.Addr().Unmap()] = true
		}
	}
	return own
}
