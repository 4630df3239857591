package simnet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Sighting is something that got out of the host and should not have: a packet
// at the attacker's, one on the wire that is for no service of the world, a question for a name outside
// of Zone, a connection to the host itself.
type Sighting struct {
	Time  time.Time
	Where Where
	Proto string // tcp, udp, icmp, icmp6, dns, a number of an IP protocol, or an EtherType in hexadecimal
	Src   netip.AddrPort
	Dst   netip.AddrPort
	Text  string // the beginning of what was said, or the question's name and type
}

// Where something was seen.
type Where string

// The places that are watched.
const (
	AtAttacker Where = "attacker" // the attacker's interface, or one of his servers
	OnWire     Where = "wire"     // between the host and the world
	AtHost     Where = "host"     // on the host: another interface than the wire's, or a canary
	AtResolver Where = "resolver" // a question for a name that is not below Zone
)

// String returns one line.
func (s Sighting) String() string {
	return fmt.Sprintf("%s: %s %s > %s %.100q", s.Where, s.Proto, s.Src, s.Dst, s.Text)
}

// Query is a question that reached the world's resolver.
type Query struct {
	Time  time.Time
	Name  string // lower case, without a final dot
	Type  string
	Proto string // udp, tcp or tcp-tls
	Src   netip.AddrPort
	// Options are the EDNS options that came with it.
	Options []string
}

// Request is one that reached a web server of the world, or a line an echo got.
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

// Talk is what one connection told a web server of the world, in the clear.
type Talk struct {
	Time time.Time // of its begin
	SNI  string    // empty in cleartext
	Src  netip.AddrPort
	Dst  netip.AddrPort
	Said []byte // up to 64 KiB
}

// limit bounds each of the log's lists. What is beyond it is counted as lost.
const limit = 20000

type log struct {
	mu        sync.Mutex // guards what follows
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
func (w *World) note(s Sighting) {
	if s.Time.IsZero() {
		s.Time = time.Now()
	}
	s.Text = strings.ToValidUTF8(s.Text, "\uFFFD")
	add(&w.log, &w.log.sightings, s)
}

// Seen returns all sightings so far, in order.
func (w *World) Seen() []Sighting {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	return slices.Clone(w.log.sightings)
}

// Queries returns the questions that reached the resolver so far, in order.
func (w *World) Queries() []Query {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	return slices.Clone(w.log.queries)
}

// Requests returns what reached the web servers and echoes so far, in order.
func (w *World) Requests() []Request {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	return slices.Clone(w.log.requests)
}

// Talks returns the connections to web servers so far: each when it has ended,
// with whatever was said on it, whether a server took it for a request or not, and before that
// when its client asked for a name in TLS.
func (w *World) Talks() []Talk {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	return slices.Clone(w.log.talks)
}

// Lost returns how many packets the watchers missed and how many entries had no
// room. When it is not 0, that nothing was seen proves nothing.
func (w *World) Lost() uint64 {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	return w.log.lost
}

func (w *World) lose(n uint64) {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	w.log.lost += n
}
