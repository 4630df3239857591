// Package egress controls the outgoing traffic of one sandbox. It connects the fence, the resolver and the gateway, maps
// synthetic addresses to names, changes the policy of a running sandbox, and records the traffic.
//
//	            policy (netpolicy.Live)
//	           /         |             \
//	     fence       dnsproxy         gateway        each calls netpolicy.Decide
//	(packets, flows)  (names)      (TLS, HTTP)
//	          ^          |              |
//	          |        table: name <-> synthetic address
//	          +-- Open --+              |
//	           \________ annotator _____/            step and process added
//	                         |
//	                      Recorder
package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/dnsproxy"
	"github.com/custody-project/custody/dnsproxy/upstream"
	"github.com/custody-project/custody/gateway"
	"github.com/custody-project/custody/llm"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/netpolicy/fence"
	"github.com/custody-project/custody/redact"
)

// Recorder adds events to the run's record.
type Recorder interface {
	Record(ctx context.Context, ev audit.Event) (uint64, error)
	Post(ctx context.Context, ev audit.Event) (uint64, error)
	Sync(ctx context.Context, seq uint64) error
}

// Options describe what a sandbox may reach.
type Options struct {
	Run       string
	Policy    *netpolicy.Policy
	Resolvers []upstream.Server
	Recorder  Recorder
	Roots     *x509.CertPool // for upstream servers; nil: the host's
	// Credentials are added to requests by rules; nil: there are none.
	Credentials gateway.Credentials
	// Redactor masks values in responses, for rules that require it; needed with Credentials.
	Redactor *redact.Redactor
	// Tokens limits the tokens that LLM API calls may use; 0: no limit.
	Tokens int64
	// Account is charged the tokens that LLM API calls use; nil: none is.
	Account llm.Account
	// Rate limits the bytes per second that the sandbox receives, and those that it sends; 0: no limit.
	Rate int64
	// Notice prints a message for the user, a line without a prefix.
	Notice func(string)
}

// Network is the egress path of one sandbox. It is safe for concurrent use.
//
//	Prepare            Begin                       Close
//	--------> closed --------> open, generation n ------> gone
//	                         |      ^
//	                         +------+ Change: generation n+1
type Network struct {
	options   Options
	fence     *fence.Fence
	names     *nameTable
	annotator *annotator
	upstream  *upstream.Client
	gateway   *gateway.Gateway
	authority *gateway.Authority // nil: no rule opens TLS
	calls     *llm.Tracker
	live      netpolicy.Live
	self      self
	flows     ids

	stop    context.CancelFunc
	serving sync.WaitGroup
	ending  sync.Once
	closing sync.WaitGroup // waits for the removal of the fence
	closed  error          // the error of that removal

	// change is held for reading while a name is opened and for writing while the policy changes, so that nothing is
	// opened under an old policy.
	change sync.RWMutex
	// Guarded by change:
	listeners map[uint16]net.Listener // the gateway's listeners, by port
	ended     bool
}

func newNetwork(f *fence.Fence, o Options) *Network {
	return &Network{
		options: o, fence: f, names: newNameTable(), listeners: map[uint16]net.Listener{},
		annotator: &annotator{recorder: o.Recorder, attempts: newAttempts(), credentials: o.Credentials},
		flows:     ids{open: map[fence.Key]string{}},
		calls:     llm.NewTracker(o.Tokens, o.Account),
	}
}

func (n *Network) assemble() (err error) {
	n.upstream = upstream.New(n.options.Resolvers, upstream.Options{})
	if names := opened(n.options.Policy); len(names) > 0 {
		if n.authority, err = gateway.NewAuthority(n.options.Run, names); err != nil {
			return err
		}
	}
	n.gateway = gateway.New(gateway.Config{
		Run: n.options.Run, Live: &n.live, Names: n.names, Recorder: n.annotator, Resolver: n.upstream,
		Self: n.self.has, Meter: meter{n.fence}, Roots: n.options.Roots, Authority: n.authority, NextID: n.flows.next,
		Credentials: n.options.Credentials, Redactor: n.options.Redactor, Calls: n.calls,
	})
	return nil
}

// opened returns the patterns for which a rule opens TLS.
func opened(p *netpolicy.Policy) []string {
	var names []string
	for _, r := range p.Rules() {
		if r.HTTP != nil {
			names = append(names, r.Pattern.String())
		}
	}
	return names
}

// Trust returns the CA certificate of the gateway, as PEM, which the guest must trust. It is nil if no rule opens TLS.
func (n *Network) Trust() []byte {
	if n.authority == nil {
		return nil
	}
	return n.authority.PEM()
}

// Step sets the step of the events that are recorded from now on; empty if none runs, or several do.
func (n *Network) Step(name string) { n.annotator.step.Store(&name) }

// Attempted stores a connection attempt of a step that the guest's sensor reported.
func (n *Network) Attempted(step string, f *audit.Flow) { n.annotator.attempts.note(step, f) }

// Executed takes an exec event of the guest's sensor, and adds the LLM API call that requested it.
func (n *Network) Executed(x *audit.Exec) {
	argv := make([]string, len(x.Argv))
	for i, a := range x.Argv {
		argv[i] = string(a)
	}
	call, tool := n.calls.Asked(argv)
	x.LLM, x.ToolCall = call, audit.Text(tool)
}

// Withdraw ends the open requests that carry the secret as their credential.
func (n *Network) Withdraw(secret, reason string) { n.gateway.Withdraw(secret, reason) }

// Begin records and enforces the policy and starts the resolver and the gateway. ctx bounds only Begin itself.
func (n *Network) Begin(ctx context.Context) error {
	keep, stop := context.WithCancel(context.WithoutCancel(ctx))
	n.stop = stop
	if err := n.first(ctx); err != nil {
		return err
	}
	return n.serveNames(keep)
}

// first enforces the initial policy.
func (n *Network) first(ctx context.Context) error {
	n.change.Lock()
	defer n.change.Unlock()
	_, err := n.enforce(ctx, n.options.Policy)
	return err
}

func (n *Network) serveNames(ctx context.Context) error {
	at := net.JoinHostPort(netpolicy.Gateway4.String(), strconv.Itoa(netpolicy.ResolverPort))
	packets, err := n.fence.ListenPacket(ctx, "udp4", at)
	if err != nil {
		return fmt.Errorf("listen for the guest's DNS queries: %w", err)
	}
	conns, err := n.fence.Listen(ctx, "tcp4", at)
	if err != nil {
		return errors.Join(fmt.Errorf("listen for the guest's DNS queries: %w", err), packets.Close())
	}
	server := dnsproxy.New(dnsproxy.Config{
		Run: n.options.Run, Live: &n.live, Names: names{n}, Recorder: n.annotator, Upstream: n.upstream, Self: n.self.has,
		Secret: n.annotator.holdsSecret,
	})
	n.serving.Go(func() {
		if err := server.Serve(ctx, packets, conns); err != nil && ctx.Err() == nil {
			n.options.Notice("the resolver failed and no longer answers queries: " + err.Error())
		}
	})
	return nil
}

// End stops all traffic, and returns when the end of every flow is in the record. The VM should have ended. The kernel's
// objects are removed concurrently; see Close.
func (n *Network) End() { n.ending.Do(n.end) }

func (n *Network) end() {
	if n.stop != nil {
		n.stop()
	}
	n.change.Lock()
	n.ended = true
	for _, listener := range n.listeners {
		listener.Close()
	}
	clear(n.listeners)
	n.change.Unlock()
	n.gateway.Close()
	n.serving.Wait()
	n.upstream.Close()
	n.fence.Stop()
	n.closing.Go(func() { n.closed = n.fence.Close() })
}

// Close ends the network if End was not called, and returns when all its resources are released.
func (n *Network) Close() error {
	n.End()
	n.closing.Wait()
	return n.closed
}

// names implements dnsproxy.Names.
type names struct{ n *Network }

// Synthetic implements dnsproxy.Names.
func (s names) Synthetic(name string) (netip.Addr, error) { return s.n.names.address(name) }

// Open implements dnsproxy.Names. It opens nothing that the policy in force does not allow.
func (s names) Open(name string, addr netip.Addr, via netpolicy.Mode, until time.Time, seq uint64) error {
	n := s.n
	n.change.RLock()
	defer n.change.RUnlock()
	if via == netpolicy.Gateway {
		n.names.answered(name, seq)
	}
	return n.open(name, addr, via, until, seq)
}

func (n *Network) open(name string, addr netip.Addr, via netpolicy.Mode, until time.Time, seq uint64) error {
	for _, r := range n.live.Current().Policy.Match(name) {
		if r.Mode != via {
			continue
		}
		for _, port := range r.Ports {
			p := fence.Permit{Name: name, Port: port, Via: via, Rule: r.String(), DNSSeq: seq}
			if err := n.fence.Open(addr, p, until); err != nil {
				return err
			}
		}
	}
	return nil
}

// ids number the flows of a sandbox.
type ids struct {
	last atomic.Uint64
	mu   sync.Mutex // guards open
	open map[fence.Key]string
}

func (i *ids) next() string { return "f" + strconv.FormatUint(i.last.Add(1), 10) }

// of returns the id of a flow that the fence reports. The end of the flow removes the id.
func (i *ids) of(k fence.Key, ended bool) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	id, ok := i.open[k]
	if !ok {
		id = i.next()
	}
	if ended {
		delete(i.open, k)
	} else {
		i.open[k] = id
	}
	return id
}
