package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/netpolicy/link"
)

// nicName is the kernel's name of the first network interface.
const nicName = "eth0"

// networkSwitches prevent unsolicited packets of the guest, and long waits
// for answers that the policy denies. The link is configured statically and
// permanently: it needs no discovery, announcement or autoconfiguration.
var networkSwitches = map[string]string{
	"net/ipv6/conf/eth0/accept_ra":            "0",
	"net/ipv6/conf/eth0/autoconf":             "0",
	"net/ipv6/conf/eth0/accept_dad":           "0",
	"net/ipv6/conf/eth0/accept_redirects":     "0",
	"net/ipv6/conf/eth0/router_solicitations": "0",
	"net/ipv6/conf/eth0/addr_gen_mode":        "1", // no link-local address
	"net/ipv4/conf/all/accept_redirects":      "0",
	"net/ipv4/conf/eth0/accept_redirects":     "0",
	"net/ipv4/conf/all/send_redirects":        "0",
	"net/ipv4/conf/eth0/accept_source_route":  "0",
	"net/ipv4/tcp_syn_retries":                "3", // a connection that no one answers fails after 15 s
	"net/ipv4/tcp_synack_retries":             "3",
}

// resolvConf is the cells' /etc/resolv.conf. The resolver is one hop away and
// has a shorter time limit.
var resolvConf = "nameserver " + link.Gateway4.String() + "\noptions timeout:2 attempts:2\n"

// raiseNetwork configures the guest's end of the link, with the addresses of package link,
// and the loopback interface.
func raiseNetwork() error {
	if err := raiseInterface("lo", 0); err != nil {
		return err
	}
	card, err := net.InterfaceByName(nicName)
	if err != nil {
		return fmt.Errorf("find the network card: %w", err)
	}
	for name, value := range networkSwitches {
		if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// Without ARP (for IPv6: neighbour discovery) the kernel neither requests nor answers
	// neighbour solicitations, tests no address for duplicates and joins no group that it would report.
	if err := raiseInterface(nicName, unix.IFF_NOARP); err != nil {
		return err
	}
	return addressLink(card.Index)
}

func raiseInterface(name string, flags uint16) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | flags)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("bring %s up: %w", name, err)
	}
	return nil
}

// addressLink gives the interface its addresses, its one neighbour under both of
// its addresses, and the routes to it.
func addressLink(index int) error {
	r, err := openRoutes()
	if err != nil {
		return err
	}
	defer r.close()
	for _, end := range []struct {
		guest, gateway netip.Addr
		net            netip.Prefix
	}{
		{link.Guest4, link.Gateway4, link.Net4},
		{link.Guest6, link.Gateway6, link.Net6},
	} {
		if err := r.addAddress(index, netip.PrefixFrom(end.guest, end.net.Bits())); err != nil {
			return fmt.Errorf("add address %s: %w", end.guest, err)
		}
		if err := r.addNeighbour(index, end.gateway, link.GatewayMAC); err != nil {
			return fmt.Errorf("add neighbour %s: %w", end.gateway, err)
		}
		if err := r.addDefault(index, end.gateway); err != nil {
			return fmt.Errorf("add the route over %s: %w", end.gateway, err)
		}
	}
	return nil
}
