package qemu_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/netpolicy/link"
	"github.com/custody-project/custody/vmm/qemu"
	"github.com/custody-project/custody/vmm/vmtest"
)

// The tests of the network interface start real VMs:
//
//	test's namespace (a peer)                              VM, restored
//	  echo at 198.18.0.1:7, [fdc5:7a1c:19d2::1]:7
//	    |                                                   cell: bash
//	  tap 198.18.0.1/30, fdc5:7a1c:19d2::1/64  ====fd==== QEMU ---- eth0 198.18.0.2, fdc5:7a1c:19d2::2
//	    |                                                             no ARP, no neighbour discovery
//	  packet socket: every frame is seen

const echoPort = 7

// peer is what the machine's network interface is connected to.
type peer struct {
	tap    *os.File
	frames int // a packet socket
}

// newPeer makes the namespace, which ends when its descriptors are closed at the test's end.
func newPeer(t *testing.T) *peer {
	t.Helper()
	s := &peer{}
	failed := make(chan error, 1)
	qemu.OffMainThread(func() {
		failed <- errors.Join(unix.Unshare(unix.CLONE_NEWNET), s.configure(t))
	})
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	return s
}

// configure must run on a thread in the namespace: a socket belongs to the namespace of the thread that opens it.
func (s *peer) configure(t *testing.T) (err error) {
	if s.tap, err = qemu.OpenTap("tap"); err != nil {
		return err
	}
	t.Cleanup(func() { s.tap.Close() })
	tap, err := netlink.LinkByName("tap")
	if err != nil {
		return err
	}
	mac := net.HardwareAddr(link.GatewayMAC[:])
	err = errors.Join(os.WriteFile("/proc/sys/net/ipv6/conf/tap/accept_dad", []byte("0"), 0),
		os.WriteFile("/proc/sys/net/ipv6/conf/tap/addr_gen_mode", []byte("1"), 0), // no frames of its own
		netlink.LinkSetHardwareAddr(tap, mac), netlink.LinkSetARPOff(tap), netlink.LinkSetUp(tap))
	for _, end := range []struct {
		ours, theirs netip.Addr
		bits         int
	}{{link.Gateway4, link.Guest4, link.Net4.Bits()}, {link.Gateway6, link.Guest6, link.Net6.Bits()}} {
		ip := net.IP(end.ours.AsSlice())
		err = errors.Join(err,
			netlink.AddrAdd(tap, &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(end.bits, 8*len(ip))}, Flags: unix.IFA_F_NODAD}),
			netlink.NeighSet(&netlink.Neigh{
				LinkIndex: tap.Attrs().Index, IP: end.theirs.AsSlice(), HardwareAddr: link.GuestMAC[:], State: unix.NUD_PERMANENT,
			}), s.echo(t, netip.AddrPortFrom(end.ours, echoPort)))
	}
	if err != nil {
		return err
	}
	return s.capture(t, tap.Attrs().Index)
}

// capture opens the socket that receives every frame.
func (s *peer) capture(t *testing.T, index int) (err error) {
	const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network order
	if s.frames, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all&0xffff); err != nil {
		return err
	}
	t.Cleanup(func() { unix.Close(s.frames) })
	return unix.Bind(s.frames, &unix.SockaddrLinklayer{Protocol: all & 0xffff, Ifindex: index})
}

// echo sends back each datagram, and all data of a connection after its client has closed its side.
func (s *peer) echo(t *testing.T, at netip.AddrPort) error {
	packets, err := net.ListenPacket("udp", at.String())
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", at.String())
	if err != nil {
		return errors.Join(err, packets.Close())
	}
	var work sync.WaitGroup
	t.Cleanup(func() {
		packets.Close()
		listener.Close()
		work.Wait()
	})
	work.Go(func() {
		buf := make([]byte, 2048)
		for n, from, err := packets.ReadFrom(buf); err == nil; n, from, err = packets.ReadFrom(buf) {
			packets.WriteTo(buf[:n], from)
		}
	})
	work.Go(func() {
		for c, err := listener.Accept(); err == nil; c, err = listener.Accept() {
			all, _ := io.ReadAll(io.LimitReader(c, bulk))
			c.Write(all)
			c.Close()
		}
	})
	return nil
}

// seen returns the frames since the last call, one word each: direction, protocol and destination.
func (s *peer) seen() []string {
	var all []string
	buf := make([]byte, 1<<17)
	for {
		n, err := unix.Read(s.frames, buf)
		if err != nil {
			return all
		}
		all = append(all, describe(buf[:n]))
	}
}

func describe(f []byte) string {
	if len(f) < 54 {
		return fmt.Sprintf("runt of %d bytes", len(f))
	}
	way := fmt.Sprintf("%x>%x", f[6:12], f[:6])
	switch {
	case bytes.Equal(f[6:12], link.GuestMAC[:]) && bytes.Equal(f[:6], link.GatewayMAC[:]):
		way = "out"
	case bytes.Equal(f[:6], link.GuestMAC[:]) && bytes.Equal(f[6:12], link.GatewayMAC[:]):
		way = "in"
	}
	switch kind := uint16(f[12])<<8 | uint16(f[13]); kind {
	case unix.ETH_P_IP:
		src, dst := netip.AddrFrom4([4]byte(f[26:30])), netip.AddrFrom4([4]byte(f[30:34]))
		return fmt.Sprintf("%s:%d:%s-%s", way, f[23], src, dst)
	case unix.ETH_P_IPV6:
		src, dst := netip.AddrFrom16([16]byte(f[22:38])), netip.AddrFrom16([16]byte(f[38:54]))
		return fmt.Sprintf("%s:%d:%s-%s", way, f[20], src, dst)
	default:
		return fmt.Sprintf("%s:ethertype %#x", way, kind)
	}
}

const bulk = 2 << 20

// TestNIC: packets arrive in both directions, with IPv4 and IPv6, and the guest
// sends no other frames.
func TestNIC(t *testing.T) {
	s := newPeer(t)
	m := vmtest.Restore(t, vmtest.Options{Tap: s.tap})
	if got := m.Bash("cat /sys/class/net/eth0/address; ls /sys/class/net; head -1 /etc/resolv.conf"); got != "02:c0:de:00:00:02\neth0\nlo\nnameserver 198.18.0.1\n" {
		t.Errorf("the guest's network interface: %q", got)
	}
	m.Bash("sleep 2") // longer than a kernel waits before it reports multicast groups and solicits a router
	if frames := s.seen(); len(frames) != 0 {
		t.Errorf("unsolicited frames: %q", frames)
	}
	for _, end := range []struct{ ours, theirs netip.Addr }{{link.Gateway4, link.Guest4}, {link.Gateway6, link.Guest6}} {
		udp := m.Bash(fmt.Sprintf("exec 3<>/dev/udp/%s/%d; echo over the wire >&3; timeout 20 head -c 14 <&3", end.ours, echoPort))
		if udp != "over the wire\n" {
			t.Errorf("echo from %s: %q", end.ours, udp)
		}
		out, in := fmt.Sprintf("out:17:%s-%s", end.theirs, end.ours), fmt.Sprintf("in:17:%s-%s", end.ours, end.theirs)
		if frames := s.seen(); strings.Join(frames, " ") != out+" "+in {
			t.Errorf("frames %q, want %q, %q", frames, out, in)
		}
		tcp := m.Bash(fmt.Sprintf(`head -c %[1]d /dev/urandom > sent; exec 3<>/dev/tcp/%[2]s/%[3]d
			cat sent >&3; cat <&3 > got; cmp sent got && stat -c %%s got`, bulk, end.ours, echoPort))
		if tcp != fmt.Sprintln(bulk) {
			t.Errorf("%d bytes to %s and back: %q", bulk, end.ours, tcp)
		}
		for _, f := range s.seen() {
			if f != strings.Replace(out, ":17:", ":6:", 1) && f != strings.Replace(in, ":17:", ":6:", 1) {
				t.Errorf("frame %q during a connection", f)
			}
		}
	}
}

// TestUnconnectedNIC: without Machine.Tap, a restored machine has the same network interface, and no packet gets an answer.
func TestUnconnectedNIC(t *testing.T) {
	m := vmtest.Restore(t, vmtest.Options{})
	got := m.Bash(fmt.Sprintf("cat /sys/class/net/eth0/address; exec 3<>/dev/udp/%s/%d; echo x >&3; read -t 1 line <&3 && echo HEARD; echo end",
		link.Gateway4, echoPort))
	if got != "02:c0:de:00:00:02\nend\n" {
		t.Errorf("output %q", got)
	}
	if _, err := net.InterfaceByName("nowhere"); err == nil {
		t.Error("the unconnected TAP is in this namespace")
	}
}
