package hostd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/sealer"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/netpolicy/reach"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/state"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/worker"
)

// Driver is a machine driver whose machines can be controlled by another process.
type Driver interface {
	// NewServer returns the server that starts m for a worker, and nothing else. m's files stay open until its Close.
	NewServer(m vmm.Machine) privsep.Server
	// Tier is that of its machines.
	Tier() string
}

// StartWorker starts a program that calls worker.Main.
type StartWorker func(ctx context.Context, w privsep.Worker, handlers map[string]privsep.Handler) (*privsep.Process, error)

// Parts are what a sandbox is made of. The sandbox owns them.
type Parts struct {
	Network *Network
	Driver  Driver
	Machine vmm.Machine                 // without its TAP
	Key     func() (note.Signer, error) // signs the record; called when a run begins
	Ledger  *sealer.Ledger              // keeps what was signed; nil: nothing is kept
	Start   StartWorker
	Silent  func(error)  // gets that the worker was killed because it gave no sign of life; nil: nothing does
	Close   func() error // releases the machine's files; nil: nothing is to be released

	States        func() (*state.Store, error) // of Save; nil: none
	Host, Project string                       // that the states belong to
	Base          Base                         // that they are relative to
	Kind          string                       // of the machine, see kindOf
	// From is the stored state that the machine starts from; nil: none. Fork: the machine shares it with others.
	From *state.Snapshot
	Fork bool
}

// Sandbox is the privileged side of a sandbox. It bounds what the worker and the owner of the run can make it do: one machine, the
// network that the policy allows, and signatures of one run's segments in order. It implements worker.Sandbox, and is safe for
// concurrent use.
//
//	NewSandbox --> waiting --Begin--> running --End--> ended --Recover--> recovering --End--> over
//	               |  |  ^               ^               |                                      |
//	               |  +--+-- warm -Begin-+               |                                      |
//	               |  Warm    |                          |                                      |
//	               +----------+--------------------------+----------------------------Close-----+--> closed
type Sandbox struct {
	parts   Parts
	causes  worker.Causes
	machine privsep.Server

	mu     sync.Mutex // guards policy and signer
	policy *netpolicy.Policy
	signer *sealer.Signer // nil before Begin

	changing sync.Mutex // guards the fields below; held during each change of the state
	phase    phase
	process  *privsep.Process // nil: no worker runs
	pulse    *pulse           // of process
	limit    *reach.Limit     // of process
	servers  []netip.AddrPort // DNS servers of the run
	identity worker.Identity  // of the run
	saving   *saving          // nil: no state has been stored
}

type phase int

const (
	waiting phase = iota
	warm
	running
	ended
	recovering
	over
)

var _ worker.Sandbox = (*Sandbox)(nil)

// NewSandbox starts a worker with a network and a machine, which denies all egress until Begin.
func NewSandbox(ctx context.Context, p Parts) (s *Sandbox, err error) {
	s = &Sandbox{parts: p}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
			s = nil
		}
	}()
	if s.policy, err = netpolicy.New(nil); err != nil {
		return s, err
	}
	namespace, err := p.Network.open()
	if err != nil {
		return s, err
	}
	m := p.Machine
	if m.NetworkRate > 0 {
		if err := namespace.Limit(m.NetworkRate); err != nil {
			return s, fmt.Errorf("the sandbox's network: %w", err)
		}
	}
	m.Tap = namespace.Tap()
	s.machine = p.Driver.NewServer(m)
	handlers := namespace.Handlers(s.allowed)
	maps.Copy(handlers, s.machine.Handlers())
	maps.Copy(handlers, sealer.Handlers(s.signs))
	return s, s.start(ctx, handlers)
}

// NewRecovery returns what is left of a sandbox whose processes died: its record, which a worker can have signed after Recover. start is
// nil: this program.
func NewRecovery(start StartWorker, signer *sealer.Signer) *Sandbox {
	if start == nil {
		start = startWorker
	}
	return &Sandbox{parts: Parts{Start: start}, signer: signer, phase: ended}
}

// start starts a worker that can make these calls, and whose own sockets reach nothing yet. The caller holds changing, unless
// it makes the sandbox.
func (s *Sandbox) start(ctx context.Context, handlers map[string]privsep.Handler) (err error) {
	w := privsep.Worker{Stderr: os.Stderr, Memory: worker.Memory}
	if w.Binds, w.Env, err = Trusted(os.Getenv); err != nil {
		return err
	}
	if s.limit, err = reach.New(); err != nil {
		return err
	}
	w.Guard = s.limit
	if s.process, err = s.parts.Start(ctx, w, s.causes.Watch(handlers)); err != nil {
		return err
	}
	s.pulse = newPulse(s.process, s.parts.Machine.ID, s.parts.Silent)
	return nil
}

// allowed returns the policy that is in force, or about to be.
func (s *Sandbox) allowed() *netpolicy.Policy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.policy
}

// signs returns the signer of the run's segments.
func (s *Sandbox) signs() (*sealer.Signer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.signer == nil {
		return nil, errors.New("no run has begun")
	}
	return s.signer, nil
}

// Begin implements worker.Sandbox.
func (s *Sandbox) Begin(ctx context.Context, r worker.Identity, files []*os.File) error {
	policy, err := worker.PolicyOf(r.Rules)
	if err != nil {
		return err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.phase != waiting && s.phase != warm || s.process == nil {
		return errors.New("the sandbox has had a run")
	}
	if err := s.parts.fits(r, policy.Digest()); err != nil {
		return err
	}
	started := s.phase == warm
	s.phase, s.identity = running, r
	if s.servers, err = addresses(r.Resolvers); err != nil {
		return err
	}
	if err := s.limit.Set(policy, s.servers); err != nil {
		return err
	}
	signer, err := s.parts.signer(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.policy, s.signer = policy, signer
	s.mu.Unlock()
	s.pulse.begin(r.Run, r.Silence)
	if device := s.parts.Machine.Image.State; device != nil && !started {
		files = append(files[:len(files):len(files)], device)
	}
	return worker.Assign(ctx, s.process.Conn, files)
}

// End implements worker.Sandbox. The machine and the network end as well.
func (s *Sandbox) End() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	p := s.pulse
	err := s.end()
	if p != nil {
		err = errors.Join(p.end(), err)
	}
	return err
}

// end ends the worker, the machine and the network. The caller holds changing.
func (s *Sandbox) end() error {
	if s.phase == recovering {
		s.phase = over
	} else if s.phase != over {
		s.phase = ended
	}
	var errs []error
	if s.saving != nil {
		s.saving.stop()
	}
	if s.process != nil {
		errs = append(errs, s.process.Close())
		s.process = nil
		_ = s.pulse.end() // End returns its error
	}
	if s.limit != nil {
		errs = append(errs, s.limit.Close())
		s.limit = nil
	}
	if s.machine != nil {
		errs = append(errs, s.machine.Close())
		s.machine = nil
	}
	return errors.Join(append(errs, s.parts.leave())...)
}

// Recover implements worker.Sandbox.
func (s *Sandbox) Recover(ctx context.Context, files []*os.File) (err error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	if _, err := s.signs(); err != nil || s.phase != ended {
		return errors.Join(errors.New("no run has ended whose record could be closed"), err)
	}
	s.phase = recovering
	if err := s.start(ctx, sealer.Handlers(s.signs)); err != nil {
		return err
	}
	return worker.Assign(ctx, s.process.Conn, files)
}

// SetPolicy implements worker.Sandbox.
func (s *Sandbox) SetPolicy(_ context.Context, rules []string) error {
	policy, err := worker.PolicyOf(rules)
	if err != nil {
		return err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.phase == running && s.limit != nil {
		if err := s.limit.Set(policy, s.servers); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policy = policy
	return nil
}

// Signed implements worker.Sandbox.
func (s *Sandbox) Signed(context.Context) ([]byte, error) {
	signer, err := s.signs()
	if err != nil {
		return nil, err
	}
	return signer.Last(), nil
}

// Causes implements worker.Sandbox.
func (s *Sandbox) Causes() []error { return s.causes.All() }

// signer returns the signer of a run. If there is a ledger, the run is live in it until the parts are released.
func (p *Parts) signer(r worker.Identity) (*sealer.Signer, error) {
	key, err := p.Key()
	if err != nil {
		return nil, err
	}
	if p.Ledger == nil {
		return sealer.NewSigner(key, r.Run, r.Facts), nil
	}
	signer, err := p.Ledger.Begin(key, r.Run, r.Facts)
	if err != nil {
		return nil, err
	}
	files := p.Close
	p.Close = func() (err error) {
		if files != nil {
			err = files()
		}
		p.Ledger.Release(r.Run)
		return err
	}
	return signer, nil
}

// Close ends the worker and the machine, and removes what they used. It may be called repeatedly.
func (s *Sandbox) Close() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	return errors.Join(s.end(), s.parts.release())
}

// leave ends the network, if there is one.
func (p *Parts) leave() error {
	if p.Network == nil {
		return nil
	}
	return p.Network.Close()
}

// release removes the parts.
func (p *Parts) release() error {
	err := p.leave()
	if p.From != nil {
		err = errors.Join(err, p.From.Release())
		p.From = nil
	}
	err = errors.Join(err, p.Base.Close())
	p.Base = Base{}
	if p.Close != nil {
		err = errors.Join(err, p.Close())
		p.Close = nil
	}
	return err
}
