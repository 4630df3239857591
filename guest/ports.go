package guest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/custody-project/custody/internal/splice"
)

// loopback are the addresses at which ports are reached, in this order.
var loopback = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}

// dialTime bounds a connection to a port: one whose backlog is full does not answer.
const dialTime = 10 * time.Second

// dialPort connects to a port on the loopback interface, which init shares with the cells.
func dialPort(ctx context.Context, port int) (splice.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	var refused error
	for _, a := range loopback {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", netip.AddrPortFrom(a, uint16(port)).String())
		if err == nil {
			return conn.(*net.TCPConn), nil
		}
		if refused == nil || errors.Is(refused, syscall.ECONNREFUSED) && !unsupported(err) {
			refused = err
		}
	}
	return nil, refused
}

// unsupported reports whether the guest has no such addresses.
func unsupported(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.ENETUNREACH)
}

// listeningPorts returns the ports on which something listens at an address of loopback, or at all addresses.
func listeningPorts() (ports []int, err error) {
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if port, ok := listener(lines.Text()); ok {
				ports = append(ports, port)
			}
		}
		if err := f.Close(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return ports, nil
}

// listening is the state of a socket that listens, in /proc/net/tcp.
const listening = "0A"

// reachable are the addresses of loopback, and those that stand for all, in the notation of /proc/net/tcp on a little-endian machine.
var reachable = []string{"0100007F", "00000000", "00000000000000000000000001000000", "00000000000000000000000000000000"}

// listener returns the port of a line of /proc/net/tcp, if it is of a socket that listens at a reachable address.
func listener(line string) (port int, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 4 || fields[3] != listening {
		return 0, false
	}
	address, text, ok := strings.Cut(fields[1], ":")
	n, err := strconv.ParseUint(text, 16, 16)
	return int(n), ok && err == nil && n > 0 && slices.Contains(reachable, address)
}
