package redteam

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/netpolicy/fence"
	"github.com/custody-project/custody/redteam/simnet"
)

// outside runs the scene without a sandbox: the suite itself sends from the host, and the watchers must observe that.
func (t *trial) outside(ctx context.Context, probes []Probe) error {
	for _, p := range probes {
		to := net.JoinHostPort(p.task.Host, fmt.Sprint(p.task.Port))
		network := p.task.Proto
		err := t.net.Do(func() error {
			c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, to)
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write(p.task.Send[0].Data)
			return err
		})
		if err != nil {
			return fmt.Errorf("send to %s: %w", to, err)
		}
	}
	for _, p := range probes {
		o := Outcome{Probe: p, Blocked: true, Detail: "it was not observed"}
		await(ctx, 3*time.Second, func() bool { return len(t.watch.sightings(p)) > 0 })
		if list := t.watch.sightings(p); len(list) > 0 {
			o.Blocked, o.Recorded, o.Detail = false, true, "seen "+list[0].String()
		}
		t.outcomes = append(t.outcomes, o)
	}
	return nil
}

func await(ctx context.Context, patience time.Duration, is func() bool) {
	for end := time.Now().Add(patience); !is() && time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(2 * time.Millisecond)
	}
}

// rawFence is the setup of the scene of the hostile kernel: a fence whose network card the suite uses in place of a VM.
//
//	probes -- frames --> tap0 | fence's namespace: sockets where custody's | site
//	         <- answers --    | would be, and where none may be             |
type rawFence struct {
	trial *trial
	fence *fence.Fence
	tap   *nic
	work  sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	events  []fence.Event
	answers []string // on the card, which only a host that was reached can have sent
	taken   []string // connections and datagrams that sockets in the namespace received
}

// kernel runs the scene of the hostile kernel.
func (t *trial) kernel(ctx context.Context, probes []Probe) (err error) {
	s := &rawFence{trial: t}
	err = t.net.Do(func() (err error) {
		s.fence, err = fence.New(ctx, fence.Options{Observed: s.observed})
		return err
	})
	if err != nil {
		return err
	}
	closers, err := s.furnish(ctx)
	defer func() {
		for _, c := range closers {
			err = errors.Join(err, c.Close())
		}
		err = errors.Join(err, s.fence.Close())
		s.work.Wait()
	}()
	if err != nil {
		return err
	}
	for _, p := range probes {
		if err := s.play(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p.ID, err)
		}
	}
	return nil
}

func (s *rawFence) observed(ev fence.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, ev)
}

// furnish sets a policy, opens its addresses and starts listeners in the namespace.
func (s *rawFence) furnish(ctx context.Context) (closers []io.Closer, err error) {
	rule := func(name string, mode netpolicy.Mode, ports ...netpolicy.Port) netpolicy.Rule {
		pattern, bad := netpolicy.ParsePattern(name)
		err = errors.Join(err, bad)
		return netpolicy.Rule{Pattern: pattern, Mode: mode, Ports: ports}
	}
	web, echo, echoUDP := netpolicy.Port{Proto: "tcp", Number: 443}, netpolicy.Port{Proto: "tcp", Number: 7000}, netpolicy.Port{Proto: "udp", Number: 7001}
	list := []netpolicy.Rule{rule(simnet.Allowed, netpolicy.Gateway, web), rule(simnet.Direct, netpolicy.Direct, echo, echoUDP)}
	policy, bad := netpolicy.New(list)
	if err = errors.Join(err, bad); err != nil {
		return nil, err
	}
	if _, err := s.fence.Enforce(ctx, netpolicy.Generation{Number: 1, Policy: policy}); err != nil {
		return nil, err
	}
	later := time.Now().Add(time.Hour)
	open := func(a netip.Addr, name string, port netpolicy.Port, via netpolicy.Mode, until time.Time) {
		err = errors.Join(err, s.fence.Open(a, fence.Permit{Name: name, Port: port, Via: via, Rule: name}, until))
	}
	open(knownSynthetic, simnet.Allowed, web, netpolicy.Gateway, time.Time{})
	for _, a := range []netip.Addr{simnet.Direct4, simnet.Direct6} {
		open(a, simnet.Direct, echo, netpolicy.Direct, later)
		open(a, simnet.Direct, echoUDP, netpolicy.Direct, later)
	}
	if err != nil {
		return nil, err
	}
	s.tap = &nic{file: s.fence.Tap()}
	s.work.Go(func() { s.tap.read(s.answered) })
	return s.sockets(ctx)
}

// sockets starts listeners on the ports of the resolver and the gateway, and on others. A connection to any of them
// means that the fence passed it.
func (s *rawFence) sockets(ctx context.Context) (closers []io.Closer, err error) {
	for _, port := range []string{"22", "53", "80", "443", "8080", "8443"} {
		l, err := s.fence.Listen(ctx, "tcp", net.JoinHostPort("", port))
		if err != nil {
			return closers, err
		}
		closers = append(closers, l)
		s.work.Go(func() { s.accept(l) })
	}
	for _, port := range []string{"53", "67", "443", "547", "5353", "7001", "40000"} {
		c, err := s.fence.ListenPacket(ctx, "udp", net.JoinHostPort("", port))
		if err != nil {
			return closers, err
		}
		closers = append(closers, c)
		s.work.Go(func() { s.receive(c) })
	}
	return closers, nil
}

func (s *rawFence) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.took("a connection to " + c.LocalAddr().String())
		c.Close()
	}
}

func (s *rawFence) receive(c net.PacketConn) {
	buf := make([]byte, 2048)
	for {
		n, _, err := c.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			s.took("a datagram to " + c.LocalAddr().String() + ": " + string(buf[:n]))
		}
	}
}

func (s *rawFence) took(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = append(s.taken, what)
}

func (s *rawFence) answered(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, what)
}

// denials returns how many packets were dropped so far, and the fence's deny events from event n on.
func (s *rawFence) denials(n int) (count uint64, events []fence.Event, err error) {
	sums, err := s.fence.Denials()
	for _, sum := range sums {
		count += sum
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ev := range s.events[n:] {
		if ev.State == audit.FlowDeny && !ev.Inbound {
			events = append(events, ev)
		}
	}
	return count, events, err
}

// play makes one probe, and waits until the fence has reported it or the time is up.
func (s *rawFence) play(ctx context.Context, p Probe) error {
	s.mu.Lock()
	s.answers, s.taken = nil, nil
	n := len(s.events)
	s.mu.Unlock()
	before, _, err := s.denials(n)
	if err != nil {
		return err
	}
	for _, f := range p.frames {
		if err := s.tap.write(f); err != nil {
			return err
		}
	}
	if p.Control {
		return s.control(ctx, p)
	}
	var denials []fence.Event
	dropped := uint64(0)
	await(ctx, 2*time.Second, func() bool {
		var now uint64
		now, denials, err = s.denials(n)
		dropped = now - before
		return err != nil || dropped >= uint64(len(p.frames)-p.held) && len(denials) > 0
	})
	if err != nil {
		return err
	}
	time.Sleep(2 * time.Millisecond) // for packets that were passed in spite of that
	return s.outcome(ctx, p, dropped, denials)
}

// outcome records the first denial that the fence reported in the suite's record.
func (s *rawFence) outcome(ctx context.Context, p Probe, dropped uint64, denials []fence.Event) error {
	o := Outcome{Probe: p, Run: s.trial.Own, Blocked: true}
	s.mu.Lock()
	seen := append(append([]string{}, s.answers...), s.taken...)
	s.mu.Unlock()
	if through := s.trial.through(p, report{}, time.Time{}); through != "" {
		seen = append(seen, through)
	}
	if dropped < uint64(len(p.frames)-p.held) {
		seen = append(seen, fmt.Sprintf("of %d frames only %d were dropped", len(p.frames), dropped))
	}
	if len(seen) > 0 {
		o.Blocked, o.Detail = false, strings.Join(seen, "; ")
	}
	if len(denials) > 0 {
		seq, err := s.trial.Recorder.Record(ctx, denial(denials[0]))
		if err != nil {
			return err
		}
		o.Recorded, o.Seq = true, seq
		o.Detail = strings.TrimPrefix(o.Detail+"; flow deny: "+denials[0].Reason, "; ")
	}
	s.trial.outcomes = append(s.trial.outcomes, o)
	return nil
}

func denial(ev fence.Event) audit.Event {
	f := &audit.Flow{State: ev.State, Verdict: audit.Deny, Proto: ev.Flow.Proto, Rule: netpolicy.Default, Reason: ev.Reason, Generation: ev.Flow.Generation, Count: ev.Count}
	if ev.Flow.Rule != "" {
		f.Rule = ev.Flow.Rule
	}
	if a := ev.Flow.Src; a.Addr().IsValid() {
		f.SrcIP, f.SrcPort = a.Addr().String(), int(a.Port())
	}
	if a := ev.Flow.Dst; a.Addr().IsValid() {
		f.DstIP, f.DstPort = a.Addr().String(), int(a.Port())
	}
	return audit.Event{Time: ev.Time, Observer: audit.Host, Kind: audit.KindFlow, Flow: f}
}

// control waits until an allowed frame has arrived: at the network's echo server, or, as its response shows, at a socket
// of the namespace.
func (s *rawFence) control(ctx context.Context, p Probe) error {
	o := Outcome{Probe: p, Blocked: true, Detail: "it did not arrive"}
	arrived := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, a := range s.answers {
			if strings.HasPrefix(a, "tcp "+knownSynthetic.String()) {
				return true
			}
		}
		for _, r := range s.trial.net.Requests() {
			if strings.Contains(r.Body, p.token) {
				return true
			}
		}
		return false
	}
	await(ctx, 3*time.Second, arrived)
	if err := s.tap.write(ip{to: knownSynthetic}.tcp(40010, 443, tcpRST, "").frame()); err != nil { // without a reset, the socket would respond again
		return err
	}
	if arrived() {
		o.Blocked, o.Recorded, o.Detail = false, true, "it arrived"
	}
	s.trial.outcomes = append(s.trial.outcomes, o)
	return nil
}
