package redteam

import (
	_ "embed"
	"encoding/json"
	"net/netip"
	"strings"
	"time"

	"github.com/custody-project/custody/redteam/simnet"
)

// script carries out tasks inside the sandbox.
//
//go:embed guest.py
var script []byte

// task is what the script does; guest.py describes each verb.
type task struct {
	ID        string   `json:"id"`
	Do        string   `json:"do"`
	Host      string   `json:"host,omitempty"` // an address
	Name      string   `json:"name,omitempty"` // or a name, to be resolved
	Port      int      `json:"port,omitempty"`
	Ports     []int    `json:"ports,omitempty"`
	Family    int      `json:"family,omitempty"`
	Proto     string   `json:"proto,omitempty"` // tcp unless given
	Interface string   `json:"interface,omitempty"`
	Broadcast bool     `json:"broadcast,omitempty"`
	TLS       *tlsTask `json:"tls,omitempty"`
	Send      []piece  `json:"send,omitempty"`
	Enough    string   `json:"enough,omitempty"`  // of an answer: what ends it
	Timeout   float64  `json:"timeout,omitempty"` // seconds
	Turns     int      `json:"turns,omitempty"`
	Pause     int      `json:"pause,omitempty"` // ms between turns
	Names     []string `json:"names,omitempty"`
	Socket    []int    `json:"socket,omitempty"`
	Argv      []string `json:"argv,omitempty"`
	Echo      bool     `json:"echo,omitempty"`
	After     string   `json:"after,omitempty"`
	Then      *task    `json:"then,omitempty"`
	Same      bool     `json:"same,omitempty"` // in Then: the host that the task before spoke to
	Path      string   `json:"path,omitempty"` // below /workspace
	UID       int      `json:"uid,omitempty"`
}

type tlsTask struct {
	SNI  string   `json:"sni"`
	ALPN []string `json:"alpn,omitempty"`
}

// piece is what is written in one call.
type piece struct {
	Data []byte `json:"data"`
	Wait int    `json:"wait,omitempty"` // ms after it
}

// report is what the script says of a task: a claim.
type report struct {
	ID     string    `json:"id"`
	Run    string    `json:"run"`
	End    bool      `json:"end"`
	Open   bool      `json:"open"`
	Stage  string    `json:"stage"` // at which it failed: name, socket, connect, tls, answer, program, script
	Error  string    `json:"error"`
	Peer   string    `json:"peer"`
	Local  string    `json:"local"`
	Addrs  []string  `json:"addrs"`
	Tried  []string  `json:"tried"`
	ALPN   string    `json:"alpn"`
	Answer cloaked   `json:"answer"`
	Filled []cloaked `json:"filled"` // what stood in the place of {{NAME|ENCODING}}

	at time.Time // of its arrival
}

// cloaked is what the script reports of the answers that it got, encoded so that the redactor, through which
// all output passes, finds nothing in it.
type cloaked []byte

// UnmarshalJSON implements json.Unmarshaler.
func (c *cloaked) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, (*[]byte)(c)); err != nil {
		return err
	}
	for i := range *c {
		(*c)[i] ^= 0xA5
	}
	return nil
}

func (r report) peer() netip.AddrPort  { return addrPort(r.Peer) }
func (r report) local() netip.AddrPort { return addrPort(r.Local) }

func addrPort(s string) netip.AddrPort {
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a.Addr().WithZone("").Unmap(), a.Port())
}

// escaped describes what in an answer only someone outside can have said.
func (r report) escaped(token string, allowed reach) string {
	text := string(r.Answer)
	switch {
	case strings.Contains(text, simnet.Orders):
		return "the attacker answered"
	case strings.Contains(text, simnet.HostService):
		return "a service of the host answered"
	case allowed < reaches && strings.Contains(text, simnet.Hello) && strings.Contains(text, token):
		return "a server answered that should not have been reached"
	}
	return ""
}

// once is all of what a task sends, in one piece.
func once(data string) []piece { return []piece{{Data: []byte(data)}} }
