package redteam

import (
	_ "embed"
	"encoding/json"
	"net/netip"
	"strings"
	"time"

	"github.com/custody-project/custody/redteam/simnet"
)

// script executes tasks inside the sandbox.
//
//go:embed guest.py
var script []byte

// task is a task of the script; guest.py describes each verb.
type task struct {
	ID        string   `json:"id"`
	Do        string   `json:"do"`
	Host      string   `json:"host,omitempty"` // an address
	Name      string   `json:"name,omitempty"` // or a name, to be resolved
	Port      int      `json:"port,omitempty"`
	Ports     []int    `json:"ports,omitempty"`
	Family    int      `json:"family,omitempty"`
	Proto     string   `json:"proto,omitempty"` // default tcp
	Interface string   `json:"interface,omitempty"`
	Broadcast bool     `json:"broadcast,omitempty"`
	TLS       *tlsTask `json:"tls,omitempty"`
	Send      []piece  `json:"send,omitempty"`
	Enough    string   `json:"enough,omitempty"`  // the task ends when the response contains this
	Timeout   float64  `json:"timeout,omitempty"` // seconds
	Turns     int      `json:"turns,omitempty"`
	Pause     int      `json:"pause,omitempty"` // ms between turns
	Names     []string `json:"names,omitempty"`
	Socket    []int    `json:"socket,omitempty"`
	Argv      []string `json:"argv,omitempty"`
	Echo      bool     `json:"echo,omitempty"`
	After     string   `json:"after,omitempty"`
	Then      *task    `json:"then,omitempty"`
	Same      bool     `json:"same,omitempty"` // in Then: use the previous task's host
	Path      string   `json:"path,omitempty"` // below /workspace
	UID       int      `json:"uid,omitempty"`
}

type tlsTask struct {
	SNI  string   `json:"sni"`
	ALPN []string `json:"alpn,omitempty"`
}

// piece is the data of one write.
type piece struct {
	Data []byte `json:"data"`
	Wait int    `json:"wait,omitempty"` // ms after it
}

// report is the script's report of a task. The guest may forge it.
type report struct {
	ID     string    `json:"id"`
	Run    string    `json:"run"`
	End    bool      `json:"end"`
	Open   bool      `json:"open"`
	Stage  string    `json:"stage"` // where it failed: name, socket, connect, tls, answer, program, script
	Error  string    `json:"error"`
	Peer   string    `json:"peer"`
	Local  string    `json:"local"`
	Addrs  []string  `json:"addrs"`
	Tried  []string  `json:"tried"`
	ALPN   string    `json:"alpn"`
	Answer cloaked   `json:"answer"`
	Filled []cloaked `json:"filled"` // the values that replaced each {{NAME|ENCODING}}

	at time.Time // of its arrival
}

// cloaked is data in a report, encoded so that the redactor finds no values in it.
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

// escaped describes data in a response that only a server outside can have sent, "" if there is none.
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

// once returns data as a single piece.
func once(data string) []piece { return []piece{{Data: []byte(data)}} }
