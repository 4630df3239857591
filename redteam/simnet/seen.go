package simnet

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Sighting is traffic that should not have left the sandbox: a packet at the attacker, one on the wire to anything but a
// service of the network, a DNS query for a name outside of Zone, or a connection to the host itself.
type Sighting struct {
	Time  time.Time
	Where Where
	Proto string // tcp, udp, icmp, icmp6, dns, a number of an IP protocol, or an EtherType in hexadecimal
	Src   netip.AddrPort
	Dst   netip.AddrPort
	Text  string // the first bytes of the payload, or the query's name and type
}

// Where is a place at which the network observes traffic.
type Where string

// The places.
const (
	AtAttacker Where = "attacker" // the attacker's interface, or one of his servers
	OnWire     Where = "wire"     // between the host and the servers
	AtHost     Where = "host"     // on the host: at a canary, or on any interface but the wire's
	AtResolver Where = "resolver" // a query for a name outside of Zone
)

// String returns a description in one line.
func (s Sighting) String() string {
	return fmt.Sprintf("%s: %s %s > %s %.100q", s.Where, s.Proto, s.Src, s.Dst, s.Text)
}

// Query is a DNS query that reached the network's resolver.
type Query struct {
	Time  time.Time
	Name  string // lower case, without a final dot
	Type  string
	Proto string // udp, tcp or tcp-tls
	Src   netip.AddrPort
	// Options are the query's EDNS options.
	Options []string
}

// Request is an HTTP request that reached a web server, or data that reached an echo.
type Request struct {
	Time   time.Time
	SNI    string // empty in cleartext
	Proto  string // HTTP/1.1, HTTP/2.0, or echo
	Method string
	Host   string
	URI    string
	Header map[string][]string
	Body   string // up to 4 KiB
	Src    netip.AddrPort
	Dst    netip.AddrPort
}

// Talk is a connection to a web server, with what its client sent, decrypted.
type Talk struct {
	Time time.Time // of its start
	SNI  string    // empty in cleartext
	Src  netip.AddrPort
	Dst  netip.AddrPort
	Said []byte // up to 64 KiB
}

// limit bounds each of the log's lists. Further entries are counted as lost.
const limit = 20000

type log struct {
	mu        sync.Mutex // guards the fields below
	sightings []Sighting
	queries   []Query
	requests  []Request
	talks     []Talk
	lost      uint64
}

func add[T any](l *log, list *[]T, item T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(*list) == limit {
		l.lost++
		return
	}
	*list = append(*list, item)
}

// note records a sighting.
func (l *log) note(s Sighting) {
	if s.Time.IsZero() {
		s.Time = time.Now()
	}
	s.Text = strings.ToValidUTF8(s.Text, "\uFFFD")
	add(l, &l.sightings, s)
}

// visited records a sighting of a connection.
func (l *log) visited(c net.Conn, where Where, text string) {
	l.note(Sighting{Where: where, Proto: "tcp", Src: addrOf(c.RemoteAddr()), Dst: addrOf(c.LocalAddr()), Text: text})
}

// lose counts n entries that are missing from the log.
func (l *log) lose(n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost += n
}

// all returns a copy of one of the log's lists.
func all[T any](l *log, list *[]T) []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(*list)
}

// Seen returns all sightings so far, in order.
func (n *Network) Seen() []Sighting { return all(&n.log, &n.log.sightings) }

// Queries returns the queries that reached the resolver so far, in order.
func (n *Network) Queries() []Query { return all(&n.log, &n.log.queries) }

// Requests returns the requests that reached the web servers and echo servers so far, in order.
func (n *Network) Requests() []Request { return all(&n.log, &n.log.requests) }

// Talks returns the connections to web servers so far, with all bytes that their clients sent: each after it has ended,
// or after its client has sent a server name in TLS.
func (n *Network) Talks() []Talk { return all(&n.log, &n.log.talks) }

// Lost returns how many packets the watchers missed and how many entries did not fit into the log. Unless it is 0, an
// empty list of sightings proves nothing.
func (n *Network) Lost() uint64 {
	n.log.mu.Lock()
	defer n.log.mu.Unlock()
	return n.log.lost
}
