package upstream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"github.com/custody-project/custody/netpolicy"
)

// Proto is the protocol of a server.
type Proto string

// The protocols.
const (
	UDP Proto = "udp" // RFC 1035; truncated answers are requested again over TCP
	TCP Proto = "tcp" // RFC 7766
	TLS Proto = "tls" // DNS over TLS, RFC 7858
)

// Server is a DNS server.
type Server struct {
	Proto Proto
	Addr  netip.AddrPort
	// Name is the name in the server's certificate. Empty: the address. TLS only.
	Name string
}

// String returns the server in the form that ParseServer reads.
func (s Server) String() string {
	out := string(s.Proto) + "://" + s.Addr.String()
	if s.Name != "" {
		out += "#" + s.Name
	}
	return out
}

// ParseServer parses udp://ADDR, tcp://ADDR or tls://ADDR, each with an optional port (53, or 853 for tls), and for tls
// an optional certificate name after "#". ADDR is an IP address, in brackets if it is IPv6 and a port follows: to look
// up a server's name would need another server.
func ParseServer(s string) (Server, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	proto := Proto(scheme)
	if !ok || proto != UDP && proto != TCP && proto != TLS {
		return Server{}, fmt.Errorf("DNS server %q: write udp://ADDRESS, tcp://ADDRESS or tls://ADDRESS#NAME", s)
	}
	rest, name, named := strings.Cut(rest, "#")
	switch {
	case named && proto != TLS:
		return Server{}, fmt.Errorf("DNS server %q: only tls:// takes a certificate name after #", s)
	}
	if name, ok = netpolicy.Name(name); named && !ok {
		return Server{}, fmt.Errorf("DNS server %q: the certificate name after # is not a host name", s)
	}
	port := uint16(53)
	if proto == TLS {
		port = 853
	}
	addr, err := parseAddr(rest, port)
	if err != nil {
		return Server{}, fmt.Errorf("DNS server %q: %w", s, err)
	}
	return Server{Proto: proto, Addr: addr, Name: name}, nil
}

func parseAddr(s string, port uint16) (netip.AddrPort, error) {
	ap, err := netip.ParseAddrPort(s)
	if err != nil {
		inner := s
		if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
			inner = s[1 : len(s)-1]
		}
		a, err := netip.ParseAddr(inner)
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("%q is not an IP address or an IP address with a port", s)
		}
		ap = netip.AddrPortFrom(a, port)
	}
	switch a := ap.Addr(); {
	case a.Is4In6():
		return ap, errors.New("write an IPv4 address as such")
	case ap.Port() == 0:
		return ap, errors.New("port 0 is not valid")
	case a.IsUnspecified() || a.IsMulticast():
		return ap, fmt.Errorf("%s is not a unicast address", a)
	}
	return ap, nil
}

// Limits of resolv.conf(5): the number of servers is libc's.
const (
	maxServers    = 3
	maxResolvConf = 64 << 10 // bytes
)

// ResolvConf reads the servers, over UDP, from a file in the format of resolv.conf(5).
func ResolvConf(path string) ([]Server, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read DNS servers: %w", err)
	}
	defer f.Close()
	servers, err := readResolvConf(f)
	if err != nil {
		return nil, fmt.Errorf("read DNS servers from %s: %w", path, err)
	}
	return servers, nil
}

func readResolvConf(r io.Reader) ([]Server, error) {
	var servers []Server
	lines := bufio.NewScanner(io.LimitReader(r, maxResolvConf))
	for lines.Scan() && len(servers) < maxServers {
		words := strings.Fields(lines.Text())
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		addr, err := netip.ParseAddr(words[1])
		if err != nil {
			return nil, fmt.Errorf("nameserver %q is not an IP address", words[1])
		}
		if addr.IsUnspecified() { // as in libc
			addr = map[bool]netip.Addr{true: netip.AddrFrom4([4]byte{127, 0, 0, 1}), false: netip.IPv6Loopback()}[addr.Is4()]
		}
		servers = append(servers, Server{Proto: UDP, Addr: netip.AddrPortFrom(addr.Unmap(), 53)})
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(servers) == 0 {
		return nil, errors.New("no server in it: add a line such as \"nameserver 9.9.9.9\", or configure servers for Custody itself")
	}
	return servers, nil
}
