// Package remote separates brokers from the process that uses their credentials. A worker, whose Issuer mints, renews and revokes the
// credentials of its run, has neither the login to Vault nor access to the sources of this host.
//
//	worker: secrets.Issuer --> Brokers --privsep--> Server: the brokers of one run
//
// A worker that was taken over gets the secrets that steps of its run have, for as long as it lives, and no others: it names
// secrets, and the Server knows their sources. When the worker ends, the Server revokes what it was granted.
package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/secrets"
)

// The calls of Brokers.
const (
	callRead   = "secrets-read"
	callMint   = "secrets-mint"
	callRenew  = "secrets-renew"
	callRevoke = "secrets-revoke"
	callMisuse = "secrets-misuse"
)

const (
	maxGrants = 1024                   // grants that live at the same time
	maxCall   = 2 * time.Minute        // duration of a call
	lastTry   = 10 * time.Second       // duration of the revocations after the worker's end
	maxStep   = 200                    // bytes of a step's name
	maxLimit  = secrets.MaxLimit       // duration of a grant with its renewals
	maxValues = 64 << 20               // bytes of an answer's values
	valueFile = "values of a call"     // name of the file in memory with them
	unknownID = "there is no grant %d" // text of an error
)

type (
	none     struct{}
	mintCall struct {
		ID     uint64 // chosen by the worker; it can revoke a grant whose minting it did not await
		Broker string
		Step   string
		Names  []string
		Limit  time.Duration
		Within time.Duration // limit of the call
	}
	minted struct {
		Accessor string
		Leases   int
		Left     time.Duration // until it expires
		Misuse   bool          // the broker detects misuse
	}
	grantCall struct {
		ID     uint64
		Within time.Duration
	}
	renewed struct {
		Left  time.Duration
		Error string
		Lost  bool // the grant has ended: see secrets.ErrLost
	}
	misused struct {
		What string
		Over bool // there are no further reports
	}
	readAnswer struct{ Errors map[string]string }
)

// Server gives a worker the credentials of one run. It is safe for concurrent use.
type Server struct {
	// Minted, if set, is called with copies of all values before the worker gets them, for example to mask them. It owns the copies.
	Minted func(values map[string][]byte)

	request  secrets.Request // the run, and the base of relative sources
	bindings map[string]secrets.Binding
	brokers  map[string]secrets.Broker // by name
	of       map[string]string         // the broker's name by scheme

	mu     sync.Mutex // guards the fields below
	grants map[uint64]*lent
	closed bool
}

// lent is a grant of the worker, which exists from the call that mints it.
type lent struct {
	cancel context.CancelFunc // ends the minting
	minted chan struct{}      // closed when grant is set, or the minting has failed
	grant  secrets.Grant      // nil: it failed
}

// NewServer returns a server of the credentials that a run can have. Brokers are by the scheme of the sources that they serve.
func NewServer(run, dir string, bindings []secrets.Binding, brokers map[string]secrets.Broker) *Server {
	s := &Server{
		request: secrets.Request{Run: run, Dir: dir}, bindings: map[string]secrets.Binding{},
		brokers: map[string]secrets.Broker{}, of: map[string]string{}, grants: map[uint64]*lent{},
	}
	for _, b := range bindings {
		s.bindings[b.Name] = b
	}
	for scheme, b := range brokers {
		s.brokers[b.Name()], s.of[scheme] = b, b.Name()
	}
	return s
}

// Handlers returns the calls that Brokers make.
func (s *Server) Handlers() map[string]privsep.Handler {
	return map[string]privsep.Handler{
		callRead:   privsep.Handle(s.read),
		callMint:   privsep.Handle(s.mint),
		callRenew:  privsep.Handle(s.renew),
		callRevoke: privsep.Handle(s.revoke),
		callMisuse: privsep.Handle(s.misuse),
	}
}

// Brokers returns the broker's name for each scheme, which a Brokers needs.
func (s *Server) Brokers() map[string]string { return s.of }

// Close revokes all grants. It waits some seconds for the brokers' confirmation.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	left := s.grants
	s.grants = map[uint64]*lent{}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTry)
	defer cancel()
	errs := make(chan error, len(left))
	for _, l := range left {
		go func() { errs <- l.end(ctx) }()
	}
	var all error
	for range left {
		all = errors.Join(all, <-errs)
	}
	return all
}

// end revokes the grant, also one that is being minted.
func (l *lent) end(ctx context.Context) error {
	l.cancel()
	select {
	case <-l.minted:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if l.grant == nil {
		return nil
	}
	return l.grant.Revoke(ctx)
}

// within returns a context that ends after d, and after maxCall at the latest.
func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, min(max(d, 0), maxCall))
}

func (s *Server) read(_ context.Context, c none) (any, []*os.File, error) {
	values, failed := map[string][]byte{}, map[string]string{}
	for name, b := range s.brokers {
		reader, ok := b.(secrets.Reader)
		if !ok {
			continue
		}
		r := s.request
		for _, bind := range s.bindings {
			if s.of[scheme(bind)] == name {
				r.Bindings = append(r.Bindings, bind)
			}
		}
		slices.SortFunc(r.Bindings, func(a, b secrets.Binding) int { return cmp.Compare(a.Name, b.Name) })
		read, errs := reader.ReadValues(r)
		for n, v := range read {
			values[n] = v
		}
		for n, err := range errs {
			failed[n] = err.Error()
		}
	}
	defer wipe(values)
	f, err := s.send(values)
	if err != nil {
		return nil, nil, err
	}
	return readAnswer{failed}, []*os.File{f}, nil
}

func scheme(b secrets.Binding) string {
	s, _, _ := strings.Cut(b.From, ":")
	return s
}

func (s *Server) mint(ctx context.Context, c mintCall) (any, []*os.File, error) {
	broker, r, err := s.check(c)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := within(ctx, c.Within)
	defer cancel()
	l := &lent{cancel: cancel, minted: make(chan struct{})}
	if err := s.add(c.ID, l); err != nil {
		return nil, nil, err
	}
	g, err := broker.Mint(ctx, r)
	l.grant = g
	close(l.minted)
	if err != nil {
		s.forget(c.ID)
		return nil, nil, err
	}
	values := g.Values()
	defer wipe(values)
	f, err := s.send(values)
	if err != nil {
		return nil, nil, err
	}
	return minted{g.Accessor(), g.Leases(), time.Until(g.Expires()), g.Misuse() != nil}, []*os.File{f}, nil
}

// check returns the broker of a call and the request to it.
func (s *Server) check(c mintCall) (secrets.Broker, secrets.Request, error) {
	r := s.request
	r.Step, r.Limit = c.Step, min(c.Limit, maxLimit)
	broker := s.brokers[c.Broker]
	if broker == nil {
		return nil, r, fmt.Errorf("there is no broker %.40q", c.Broker)
	}
	if len(c.Step) > maxStep || c.Limit <= 0 || len(c.Names) == 0 {
		return nil, r, errors.New("the request is not one of a step")
	}
	for i, name := range c.Names {
		b, ok := s.bindings[name]
		if !ok || s.of[scheme(b)] != c.Broker || slices.Contains(c.Names[:i], name) {
			return nil, r, fmt.Errorf("no step of this run gets a secret %.100q from %s", name, c.Broker)
		}
		r.Bindings = append(r.Bindings, b)
	}
	return broker, r, nil
}

func (s *Server) add(id uint64, l *lent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errors.New("the run has ended")
	case s.grants[id] != nil:
		return fmt.Errorf("grant %d exists", id)
	case len(s.grants) >= maxGrants:
		return fmt.Errorf("the run has %d live grants", maxGrants)
	}
	s.grants[id] = l
	return nil
}

func (s *Server) forget(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.grants, id)
}

func (s *Server) find(id uint64) *lent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grants[id]
}

// granted returns a grant that has been minted.
func (s *Server) granted(id uint64) (secrets.Grant, error) {
	l := s.find(id)
	if l == nil {
		return nil, fmt.Errorf(unknownID, id)
	}
	select {
	case <-l.minted:
	default:
		return nil, fmt.Errorf("grant %d is not minted yet", id)
	}
	if l.grant == nil {
		return nil, fmt.Errorf(unknownID, id)
	}
	return l.grant, nil
}

func (s *Server) renew(ctx context.Context, c grantCall) (any, []*os.File, error) {
	g, err := s.granted(c.ID)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := within(ctx, c.Within)
	defer cancel()
	err = g.Renew(ctx)
	answer := renewed{Left: time.Until(g.Expires())}
	if err != nil {
		answer.Error, answer.Lost = err.Error(), errors.Is(err, secrets.ErrLost)
	}
	return answer, nil, nil
}

// revoke forgets a grant once its broker has confirmed the revocation.
func (s *Server) revoke(ctx context.Context, c grantCall) (any, []*os.File, error) {
	l := s.find(c.ID)
	if l == nil {
		return none{}, nil, nil
	}
	ctx, cancel := within(ctx, c.Within)
	defer cancel()
	if err := l.end(ctx); err != nil {
		return nil, nil, err
	}
	s.forget(c.ID)
	return none{}, nil, nil
}

// misuse returns the next report of a grant's broker.
func (s *Server) misuse(ctx context.Context, c grantCall) (any, []*os.File, error) {
	g, err := s.granted(c.ID)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := within(ctx, c.Within)
	defer cancel()
	select {
	case what, ok := <-g.Misuse():
		return misused{what, !ok}, nil, nil
	case <-ctx.Done():
		return misused{}, nil, nil
	}
}

// send returns a file in memory with the values, which a message does not hold.
func (s *Server) send(values map[string][]byte) (*os.File, error) {
	if s.Minted != nil {
		copies := make(map[string][]byte, len(values))
		for name, v := range values {
			copies[name] = bytes.Clone(v)
		}
		s.Minted(copies)
	}
	return privsep.Memory("values", values)
}

func wipe(values map[string][]byte) {
	for _, v := range values {
		clear(v)
	}
}
