package egress

import (
	"net/netip"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/custody-project/custody/audit"
)

// maxAttempts bounds the connection attempts that are kept. When the oldest one is evicted, the record of its flow names
// no process.
const maxAttempts = 1 << 14

// attempts maps the connection attempts that the guest's sensor reported to their processes, so that the host's events
// about a flow can name the process. The guest is the only source of this information.
type attempts struct {
	known *lru.Cache[endpoints, process]
}

// endpoints identify one flow of a sandbox among those that are open at the same time.
type endpoints struct {
	proto   string
	srcPort uint16
	dst     netip.AddrPort
}

type process struct {
	id     string
	pid    int
	parent string
	step   string
}

func newAttempts() *attempts {
	known, err := lru.New[endpoints, process](maxAttempts)
	if err != nil {
		panic(err) // the size is not positive
	}
	return &attempts{known}
}

// note stores an attempt of a step that the sensor reported.
func (a *attempts) note(step string, f *audit.Flow) {
	if f.State != audit.FlowAttempt || f.SrcPort == 0 {
		return
	}
	if key, ok := endpointsOf(f); ok {
		a.known.Add(key, process{f.Proc, f.PID, f.Parent, step})
	}
}

// fill sets the process of a flow, if the sensor has reported it, and returns the process's step.
func (a *attempts) fill(f *audit.Flow) (step string) {
	if f.Proc != "" {
		return ""
	}
	if key, ok := endpointsOf(f); ok {
		if p, ok := a.known.Get(key); ok {
			f.Proc, f.PID, f.Parent = p.id, p.pid, p.parent
			return p.step
		}
	}
	return ""
}

func endpointsOf(f *audit.Flow) (endpoints, bool) {
	dst, err := netip.ParseAddr(f.DstIP)
	if err != nil {
		return endpoints{}, false
	}
	return endpoints{f.Proto, uint16(f.SrcPort), netip.AddrPortFrom(dst.Unmap(), uint16(f.DstPort))}, true
}
