package sandbox

import (
	"context"
	"errors"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/internal/splice"
)

// Inbound is a connection that a caller of the API makes to a TCP port of the sandbox.
type Inbound struct {
	ID       string // no other connection of the run has it
	Port     int
	Who, Via string // see audit.Inbound
}

// Tunnel is such a connection. The caller calls Carry once, which records its end.
type Tunnel struct {
	Inbound
	sandbox *Sandbox
	conn    *channel.Conn
	began   time.Time
}

// dialTime bounds the guest's answer; it gives up after 10 s by itself.
const dialTime = 15 * time.Second

// tunnelIdle is how long a connection can be open while nothing is sent or received.
const tunnelIdle = 10 * time.Minute

// Ports returns the TCP ports on which processes of a sandbox listen, in ascending order.
func Ports(ctx context.Context, s *Sandbox) ([]int, error) {
	if err := s.holds.wait(ctx); err != nil {
		return nil, err
	}
	return s.warm.guest().Ports(ctx)
}

// Connect connects to a port, and records it before a byte is carried. The error is channel.ErrNotListening if nothing listens there.
func (s *Sandbox) Connect(ctx context.Context, in Inbound) (*Tunnel, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dialTime, errors.New("the sandbox did not answer in time"))
	defer cancel()
	if err := s.holds.wait(ctx); err != nil {
		return nil, err
	}
	t := &Tunnel{Inbound: in, sandbox: s, began: time.Now()}
	var err error
	if t.conn, err = s.warm.guest().Dial(ctx, in.Port); err != nil {
		_, recorded := s.parts.Recorder.Post(ctx, in.event(audit.Inbound{Op: audit.InboundRefuse, Reason: err.Error()}))
		return nil, errors.Join(err, recorded)
	}
	if _, err := s.parts.Recorder.Record(ctx, in.event(audit.Inbound{Op: audit.InboundOpen})); err != nil {
		t.conn.Close()
		return nil, err
	}
	return t, nil
}

// Carry carries bytes until both directions have ended, or ctx is done, and closes both connections.
func (t *Tunnel) Carry(ctx context.Context, caller splice.Conn) error {
	var traffic splice.Traffic
	end := audit.Inbound{Op: audit.InboundClose}
	if err := splice.Join(ctx, caller, t.conn, tunnelIdle, &traffic); err != nil {
		end.Reason = err.Error()
	}
	end.BytesIn, end.BytesOut, end.DurationNS = traffic.There(), traffic.Back(), int64(time.Since(t.began))
	_, err := t.sandbox.parts.Recorder.Post(context.WithoutCancel(ctx), t.event(end))
	return err
}

// event completes an event of the connection.
func (in Inbound) event(c audit.Inbound) audit.Event {
	c.ID, c.Port, c.Who, c.Via = in.ID, in.Port, in.Who, in.Via
	return audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindInbound, Inbound: &c}
}
