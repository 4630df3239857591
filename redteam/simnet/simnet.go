// Package simnet is a simulated internet for tests: a host on which Custody runs,
// servers that a policy may allow, and an attacker who owns every other address.
//
//	  site                        world                           rest
//	+-----------------+         +--------------------------+    +-----------------------+
//	| the host        |  wire   | router, resolver, web    |    | the attacker          |
//	|           site0 +---------+ up0                 out0 +----+ rest0                 |
//	| 93.184.1.2      |         | 93.184.0.53   resolver   |    | every other address,  |
//	| 10.66.0.2       |         | 93.184.10.0/24  hosts    |    | IPv4 and IPv6: the    |
//	| 2600:dead:1::2  |         | 93.184.32.0/19  many     |    | metadata service,     |
//	| fd66::2         |         | 2600:dead:10::/64        |    | private ranges, NAT64 |
//	| canaries on lo  |         |                          |    |                       |
//	+-----------------+         +--------------------------+    +-----------------------+
//
// The default routes of site and world lead to the rest, and the attacker
// answers for whatever address is asked there. So a packet that gets out is seen, wherever
// it was meant to go. The wire is watched too: what leaves the host and is meant for no service of
// the world is a sighting. Canaries listen on the host itself.
//
// The namespaces have no names. They live as long as a descriptor, a socket or a
// process is in them, so that nothing is left of them however this process ends.
package simnet

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"

	"github.com/custody-project/custody/redteam/simnet/llmapi"
)

// Names of the world. All of them are below Zone but the attacker's.
const (
	Zone = "site.example"
	// Allowed is a web server: HTTP on tcp/80, HTTPS (1.1 and 2) on tcp/443 and, for a
	// rule that does not name it, on tcp/8443. Its repository is at /repo.git.
	Allowed = "allowed.site.example"
	// Fronted is another site at the same addresses.
	Fronted = "fronted.site.example"
	// API is a web server too, for rules with http.
	API = "api.site.example"
	// LLM acts as a language model over HTTPS, for clients with its key; see package llmapi.
	LLM = "llm.site.example"
	// Plain is one for cleartext HTTP.
	Plain = "plain.site.example"
	// Direct echoes on tcp/7000 and udp/7001, over IPv4 and IPv6.
	Direct = "direct.site.example"
	// Quiet does the same at other addresses.
	Quiet = "quiet.site.example"
	// Wild has any name below it, at a web server.
	Wild = "wild.site.example"
	// Rebind has names that lead where none should: KIND or KIND-TOKEN below it, see Rebinding.
	Rebind = "rebind.site.example"
	// RebindDirect has the same, for rules with mode direct.
	RebindDirect = "rebind-direct.site.example"
	// Attacker is the zone whose every query the attacker sees.
	Attacker = "evil.example"
)

// Addresses of the world.
var (
	Resolver4 = netip.MustParseAddrPort("93.184.0.53:53")
	Resolver6 = netip.MustParseAddrPort("[2600:dead::53]:53")

	Allowed4 = netip.MustParseAddr("93.184.10.10")
	Allowed6 = netip.MustParseAddr("2600:dead:10::10")
	API4     = netip.MustParseAddr("93.184.10.11")
	API6     = netip.MustParseAddr("2600:dead:10::11")
	LLM4     = netip.MustParseAddr("93.184.10.12")
	LLM6     = netip.MustParseAddr("2600:dead:10::12")
	Direct4  = netip.MustParseAddr("93.184.10.20")
	Direct6  = netip.MustParseAddr("2600:dead:10::20")
	Quiet4   = netip.MustParseAddr("93.184.10.21")
	Quiet6   = netip.MustParseAddr("2600:dead:10::21")

	Attacker4 = netip.MustParseAddr("93.184.66.66")
	Attacker6 = netip.MustParseAddr("2600:dead:66::66")
	Metadata4 = netip.MustParseAddr("169.254.169.254")
	Metadata6 = netip.MustParseAddr("fd00:ec2::254")

	// The host's own, in public and in private ranges.
	Site4    = netip.MustParseAddr("93.184.1.2")
	Site6    = netip.MustParseAddr("2600:dead:1::2")
	SiteLAN4 = netip.MustParseAddr("10.66.0.2")
	SiteLAN6 = netip.MustParseAddr("fd66::2")

	hosts4 = netip.MustParsePrefix("93.184.10.0/24")
	hosts6 = netip.MustParsePrefix("2600:dead:10::/64")
	many4  = netip.MustParsePrefix("93.184.32.0/19")

	// Addresses of the cables that package fence lays for direct flows.
	cables4 = netip.MustParsePrefix("198.19.0.0/16")
	cables6 = netip.MustParsePrefix("fdc5:7a1c:19d3::/112")
)

// CanaryPorts are the TCP ports on which the host itself listens, on all its
// addresses, and of which no one in a sandbox may know.
var CanaryPorts = []uint16{22, 2375, 8080}

// Network is the simulated internet. Its methods are safe for concurrent use.
type Network struct {
	spaces   spaces
	services services
	ca       *authority
	log      log
	model    *llmapi.Server
	modelKey string
}

// New makes a network. It needs root, or CAP_NET_ADMIN, CAP_SYS_ADMIN and CAP_NET_RAW.
func New(ctx context.Context) (n *Network, err error) {
	n = &Network{modelKey: "sk-world-" + rand.Text()}
	n.model = llmapi.New(n.modelKey)
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make the simulated internet: %w", err), n.Close())
			n = nil
		}
	}()
	if n.ca, err = newAuthority(); err != nil {
		return n, err
	}
	for _, make := range []func() error{n.spaces.make, n.spaces.link, n.watch, n.serveDNS, n.serveWeb, n.serveEcho, n.serveAttacker, n.canaries} {
		if err := errors.Join(context.Cause(ctx), make()); err != nil {
			return n, err
		}
	}
	return n, nil
}

// Do calls f on a thread that is in the host's namespace: sockets that f makes
// and processes that it starts stay there. f must not wait long: it has the thread to itself.
func (n *Network) Do(f func() error) error { return n.spaces.site.do(f) }

// Start starts a program in the host's namespace, as cmd.Start does elsewhere.
// The thread that is its parent lives until Close, so Pdeathsig may be used.
func (n *Network) Start(cmd *exec.Cmd) error { return n.spaces.site.do(cmd.Start) }

// Run starts a program as Start does and waits for it.
func (n *Network) Run(cmd *exec.Cmd) error {
	if err := n.Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

// Site returns the host's network namespace. It belongs to the Network: the caller does not close it.
func (n *Network) Site() *os.File { return n.spaces.site.file }

// CA returns the certificate of the authority that all servers' certificates are from, as PEM.
func (n *Network) CA() []byte { return n.ca.pem }

// Roots returns it as a pool.
func (n *Network) Roots() *x509.CertPool { return n.ca.pool() }

// Model is the server behind LLM. It logs what it served.
func (n *Network) Model() *llmapi.Server { return n.model }

// ModelKey is the key that it wants, another one in each world.
func (n *Network) ModelKey() string { return n.modelKey }

// Close ends everything that serves, and lets go of the namespaces. Processes
// that were started in the host's namespace are the caller's to end.
func (n *Network) Close() error {
	return errors.Join(n.services.close(), n.spaces.close())
}
