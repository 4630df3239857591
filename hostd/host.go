// Package hostd is the part of Custody that needs root. It makes the network namespace, the image and the disk of each sandbox, starts
// its machine and its worker, and signs its record. It parses nothing that a guest or the network sends.
//
//	run.Job (owner of the run) --Open, Begin, SetPolicy, End--> Host, Sandbox --starts--> worker, machine
package hostd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/sealer"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/netpolicy/fence"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/state"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/scratch"
	"github.com/custody-project/custody/vmm/template"
	"github.com/custody-project/custody/worker"
)

// Host makes sandboxes on this machine. It is safe for concurrent use.
type Host struct {
	Home      *host.Host // its key signs records
	Templates template.Store
	Start     StartWorker // nil: starts this program with WorkerArg
	// Ledger keeps what was signed for processes without the key; nil: nothing is kept, and Reopen fails.
	Ledger *sealer.Ledger
	// Silent gets that a worker was killed because it gave no sign of life; nil: nothing does.
	Silent func(error)

	mu     sync.Mutex   // guards stored
	stored *state.Store // nil before it is used
}

// states returns the stored states of this host's sandboxes. Their directory is made when it is called first.
func (h *Host) states() (*state.Store, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stored != nil {
		return h.stored, nil
	}
	store, err := state.Open(h.Home.States(), state.Config{Keys: state.KeyFile(h.Home.StatesKey()), Budget: h.Home.Config().Paused.Limit()})
	if err == nil {
		h.stored = store
	}
	return store, err
}

// Spec is the sandbox that a run asks for.
type Spec struct {
	Project      string // the registered project that the run is of; empty: of none
	Template     string
	Tier         string // the tier that is required; empty: the best that works
	Cold         bool   // boot the machine in place of restoring its snapshot
	CPUs         int
	Memory, Disk int64 // bytes
	// DiskRate and NetworkRate limit the machine in bytes per second; 0: no limit. HashOver is the size in bytes above which written
	// files are hashed.
	DiskRate, NetworkRate, HashOver int64
	// Resume is what the sandbox continues from; nil: nothing.
	Resume *Resume
}

// Details describe a sandbox.
type Details struct {
	Template       string
	TemplateDigest string
	Env            []string // of the template's commands
	Tier, TierNote string
	Cold           string // why it is not a warm one; empty if it is, or if the host keeps none
}

// Events receives what happens while a sandbox is made. Its functions may be called at any time.
type Events struct {
	Notice   func(string)
	Progress func(string) // how far it is
	Stalled  func(error)  // there is no room for the disk: Open waits
	Resumed  func()
}

// WorkerArg is the only argument of this program when it is started as a worker. A program that makes sandboxes calls Worker then.
const WorkerArg = "custody-worker"

// Worker is the main function of a worker. It returns the program's exit code.
func Worker() int {
	if err := worker.Main(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// startWorker starts this program as a worker.
func startWorker(ctx context.Context, w privsep.Worker, handlers map[string]privsep.Handler) (*privsep.Process, error) {
	w.Args = []string{WorkerArg}
	return w.Start(ctx, handlers)
}

// Open makes a sandbox. The caller closes it.
func (h *Host) Open(ctx context.Context, s Spec, e Events) (worker.Sandbox, Details, error) {
	sandbox, details, err := h.open(ctx, s, e)
	if err != nil {
		return nil, details, err
	}
	return sandbox, details, nil
}

func (h *Host) open(ctx context.Context, s Spec, e Events) (*Sandbox, Details, error) {
	if err := fence.CheckOnce(ctx, h.Home.Dir); err != nil {
		return nil, Details{}, err
	}
	parts := Parts{Network: PrepareNetwork(ctx), Start: h.Start, Ledger: h.Ledger, Silent: h.Silent}
	if parts.Start == nil {
		parts.Start = startWorker
	}
	details, err := h.fill(ctx, &parts, s, e)
	if err != nil {
		return nil, details, errors.Join(err, parts.release())
	}
	sandbox, err := NewSandbox(ctx, parts)
	if err != nil {
		return nil, details, err
	}
	return sandbox, details, nil
}

// Reopen returns what is left of the sandbox of a run whose processes died: its record. The caller closes it.
func (h *Host) Reopen(_ context.Context, run string) (worker.Sandbox, error) {
	if h.Ledger == nil {
		return nil, errors.New("this host keeps nothing of runs whose processes died")
	}
	key, err := h.Home.Keys().Signing()
	if err != nil {
		return nil, err
	}
	trusted, err := h.Home.Keys().Trusted()
	if err != nil {
		return nil, err
	}
	signer, err := h.Ledger.Reopen(key, run, trusted)
	if err != nil {
		return nil, err
	}
	s := NewRecovery(h.Start, signer)
	s.parts.Silent = h.Silent
	s.parts.Close = func() error {
		h.Ledger.Release(run)
		return nil
	}
	return s, nil
}

// sandboxDriver is the driver of a tier in which runs can be carried out.
type sandboxDriver interface {
	template.Driver
	Driver
}

// resolve returns the template and the driver of a sandbox.
func (h *Host) resolve(ctx context.Context, s Spec, e Events) (t template.Template, driver sandboxDriver, d Details, err error) {
	if t, err = h.Templates.Open(ctx, s.Template); err != nil {
		return t, nil, d, err
	}
	choice, err := TierPicker(h.Home, t, e.Notice).Pick(ctx, s.Tier)
	if err != nil {
		return t, nil, d, err
	}
	d = Details{Template: t.Name, TemplateDigest: t.Digest(), Env: t.Env, Tier: choice.Driver.Tier(), TierNote: choice.Note}
	driver, ok := choice.Driver.(sandboxDriver)
	if !ok {
		return t, nil, d, fmt.Errorf("the driver %s cannot start machines for a worker", choice.Driver.Name())
	}
	return t, driver, d, nil
}

// fill adds the key and the machine to the parts.
func (h *Host) fill(ctx context.Context, p *Parts, s Spec, e Events) (Details, error) {
	t, driver, d, err := h.resolve(ctx, s, e)
	if err != nil {
		return d, err
	}
	p.Driver = driver
	p.Key = func() (note.Signer, error) { return h.Home.Keys().Signing() } // it may be rotated before the sandbox has a run
	err = host.WaitForRoom(ctx, e.Stalled, e.Resumed, func() error {       // the first run makes the key
		key, err := p.Key()
		if err == nil {
			p.Host = key.Name()
		}
		return err
	})
	if err != nil {
		return d, err
	}
	image, disk, err := h.origin(ctx, p, t, driver, s, e)
	if err != nil {
		return d, err
	}
	p.Close = func() error { return errors.Join(scratch.Wipe(disk), image.Close()) }
	p.Machine = vmm.Machine{
		ID: host.NewRunID(time.Now()), Image: image, CPUs: s.CPUs, Memory: s.Memory, Scratch: disk,
		DiskRate: s.DiskRate, NetworkRate: s.NetworkRate, HashOver: s.HashOver,
	}
	return d, nil
}

// disks opens the machine's image and makes its scratch disk.
func (h *Host) disks(ctx context.Context, d template.Driver, t template.Template, s Spec, e Events) (image vmm.Image, disk *os.File, err error) {
	shape := template.Shape{CPUs: s.CPUs, Memory: s.Memory, Disk: s.Disk}
	if s.Cold || !d.Snapshots() {
		image, err = coldImage(ctx, t, shape)
	} else {
		image, err = t.Image(ctx, d, shape)
	}
	if err != nil {
		return image, nil, err
	}
	err = host.WaitForRoom(ctx, e.Stalled, e.Resumed, func() (err error) {
		if image.Disk != nil {
			disk, err = scratch.Clone(h.Home.Dir, image.Disk)
		} else {
			disk, err = scratch.New(ctx, h.Home.Dir, h.Home.Blanks(), s.Disk)
		}
		return err
	})
	if err != nil {
		return image, nil, errors.Join(err, image.Close())
	}
	return image, disk, nil
}
