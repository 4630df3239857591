package main

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestSocketKind: the kinds that TestNoRootParses permits root are those that get no packet.
func TestSocketKind(t *testing.T) {
	for _, c := range []struct {
		family, kind, protocol int
		want                   string
		may                    bool
	}{
		{unix.AF_PACKET, unix.SOCK_RAW, 0, "packet, which only sends", true},
		{unix.AF_PACKET, unix.SOCK_RAW, 0x0300, "packet, which receives", false},
		{unix.AF_PACKET, unix.SOCK_DGRAM, 0x0008, "packet, which receives", false},
		{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW, "inet raw, which only sends", true},
		{unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_RAW, "inet raw, which only sends", true},
		{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP, "inet raw", false},
		{unix.AF_INET6, unix.SOCK_STREAM, 0, "inet stream of no address", true},
		{unix.AF_NETLINK, unix.SOCK_RAW, 0, "netlink", true},
		{unix.AF_UNIX, unix.SOCK_DGRAM, 0, "unix datagram", false},
	} {
		fd, err := unix.Socket(c.family, c.kind|unix.SOCK_CLOEXEC, c.protocol)
		if err != nil {
			t.Fatal(err)
		}
		got := socketKind(fd)
		unix.Close(fd)
		if got != c.want && got != c.want+" of no address" || privsepOnly.MatchString(got) != c.may {
			t.Errorf("the socket %d, %d, %d is %s, root may have it: %v", c.family, c.kind, c.protocol, got, privsepOnly.MatchString(got))
		}
	}
}
