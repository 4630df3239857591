package channel

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
)

// Bounds of a guest's messages about a step's credentials.
const (
	// maxRefusals is how many wrong answers are reported and tolerated; the next one ends the session.
	maxRefusals = 8
	maxAsked    = 16 // challenges that are remembered
)

// Errors of Prove.
var (
	// ErrNotLeased is returned for a command without secrets that is not leased either.
	ErrNotLeased = errors.New("the command is not leased: nothing could be proved")
	// ErrEnded is returned when the command ended before it was proved to live.
	ErrEnded = errors.New("the command has ended")
	// ErrProof is returned when the guest's answer was not in order.
	ErrProof = errors.New("the guest's proof of life was refused")
)

// lease is the host's side of a command's credentials.
//
// A challenge is used once. Its states:
//
//	           right answer                     any further answer
//	asked ----------------------> spent  -----------------------> refused
//	  |        wrong answer         ^
//	  +-----------------------------+
//	  |        Prove gave up                    right answer
//	  +----------------------> late ------------------> refused once, then spent
//
// A late answer may be honest, if the VM was frozen. It is refused and
// reported, but does not count towards the end of the session.
type lease struct {
	step    string
	key     []byte // nil: not leased
	refused func(string)

	requests chan request // to ask, which sends them

	mu       sync.Mutex // guards the fields below
	asked    []*question
	wipes    []chan error // of Wipe calls, in the order of their requests
	refusals int
}

type question struct {
	challenge [sha256.Size]byte
	state     questionState
	answer    chan error // takes one
}

type questionState int

const (
	asked questionState = iota
	late
	spent
)

// request is a control frame with a channel for its answer.
type request struct {
	control
	sending func() // called before it is sent
}

func (l *lease) open(cmd Command) {
	l.step, l.refused, l.requests = cmd.Step, cmd.Refused, make(chan request)
}

// hand waits for the guest's key and sends the step's bundle, sealed for it. A
// guest that could not start the command reports that instead: that is its last report.
func (p *Process) hand(ctx context.Context, cmd Command) (last *report, err error) {
	stop := context.AfterFunc(ctx, func() { unblock(p.ctl) })
	defer func() {
		if !stop() && err == nil {
			err = ctx.Err()
		}
		if err != nil {
			err = p.client.failed(ctx, "hand over the step's secrets", err)
		}
	}()
	var r report
	if err := readFrame(p.ctl, &r, maxReport); err != nil {
		return nil, err
	}
	if r.Exit != nil && r.Key == nil {
		return &r, nil
	}
	if !r.only(len(r.Key) == pointSize) {
		p.lease.tell("it asked for the step's secrets with something else than a key")
		return nil, hostile("first report of a command with secrets holds no key")
	}
	sealed, err := p.lease.seal(r.Key, p.client.identity.run(), cmd.Secrets)
	if err != nil {
		p.lease.tell("it asked for the step's secrets with a key that cannot be used")
		return nil, hostile("key for the step's secrets: %w", err)
	}
	_, err = p.ctl.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(sealed))), sealed...))
	return nil, err
}

// seal makes the step's key and seals it with the secrets.
func (l *lease) seal(point []byte, run string, all []Secret) ([]byte, error) {
	b := bundle{secrets: all}
	rand.Read(b.key[:])
	l.key = b.key[:]
	plain := b.encode()
	defer clear(plain)
	return seal(point, plain, sealContext(run, l.step))
}

// Prove requests a proof from the guest that the command's main process runs, and
// returns nil if the proof is right. It is safe for concurrent use.
func (p *Process) Prove(ctx context.Context) error {
	if p.lease.key == nil {
		return ErrNotLeased
	}
	q := &question{answer: make(chan error, 1)}
	rand.Read(q.challenge[:])
	err := p.demand(ctx, request{control{Prove: q.challenge[:]}, func() { p.lease.ask(q) }}, q.answer)
	if err != nil {
		p.lease.giveUp(q)
		return fmt.Errorf("prove that %q lives: %w", p.lease.step, err)
	}
	return nil
}

// Wipe has the guest zero and remove the files that were handed to the step, and
// unmount what they lie on, while the command goes on. What the command holds in
// its memory, its environment to begin with, stays there. It does nothing for a
// command without secrets or one that has ended.
func (p *Process) Wipe(ctx context.Context) error {
	if p.lease.key == nil {
		return nil
	}
	done := make(chan error, 1)
	err := p.demand(ctx, request{control{Wipe: true}, func() { p.lease.expectWipe(done) }}, done)
	if err != nil && !errors.Is(err, ErrEnded) {
		return fmt.Errorf("wipe the secrets of %q: %w", p.lease.step, err)
	}
	return nil
}

// ask sends requests until the command has ended. A frame may be blocked while the VM is
// frozen; callers that wait for its answer are not blocked with it.
func (p *Process) ask() {
	for {
		select {
		case r := <-p.lease.requests:
			r.sending()
			p.control(context.Background(), r.control) // an error is the session's end, and then the process's
		case <-p.ended:
			return
		}
	}
}

// demand sends a request and waits for its answer.
func (p *Process) demand(ctx context.Context, r request, answer <-chan error) error {
	select {
	case p.lease.requests <- r:
	case <-p.ended:
		return p.over()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-answer:
		return err
	case <-p.ended:
		return p.over()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// over returns why a command that has ended cannot answer.
func (p *Process) over() error {
	if p.err != nil {
		return p.err
	}
	return ErrEnded
}

func (l *lease) ask(q *question) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.asked) == maxAsked {
		l.asked = l.asked[1:]
	}
	l.asked = append(l.asked, q)
}

func (l *lease) giveUp(q *question) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.state == asked {
		q.state = late
	}
}

// judge checks a proof from the guest. An error ends the session.
func (l *lease) judge(p *proof) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.key == nil {
		return l.refuse("it sent a proof for a step that has no key")
	}
	if p.Step != l.step {
		return l.refuse(fmt.Sprintf("it sent a proof for another step, %.40q", p.Step))
	}
	var open *question
	for _, q := range l.asked {
		if hmac.Equal(p.MAC, prove(l.key, q.challenge[:], l.step)) {
			return l.answered(q)
		}
		if q.state == asked {
			open = q
		}
	}
	if open == nil {
		return l.refuse("it sent an unrequested proof")
	}
	open.state = spent
	open.answer <- ErrProof
	return l.refuse("its proof was wrong")
}

// answered: the proof is right for q.
func (l *lease) answered(q *question) error {
	was := q.state
	q.state = spent
	switch was {
	case asked:
		q.answer <- nil
		return nil
	case late:
		l.tell("its proof came too late")
		return nil
	}
	return l.refuse("it repeated a proof")
}

// refuse counts and reports a refused answer. The caller holds mu.
func (l *lease) refuse(reason string) error {
	l.refusals++
	l.tell(reason)
	if l.refusals > maxRefusals {
		return hostile("%d proofs were refused, the last because %s", l.refusals, reason)
	}
	return nil
}

func (l *lease) tell(reason string) {
	if l.refused != nil {
		l.refused(reason)
	}
}

func (l *lease) expectWipe(done chan error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wipes = append(l.wipes, done)
}

func (l *lease) wiped(w *wiped) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.wipes) == 0 {
		return hostile("secrets were wiped without a request")
	}
	var err error
	if w.Error != "" {
		err = fmt.Errorf("guest: %.200q", w.Error)
	}
	l.wipes[0] <- err
	l.wipes = l.wipes[1:]
	return nil
}

// prove computes a proof, in the guest and on the host. A challenge's length is fixed.
func prove(key, challenge []byte, step string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(challenge)
	h.Write([]byte(step))
	return h.Sum(nil)
}
