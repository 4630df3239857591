package redteam

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
)

// vnetHeader is the length of the header before each frame on the network card (virtio specification 1.2, section
// 5.1.6). A zero header requests no offloads.
const vnetHeader = 10

// nic is the host's end of the guest's network card, to which the suite writes frames in place of a guest.
type nic struct{ file *os.File }

func (c *nic) write(frame []byte) error {
	_, err := c.file.Write(append(make([]byte, vnetHeader), frame...))
	return err
}

// read reports, until the card is removed, the answers that prove that a packet reached a host. It ignores resets and
// ICMP errors, with which the fence denies packets.
func (c *nic) read(report func(string)) {
	buf := make([]byte, 1<<16)
	for {
		n, err := c.file.Read(buf)
		if err != nil {
			return
		}
		if n > vnetHeader {
			if what := answer(buf[vnetHeader:n]); what != "" {
				report(what)
			}
		}
	}
}

// answer describes a frame to the guest, "" if the frame is not an answer.
func answer(frame []byte) string {
	if len(frame) < 14 {
		return ""
	}
	body := frame[14:]
	switch kind := binary.BigEndian.Uint16(frame[12:]); {
	case kind == etherARP && len(body) >= 28 && body[7] == 2:
		return "arp answered"
	case kind == ether4 && len(body) >= 20 && int(body[0]&15)*4 <= len(body):
		from, _ := netip.AddrFromSlice(body[12:16])
		return transport(body[9], from, body[int(body[0]&15)*4:])
	case kind == ether6 && len(body) >= 40:
		from, _ := netip.AddrFromSlice(body[8:24])
		return transport(body[6], from, body[40:])
	}
	return ""
}

func transport(proto uint8, from netip.Addr, b []byte) string {
	switch {
	case proto == protoTCP && len(b) >= 20 && b[13]&tcpRST == 0:
		return fmt.Sprintf("tcp %s:%d answered", from, binary.BigEndian.Uint16(b))
	case proto == protoUDP && len(b) >= 8:
		return fmt.Sprintf("udp %s:%d answered: %q", from, binary.BigEndian.Uint16(b), b[8:])
	case proto == protoICMP && len(b) > 0 && (b[0] == 0 || b[0] == 14), proto == protoICMP6 && len(b) > 0 && (b[0] == 129 || b[0] == 136 || b[0] == 140):
		return fmt.Sprintf("icmp %s answered with type %d", from, b[0])
	}
	return ""
}
