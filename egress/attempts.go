package egress

import (
	"net/netip"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/custody-project/custody/audit"
)

// maxAttempts is how many attempts of the guest's processes are remembered. An
// older one is forgotten: its flow then names no process, which is true of it.
const maxAttempts = 1 << 14

// attempts remembers which process the guest's sensor saw behind an attempt to
// connect, so that the host's events about the flow can name it. It is the guest's claim.
type attempts struct {
	known *lru.Cache[endpoints, process]
}

// endpoints tell one flow of a sandbox from another at any one time.
type endpoints struct {
	proto   string
	srcPort uint16
	dst     netip.AddrPort
}

type process struct {
	id     string
	pid    int
	parent string
}

func newAttempts() *attempts {
	known, err := lru.New[endpoints, process](maxAttempts)
	if err != nil {
		panic(err) // the size is not positive
	}
	return &attempts{known}
}

// note takes an attempt that the sensor saw.
func (a *attempts) note(f *audit.Flow) {
	if f.State != audit.FlowAttempt || f.SrcPort == 0 {
		return
	}
	if key, ok := endpointsOf(f); ok {
		a.known.Add(key, process{f.Proc, f.PID, f.Parent})
	}
}

// fill names the process of a flow, if the sensor has.
func (a *attempts) fill(f *audit.Flow) {
	if f.Proc != "" {
		return
	}
	if key, ok := endpointsOf(f); ok {
		if p, ok := a.known.Get(key); ok {
			f.Proc, f.PID, f.Parent = p.id, p.pid, p.parent
		}
	}
}

func endpointsOf(f *audit.Flow) (endpoints, bool) {
	dst, err := netip.ParseAddr(f.DstIP)
	if err != nil {
		return endpoints{}, false
	}
	return endpoints{f.Proto, uint16(f.SrcPort), netip.AddrPortFrom(dst.Unmap(), uint16(f.DstPort))}, true
}
