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
// The default routes of site and world lead to rest, where the attacker responds at every address. So the network
// observes each packet that leaves the host, whatever its destination. The wire is watched too: a packet on it to
// anything but a service of the network is a sighting. Canaries listen on the host itself.
//
// The namespaces have no names. They exist as long as a descriptor, a socket or a process is in them, so the kernel
// removes them however this process ends.
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

// Names of the network. All but the attacker's are below Zone.
const (
	Zone = "site.example"
	// Allowed is a web server: HTTP on tcp/80, HTTPS (1.1 and 2) on tcp/443 and on tcp/8443, a port that no rule
	// names. Its repository is at /repo.git.
	Allowed = "allowed.site.example"
	// Fronted is another website at the same addresses.
	Fronted = "fronted.site.example"
	// API is a web server too, for rules with http.
	API = "api.site.example"
	// LLM is an LLM API over HTTPS, for clients with its key; see package llmapi.
	LLM = "llm.site.example"
	// Plain is a web server for cleartext HTTP.
	Plain = "plain.site.example"
	// Direct echoes on tcp/7000 and udp/7001, over IPv4 and IPv6.
	Direct = "direct.site.example"
	// Quiet is the same at other addresses.
	Quiet = "quiet.site.example"
	// Wild is the zone of a web server: every name below it exists.
	Wild = "wild.site.example"
	// Rebind is the zone of names that resolve to forbidden addresses: KIND or KIND-TOKEN below it, see Rebinding.
	Rebind = "rebind.site.example"
	// RebindDirect is the same for rules with mode direct.
	RebindDirect = "rebind-direct.site.example"
	// Attacker is the attacker's zone: the attacker sees every query for a name in it.
	Attacker = "evil.example"
)

// Addresses of the network.
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

	// Addresses of the virtual links that package fence makes for direct flows.
	cables4 = netip.MustParsePrefix("198.19.0.0/16")
	cables6 = netip.MustParsePrefix("fdc5:7a1c:19d3::/112")
)

// CanaryPorts are the TCP ports on which the host itself listens, on all its addresses. No sandbox may reach them.
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

// Do calls f on a thread in the host's namespace: the sockets and processes that f makes belong to that namespace.
// There is one such thread, so f must not block for long.
func (n *Network) Do(f func() error) error { return n.spaces.site.do(f) }

// Start starts a program in the host's namespace. The thread that is its parent lives until Close, so that
// Pdeathsig works.
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

// CA returns the certificate of the authority that issued all servers' certificates, as PEM.
func (n *Network) CA() []byte { return n.ca.pem }

// Roots returns a pool with that certificate.
func (n *Network) Roots() *x509.CertPool { return n.ca.pool() }

// Model returns the server at LLM, which logs the calls that it has served.
func (n *Network) Model() *llmapi.Server { return n.model }

// ModelKey returns the API key that the server at LLM accepts. Each network has a different key.
func (n *Network) ModelKey() string { return n.modelKey }

// Close ends all servers and watchers, and closes the namespaces. The caller ends the processes that it started in
// the host's namespace.
func (n *Network) Close() error {
	return errors.Join(n.services.close(), n.spaces.close())
}
