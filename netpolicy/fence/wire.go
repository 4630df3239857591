package fence

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/netpolicy"
)

// Addresses and ports in the programs' keys are in network byte order.

const (
	protoTCP = 6
	protoUDP = 17

	protoFragment = 44

	stateFinOut   = 1
	stateFinIn    = 2
	stateReset    = 4
	stateRevoked  = 8
	stateAnswered = 16
)

func protoNumber(name string) uint8 {
	if name == "udp" {
		return protoUDP
	}
	return protoTCP
}

func protoName(n uint8) string {
	switch n {
	case protoTCP:
		return "tcp"
	case protoUDP:
		return "udp"
	case 1:
		return "icmp"
	case 58:
		return "icmp6"
	}
	return strconv.Itoa(int(n))
}

func networkPort(p uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, p))
}

func words(a netip.Addr) (w [4]uint32, family uint8) {
	b := a.AsSlice()
	for i := range len(b) / 4 {
		w[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	if a.Is4() {
		return w, 4
	}
	return w, 6
}

func addrOf(w [4]uint32, family uint8) netip.Addr {
	var b [16]byte
	for i, word := range w {
		binary.NativeEndian.PutUint32(b[4*i:], word)
	}
	switch family {
	case 4:
		return netip.AddrFrom4([4]byte(b[:4]))
	case 6:
		return netip.AddrFrom16(b)
	}
	return netip.Addr{}
}

func targetOf(addr netip.Addr, port netpolicy.Port) programsTarget {
	w, family := words(addr)
	return programsTarget{Addr: w, Family: family, Proto: protoNumber(port.Proto), Port: networkPort(port.Number)}
}

func (k Key) raw() programsFlowKey {
	w, family := words(k.Dst.Addr().Unmap())
	return programsFlowKey{
		Peer: w, Family: family, Proto: protoNumber(k.Proto), PeerPort: networkPort(k.Dst.Port()), GuestPort: networkPort(k.Src.Port()),
	}
}

func keyOf(k programsFlowKey) Key {
	guest := netip.Addr{}
	switch k.Family {
	case 4:
		guest = netpolicy.Guest4
	case 6:
		guest = netpolicy.Guest6
	}
	return Key{
		Proto: protoName(k.Proto),
		Src:   netip.AddrPortFrom(guest, networkPort(k.GuestPort)),
		Dst:   netip.AddrPortFrom(addrOf(k.Peer, k.Family), networkPort(k.PeerPort)),
	}
}

func (k Key) port() netpolicy.Port { return netpolicy.Port{Proto: k.Proto, Number: k.Dst.Port()} }

// instant is a time of CLOCK_MONOTONIC in nanoseconds, as the programs report it.
type instant uint64

func now() instant {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail for this clock
	return instant(t.Nano())
}

// at returns the instant of a future time.
func at(t time.Time) instant { return instant(int64(now()) + int64(time.Until(t))) }
