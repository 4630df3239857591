package firecracker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/remote"
)

// fcProcess is what a vm needs of Firecracker's process, which can belong to another process of Custody.
type fcProcess interface {
	remote.Process
	// Dial connects to one of Firecracker's sockets, whose listener must have the machine's uid. The error is errNotListening while there
	// is none.
	Dial(ctx context.Context, socket string) (net.Conn, error)
	// Memory returns the list of the process's mappings and its memory, both read-only: maps and mem of proc(5).
	Memory(ctx context.Context) (maps, mem *os.File, err error)
	// Saved returns the device state that Firecracker has written, and makes the file of the memory that of a template.
	Saved(ctx context.Context) (state *os.File, err error)
}

var (
	errNotListening = errors.New("firecracker does not listen")
	errNotSaved     = errors.New("the machine's memory has no file: it cannot be saved")
)

// shape describes a machine to its vm.
type shape struct {
	CPUs                int
	Memory              int64 // bytes
	DiskRate, NetRate   int64 // bytes per second; 0: no limit
	Restored            bool
	HasScratch, CanSave bool
}

func shapeOf(m vmm.Machine) shape {
	return shape{
		CPUs: m.CPUs, Memory: m.Memory, DiskRate: m.DiskRate, NetRate: m.NetworkRate,
		Restored: m.Image.State != nil, HasScratch: m.Scratch != nil, CanSave: m.Image.State == nil && onDisk(m.Image.Memory),
	}
}

// vm implements vmm.VM. It parses what Firecracker sends.
type vm struct {
	shape
	process fcProcess
	api     *api
	reached atomic.Bool // the API's socket has been connected
	channel *stream
	disk    *os.File // the scratch disk, for the free space of its file system; nil: there is none
	stalls  chan string
	watch   sync.WaitGroup

	turn   sync.Mutex // held during a change of the machine's state; guards frozen
	frozen bool

	done      chan struct{}
	mu        sync.Mutex // guards destroyed and err
	destroyed bool
	err       error

	destroy  sync.Once
	leftover error // of cleanUp
}

// newVM returns the machine of a Firecracker that has been started. It takes over both.
func newVM(p fcProcess, s shape, disk *os.File) *vm {
	v := &vm{process: p, shape: s, disk: disk, stalls: make(chan string, 1), done: make(chan struct{})}
	v.api = newAPI(func(ctx context.Context) (net.Conn, error) {
		conn, err := p.Dial(ctx, apiSocket)
		if err == nil {
			v.reached.Store(true)
		}
		return conn, err
	})
	v.channel = newStream(func(ctx context.Context) (net.Conn, error) { return p.Dial(ctx, vsockSocket) }, v.done)
	v.watch.Go(v.await)
	return v
}

// connect returns the machine of a Firecracker that has been started, restored or booting. It takes over both.
func connect(ctx context.Context, p fcProcess, s shape, disk *os.File, id string) (vmm.VM, error) {
	v := newVM(p, s, disk)
	if err := v.start(ctx); err != nil {
		err = v.addCause(err)
		return nil, fmt.Errorf("vm %s: %w", id, errors.Join(err, v.Destroy(context.WithoutCancel(ctx))))
	}
	return v, nil
}

func (v *vm) start(ctx context.Context) error {
	if err := v.awaitAPI(ctx); err != nil {
		return err
	}
	var err error
	if v.Restored {
		err = v.restore(ctx)
	} else {
		err = v.boot(ctx, false)
	}
	if err != nil {
		return v.explain(err)
	}
	if v.disk != nil {
		v.watch.Go(v.watchSpace)
	}
	return nil
}

// pathOnly opens a file so that neither its contents can be read nor written, only its file system's state.
func pathOnly(f *os.File) (*os.File, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("scratch disk: %w", err)
	}
	return os.NewFile(uintptr(fd), "scratch"), nil
}

// apiEvery is the pause before the API's socket is looked for again.
const apiEvery = time.Millisecond

// awaitAPI waits until Firecracker answers.
func (v *vm) awaitAPI(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	for {
		var answer struct {
			Version string `json:"firecracker_version"`
		}
		err := v.api.get(ctx, "/version", &answer)
		if err == nil {
			return nil
		}
		if v.reached.Load() || ctx.Err() == nil && !errors.Is(err, errNotListening) {
			return v.explain(err)
		}
		select {
		case <-v.done:
			return errors.New("it did not start")
		case <-ctx.Done():
			return v.explain(fmt.Errorf("firecracker did not open its API's socket: %w", ctx.Err()))
		case <-time.After(apiEvery):
		}
	}
}

// Channel implements vmm.VM.
func (v *vm) Channel() io.ReadWriteCloser { return v.channel }

// Freeze implements vmm.VM.
func (v *vm) Freeze(ctx context.Context) error {
	v.turn.Lock()
	defer v.turn.Unlock()
	return v.set(ctx, true)
}

// Thaw implements vmm.VM.
func (v *vm) Thaw(ctx context.Context) error {
	v.turn.Lock()
	defer v.turn.Unlock()
	return v.set(ctx, false)
}

// set freezes or thaws the machine. The caller holds turn.
func (v *vm) set(ctx context.Context, frozen bool) error {
	if v.frozen == frozen {
		return nil
	}
	state := "Resumed"
	if frozen {
		state = "Paused"
	}
	if err := v.api.patch(ctx, "/vm", map[string]string{"state": state}); err != nil {
		return v.explain(err)
	}
	v.frozen = frozen
	return nil
}

// Stalls implements vmm.VM.
func (v *vm) Stalls() <-chan string { return v.stalls }

// Done implements vmm.VM.
func (v *vm) Done() <-chan struct{} { return v.done }

// Err implements vmm.VM.
func (v *vm) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

// await waits for the end of the process, sets err and closes done.
func (v *vm) await() {
	<-v.process.Waited()
	v.mu.Lock()
	if !v.destroyed {
		v.err = fmt.Errorf("firecracker ended by itself: %s%s", v.process.End(), v.process.Quote())
	}
	v.mu.Unlock()
	close(v.done)
}

// addCause adds to the error of a failed start how Firecracker ended, if it did.
func (v *vm) addCause(err error) error {
	select {
	case <-v.done:
		return fmt.Errorf("%w: %w (%w)", vmm.ErrDied, v.Err(), err)
	case <-time.After(time.Second): // await can notice the end later than start sees the broken connection, on a busy host
		return err
	}
}

// explain adds what Firecracker wrote to an error of its API.
func (v *vm) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w%s", err, v.process.Quote())
}

// Destroy implements vmm.VM. Further calls wait for the first and return its error.
func (v *vm) Destroy(context.Context) error {
	v.destroy.Do(func() { v.leftover = v.cleanUp() })
	return v.leftover
}

func (v *vm) cleanUp() error {
	v.mu.Lock()
	v.destroyed = true
	v.mu.Unlock()
	err := v.process.Remove()
	if !errors.Is(err, remote.ErrStuck) {
		v.watch.Wait()
	}
	v.api.close()
	v.channel.Close()
	if v.disk != nil && !errors.Is(err, remote.ErrStuck) { // else watchSpace uses it
		v.disk.Close()
	}
	return err
}
