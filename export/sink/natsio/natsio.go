// Package natsio is the sink for a NATS subject, in a JetStream stream unless it is set to a plain subject.
//
// Each message has our event id as Nats-Msg-Id: the server drops a repeat within the stream's deduplication
// window. A publish counts when the stream has acknowledged it.
package natsio

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/sink/peer"
)

// Options of a Sink. URL and Subject are required.
type Options struct {
	URL      string // comma-separated; nats:// or tls://
	Subject  string // {tenant}, {run} and {kind} are replaced
	Plain    bool   // no stream: every subscriber gets it, without acknowledgement
	TLS      *tls.Config
	Token    peer.Secret
	User     string
	Password peer.Secret
	Creds    string        // file with a user's JWT and seed
	NKey     string        // file with a seed
	Timeout  time.Duration // of connecting; 10 s
}

// Sink publishes to one subject, or one for each tenant, run or kind.
type Sink struct {
	o       Options
	connect []nats.Option

	conn *nats.Conn
	js   jetstream.JetStream
	lost chan struct{} // closed when conn is closed
}

// New returns a sink, which connects when there is something to send.
func New(o Options) (*Sink, error) {
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	s := &Sink{o: o, connect: []nats.Option{
		nats.Name("custody export"), nats.Timeout(o.Timeout), nats.NoReconnect(), // the exporter retries, in order
		nats.PingInterval(20 * time.Second), nats.MaxPingsOutstanding(2),
	}}
	if err := checkSubject(o.Subject); err != nil {
		return nil, err
	}
	if o.TLS != nil {
		s.connect = append(s.connect, nats.Secure(o.TLS))
	}
	ways := 0
	if o.Token.Set() {
		ways++
		s.connect = append(s.connect, nats.TokenHandler(func() string {
			v, _ := o.Token.Value() // the server refuses an empty one
			return v
		}))
	}
	if o.User != "" {
		ways++
		s.connect = append(s.connect, nats.UserInfoHandler(func() (string, string) {
			v, _ := o.Password.Value() // as above
			return o.User, v
		}))
	}
	if o.Creds != "" {
		ways++
		s.connect = append(s.connect, nats.UserCredentials(o.Creds))
	}
	if o.NKey != "" {
		ways++
		opt, err := nats.NkeyOptionFromSeed(o.NKey)
		if err != nil {
			return nil, fmt.Errorf("nkey_file: %w", err)
		}
		s.connect = append(s.connect, opt)
	}
	if ways > 1 {
		return nil, errors.New("nats needs one of a token, a user with a password, creds_file and nkey_file")
	}
	return s, nil
}

func checkSubject(subject string) error {
	if subject == "" || strings.ContainsAny(subject, " \t\r\n*>") || slices.Contains(strings.Split(subject, "."), "") {
		return fmt.Errorf("%.80q is not a subject to publish to", subject)
	}
	return nil
}

// Warning implements export.Warner.
func (s *Sink) Warning() string {
	if s.o.Plain {
		return "a plain NATS subject has no acknowledgement: events that no subscriber receives at that moment are lost"
	}
	return ""
}

// Send implements export.Sink.
func (s *Sink) Send(ctx context.Context, items []export.Item) error {
	if err := s.dial(); err != nil {
		return err
	}
	if s.o.Plain {
		return s.plain(ctx, items)
	}
	return s.stream(ctx, items)
}

// dial connects if there is no connection.
func (s *Sink) dial() error {
	if s.conn != nil && s.conn.IsConnected() {
		return nil
	}
	s.drop()
	lost := make(chan struct{})
	connect := append(slices.Clip(s.connect), nats.ClosedHandler(func(*nats.Conn) { close(lost) }))
	conn, err := nats.Connect(s.o.URL, connect...)
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(1<<16))
	if err != nil {
		conn.Close()
		return err
	}
	s.conn, s.js, s.lost = conn, js, lost
	return nil
}

// drop closes a connection after an error.
func (s *Sink) drop() {
	if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
}

func (s *Sink) message(i export.Item) *nats.Msg {
	m := nats.NewMsg(strings.NewReplacer("{tenant}", token(i.Tenant), "{run}", token(i.Run), "{kind}", token(string(i.Kind))).Replace(s.o.Subject))
	m.Data = i.Data
	m.Header.Set(nats.MsgIdHdr, i.ID)
	m.Header.Set("Custody-Run", i.Run)
	m.Header.Set("Custody-Seq", strconv.FormatUint(i.Seq, 10))
	if i.Tenant != "" {
		m.Header.Set("Custody-Tenant", i.Tenant)
	}
	return m
}

// token encodes a name as one token of a subject, like package ship: "_" for "".
func token(s string) string {
	if s == "" {
		return "_"
	}
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || strings.ContainsRune(".*>", r) {
			return '_'
		}
		return r
	}, s)
}

// stream publishes all, and waits for the stream's acknowledgement of each.
func (s *Sink) stream(ctx context.Context, items []export.Item) error {
	outcomes := make(export.Outcomes, len(items))
	waiting := make([]jetstream.PubAckFuture, len(items))
	for n, i := range items {
		m := s.message(i)
		if err := s.fits(m); err != nil {
			outcomes[n] = err
			continue
		}
		// No retries by the library: they would overtake later messages.
		f, err := s.js.PublishMsgAsync(m, jetstream.WithRetryAttempts(0))
		if err != nil {
			for ; n < len(items); n++ {
				outcomes[n] = fmt.Errorf("publish: %w", err)
			}
			break
		}
		waiting[n] = f
	}
	for n, f := range waiting {
		if f == nil {
			continue
		}
		select {
		case <-f.Ok():
		case err := <-f.Err():
			outcomes[n] = s.outcome(err)
		case <-s.lost:
			outcomes[n] = errors.New("the connection was lost before the stream acknowledged it")
		case <-ctx.Done():
			outcomes[n] = fmt.Errorf("no acknowledgement of the stream: %w", context.Cause(ctx))
		}
	}
	if ctx.Err() != nil {
		s.drop()
	}
	return result(outcomes)
}

func result(outcomes export.Outcomes) error {
	if slices.ContainsFunc(outcomes, func(err error) bool { return err != nil }) {
		return outcomes
	}
	return nil
}

// fits refuses messages for which the server would close the connection.
func (s *Sink) fits(m *nats.Msg) error {
	if size, most := int64(m.Size()), s.conn.MaxPayload(); most > 0 && size > most {
		return &export.Refused{Reason: fmt.Sprintf("the message has %d bytes, and the server accepts %d", size, most)}
	}
	return nil
}

// outcome maps an error of a stream. Only a message that is too large concerns the event.
func (s *Sink) outcome(err error) error {
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == tooLarge {
		return &export.Refused{Reason: api.Description}
	}
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) {
		return fmt.Errorf("no stream has the subject %s: create one, or set no_ack: true: %w", s.o.Subject, err)
	}
	return err
}

// tooLarge is the server's JSStreamMessageExceedsMaximumErr.
const tooLarge jetstream.ErrorCode = 10054

// plain publishes, and waits until the server has read everything.
func (s *Sink) plain(ctx context.Context, items []export.Item) error {
	outcomes := make(export.Outcomes, len(items))
	for n, i := range items {
		m := s.message(i)
		if err := s.fits(m); err != nil {
			outcomes[n] = err
			continue
		}
		if err := s.conn.PublishMsg(m); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := s.conn.FlushWithContext(ctx); err != nil {
		s.drop()
		return fmt.Errorf("flush: %w", err)
	}
	return result(outcomes)
}

// Close implements export.Sink.
func (s *Sink) Close() error {
	s.drop()
	return nil
}
