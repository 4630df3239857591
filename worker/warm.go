package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"

	"github.com/custody-project/custody/egress"
	"github.com/custody-project/custody/netpolicy/fence"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/redact/pattern"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/vmm"
)

// Machine describes to a worker the machine that it starts before it has a run.
type Machine struct {
	ID                    string // for messages
	Tier                  string
	CPUs                  int
	Memory, ScratchSize   int64 // bytes
	DiskRate, NetworkRate int64 // see sandbox.Machine
}

// The calls to a worker that has no run, in addition to that of Assign.
const (
	callWarm  = "warm"
	callCheck = "check"
)

// Warm makes the worker at the other end of a connection start its machine, restored if there is a state, rehearse, and prepare its
// network. The worker ends when the machine dies.
func Warm(ctx context.Context, c *privsep.Conn, m Machine, state *os.File) error {
	var files []*os.File
	if state != nil {
		files = append(files, state)
	}
	_, err := c.Call(ctx, callWarm, m, nil, files...)
	return err
}

// Check returns an error if the machine of a warm worker does not answer.
func Check(ctx context.Context, c *privsep.Conn) error {
	_, err := c.Call(ctx, callCheck, none{}, nil)
	return err
}

// warm is what a worker has before its run.
type warm struct {
	machine Machine
	sandbox *sandbox.Warm // nil: the run starts the machine
	network *egress.Prepared
}

// idle is a worker that has no run.
//
//	Enter --> cold --Warm--> warming ----> warm --Assign--> the worker of a run
//	           |                |                 ^
//	           |                +-- failed: ends  |
//	           +------------- Assign -------------+
type idle struct {
	host   *privsep.Conn // set before the first call comes
	given  assigned
	warmed chan *warm // has an element when the worker is warm

	mu     sync.Mutex // guards the fields below
	once   bool       // Warm was called
	warm   *warm      // nil before it has succeeded
	worker *worker    // nil before it has a run
}

func newIdle() *idle { return &idle{given: make(assigned, 1), warmed: make(chan *warm, 1)} }

// handlers returns the calls that a worker without a run serves.
func (i *idle) handlers() map[string]privsep.Handler {
	handlers := i.given.handlers()
	handlers[callAlive] = privsep.Handle(alive)
	handlers[callWarm] = func(ctx context.Context, body []byte, files []*os.File) (any, []*os.File, error) {
		var m Machine
		if err := privsep.Decode(body, &m); err != nil {
			return nil, nil, err
		}
		return none{}, nil, i.heat(ctx, m, files)
	}
	handlers[callSave] = i.save
	handlers[callCheck] = privsep.Handle(func(ctx context.Context, _ none) (any, []*os.File, error) {
		w := i.current()
		if w == nil {
			return nil, nil, errors.New("the worker is not warm")
		}
		return none{}, nil, w.sandbox.Check(ctx)
	})
	return handlers
}

func (i *idle) current() *warm {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.warm
}

// heat starts and rehearses the machine.
func (i *idle) heat(ctx context.Context, m Machine, files []*os.File) error {
	i.mu.Lock()
	again := i.once
	i.once = true
	i.mu.Unlock()
	if again || len(files) > 1 {
		return errors.New("the worker has a machine, or more than one state")
	}
	w, err := newWarm(ctx, i.host, m, files)
	if err != nil {
		return err
	}
	if _, err := pattern.New(); err != nil { // no run waits for the rules of secrets, which take 1 MB
		return err
	}
	debug.FreeOSMemory() // what the start needed
	i.mu.Lock()
	i.warm = w
	i.mu.Unlock()
	i.warmed <- w
	return nil
}

// newWarm starts and rehearses a machine while its network is prepared.
func newWarm(ctx context.Context, host *privsep.Conn, m Machine, files []*os.File) (*warm, error) {
	driver, err := remoteDriver(m.Tier, host)
	if err != nil {
		return nil, err
	}
	var image vmm.Image
	if len(files) > 0 {
		image.State = files[0]
		defer image.State.Close()
	}
	w := &warm{machine: m, network: prepareNetwork(ctx, host)}
	w.sandbox, err = sandbox.Start(ctx, sandbox.Machine{
		ID: m.ID, Driver: driver, Image: image, CPUs: m.CPUs, Memory: m.Memory, ScratchSize: m.ScratchSize, DiskRate: m.DiskRate, NetworkRate: m.NetworkRate,
	})
	if err != nil {
		return nil, errors.Join(err, w.network.Close())
	}
	if err := errors.Join(w.sandbox.Rehearse(ctx), w.network.Install()); err != nil {
		return nil, errors.Join(fmt.Errorf("warm up the sandbox: %w", err), w.sandbox.Close(context.WithoutCancel(ctx)), w.network.Close())
	}
	return w, nil
}

// fits returns an error if the machine is another one than a run asks for.
func (w *warm) fits(o order) error {
	want := o.machine()
	want.ID = w.machine.ID
	if w.machine != want {
		return fmt.Errorf("the sandbox has the machine %+v, the run asks for %+v", w.machine, want)
	}
	return nil
}

// machine describes the machine that the run asks for.
func (o order) machine() Machine {
	s := o.Settings
	return Machine{
		ID: s.Run, Tier: o.Facts.Tier, CPUs: s.CPUs, Memory: s.Memory, ScratchSize: s.ScratchSize, DiskRate: s.DiskRate, NetworkRate: s.NetworkRate,
	}
}

// prepareNetwork begins to make the network of a worker.
func prepareNetwork(ctx context.Context, host *privsep.Conn) *egress.Prepared {
	keep := context.WithoutCancel(ctx)
	return egress.Prepare(func(o fence.Options) (*fence.Fence, error) { return fence.Open(keep, host, o) })
}
