package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/secrets"
)

// Brokers are the brokers at the other end of a connection.
type Brokers struct {
	conn *privsep.Conn
	last atomic.Uint64 // the number of the last grant

	reading sync.Once // of what one call reads for all brokers
	values  map[string][]byte
	errs    map[string]string
	failed  error
}

// New returns the brokers of a Server, by scheme; names are those that Server.Brokers returned.
func New(c *privsep.Conn, names map[string]string) map[string]secrets.Broker {
	b := &Brokers{conn: c}
	all, by := map[string]secrets.Broker{}, map[string]secrets.Broker{}
	for scheme, name := range names {
		if all[name] == nil {
			all[name] = &broker{b, name}
		}
		by[scheme] = all[name]
	}
	return by
}

// broker is a broker of the other process. It is safe for concurrent use.
type broker struct {
	*Brokers
	name string
}

var _ secrets.Reader = (*broker)(nil)

// Name implements secrets.Broker.
func (b *broker) Name() string { return b.name }

// left returns how long a call may take.
func left(ctx context.Context) time.Duration {
	if until, ok := ctx.Deadline(); ok {
		return time.Until(until)
	}
	return maxCall
}

// call makes a call that returns one file if wantFile is set.
func (b *Brokers) call(ctx context.Context, name string, args, result any, wantFile bool) (*os.File, error) {
	files, err := b.conn.Call(ctx, name, args, result)
	if e := new(privsep.RemoteError); errors.As(err, &e) {
		return nil, errors.New(e.Text)
	}
	if err != nil {
		return nil, err
	}
	if wantFile && len(files) == 1 {
		return files[0], nil
	}
	for _, f := range files {
		f.Close()
	}
	if wantFile || len(files) > 0 {
		return nil, fmt.Errorf("call %s returned %d descriptors", name, len(files))
	}
	return nil, nil
}

// ReadValues implements secrets.Reader. Brokers that read no values return none.
func (b *broker) ReadValues(r secrets.Request) (map[string][]byte, map[string]error) {
	b.reading.Do(b.read)
	values, errs := map[string][]byte{}, map[string]error{}
	for _, bind := range r.Bindings {
		if b.failed != nil {
			errs[bind.Name] = b.failed
		}
		if text, ok := b.errs[bind.Name]; ok {
			errs[bind.Name] = errors.New(text)
		}
		if v, ok := b.values[bind.Name]; ok {
			values[bind.Name] = bytes.Clone(v)
			clear(v)
			delete(b.values, bind.Name)
		}
	}
	return values, errs
}

func (b *Brokers) read() {
	var answer readAnswer
	f, err := b.call(context.Background(), callRead, none{}, &answer, true)
	if err != nil {
		b.failed = err
		return
	}
	b.errs = answer.Errors
	b.failed = privsep.FromMemory(f, &b.values)
}

// Mint implements secrets.Broker. A grant that comes after ctx is done is revoked.
func (b *broker) Mint(ctx context.Context, r secrets.Request) (secrets.Grant, error) {
	g := &grant{brokers: b.Brokers, id: b.last.Add(1)}
	c := mintCall{ID: g.id, Broker: b.name, Step: r.Step, Limit: r.Limit, Within: left(ctx)}
	for _, bind := range r.Bindings {
		c.Names = append(c.Names, bind.Name)
	}
	f, err := b.call(ctx, callMint, c, &g.minted, true)
	if err == nil {
		g.expires = time.Now().Add(g.minted.Left)
		err = privsep.FromMemory(f, &g.values)
	}
	if err != nil {
		go g.abandon()
		return nil, err
	}
	if g.minted.Misuse {
		g.misuse = make(chan string, 16)
		go g.listen()
	}
	return g, nil
}

// abandon revokes what may have been granted after the caller of Mint gave up. If that fails, the Server does it when the run ends.
func (g *grant) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), lastTry)
	defer cancel()
	_ = g.Revoke(ctx)
}

// grant is a grant of the other process. It is safe for concurrent use.
type grant struct {
	brokers *Brokers
	id      uint64
	minted  minted
	misuse  chan string // nil: the broker detects none

	mu      sync.Mutex // guards the fields below
	values  map[string][]byte
	expires time.Time
}

// Values implements secrets.Grant.
func (g *grant) Values() map[string][]byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make(map[string][]byte, len(g.values))
	for name, v := range g.values {
		out[name] = bytes.Clone(v)
	}
	return out
}

// Accessor implements secrets.Grant.
func (g *grant) Accessor() string { return g.minted.Accessor }

// Leases implements secrets.Grant.
func (g *grant) Leases() int { return g.minted.Leases }

// Expires implements secrets.Grant.
func (g *grant) Expires() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.expires
}

// Renew implements secrets.Grant.
func (g *grant) Renew(ctx context.Context) error {
	var answer renewed
	if _, err := g.brokers.call(ctx, callRenew, grantCall{g.id, left(ctx)}, &answer, false); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expires = time.Now().Add(answer.Left)
	switch {
	case answer.Lost:
		g.wipe()
		return lost(answer.Error)
	case answer.Error != "":
		return errors.New(answer.Error)
	}
	return nil
}

// lost is an error of the broker that means secrets.ErrLost.
type lost string

// Error implements error.
func (l lost) Error() string { return string(l) }

// Is reports whether target is secrets.ErrLost.
func (l lost) Is(target error) bool { return target == secrets.ErrLost }

// Revoke implements secrets.Grant.
func (g *grant) Revoke(ctx context.Context) error {
	g.mu.Lock()
	g.wipe()
	g.mu.Unlock()
	_, err := g.brokers.call(ctx, callRevoke, grantCall{g.id, left(ctx)}, nil, false)
	return err
}

// wipe removes the values; the caller holds mu.
func (g *grant) wipe() {
	wipe(g.values)
	clear(g.values)
}

// Misuse implements secrets.Grant.
func (g *grant) Misuse() <-chan string {
	if g.misuse == nil {
		return nil
	}
	return g.misuse
}

// listen passes on the broker's reports until the grant is revoked or the connection has ended.
func (g *grant) listen() {
	defer close(g.misuse)
	for {
		var report misused
		if _, err := g.brokers.call(context.Background(), callMisuse, grantCall{g.id, maxCall}, &report, false); err != nil || report.Over {
			return
		}
		if report.What == "" {
			continue
		}
		select {
		case g.misuse <- report.What:
		default: // the first report ends the credentials
		}
	}
}
