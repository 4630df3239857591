package guest

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// routes is a routing netlink socket (rtnetlink(7)) for the three requests that a
// guest needs once. A message is nlmsghdr, the request's
// header, then attributes, each padded to four bytes.
type routes struct {
	socket int
	seq    uint32
}

func openRoutes() (*routes, error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open routing netlink: %w", err)
	}
	return &routes{socket: s}, nil
}

func (r *routes) close() { unix.Close(r.socket) }

// addAddress adds an address without duplicate address detection.
func (r *routes) addAddress(index int, p netip.Prefix) error {
	const lasting = unix.IFA_F_PERMANENT | unix.IFA_F_NODAD
	m := message{family(p.Addr()), byte(p.Bits()), lasting, unix.RT_SCOPE_UNIVERSE} // ifaddrmsg
	m = binary.NativeEndian.AppendUint32(m, uint32(index))
	m = m.attribute(unix.IFA_LOCAL, p.Addr().AsSlice())
	m = m.attribute(unix.IFA_ADDRESS, p.Addr().AsSlice())
	return r.request(unix.RTM_NEWADDR, m)
}

// addNeighbour adds a permanent neighbour entry.
func (r *routes) addNeighbour(index int, a netip.Addr, mac [6]byte) error {
	m := message{family(a), 0, 0, 0} // ndmsg
	m = binary.NativeEndian.AppendUint32(m, uint32(index))
	m = binary.NativeEndian.AppendUint16(m, unix.NUD_PERMANENT)
	m = append(m, 0, 0)
	m = m.attribute(unix.NDA_DST, a.AsSlice())
	m = m.attribute(unix.NDA_LLADDR, mac[:])
	return r.request(unix.RTM_NEWNEIGH, m)
}

// addDefault adds a default route.
func (r *routes) addDefault(index int, gateway netip.Addr) error {
	m := message{family(gateway), 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST} // rtmsg
	m = append(m, 0, 0, 0, 0)
	m = m.attribute(unix.RTA_GATEWAY, gateway.AsSlice())
	m = m.attribute(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(index)))
	return r.request(unix.RTM_NEWROUTE, m)
}

// message is a message without the nlmsghdr.
type message []byte

func (m message) attribute(kind uint16, value []byte) message {
	m = binary.NativeEndian.AppendUint16(m, uint16(unix.SizeofRtAttr+len(value)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = append(m, value...)
	return append(m, make([]byte, -len(value)&3)...)
}

// request sends one request to add something and reads the kernel's answer to it.
func (r *routes) request(kind uint16, body message) error {
	r.seq++
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	m = binary.NativeEndian.AppendUint32(m, r.seq)
	m = binary.NativeEndian.AppendUint32(m, 0)
	if err := unix.Sendto(r.socket, append(m, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 1024)
	n, _, err := unix.Recvfrom(r.socket, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return fmt.Errorf("routing netlink answered with %d bytes that are no acknowledgement", n)
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

func family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
