package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/gvisor/trace"
	"github.com/custody-project/custody/vmm/remote"
)

// container is what a vm needs of its container, which can belong to another process of Custody.
type container interface {
	remote.Process
	// Freeze stops the container's processes, and Thaw lets them run again.
	Freeze(ctx context.Context) error
	Thaw(ctx context.Context) error
	// Changed calls emit with each file that has changed since the call before, in the order of their paths; those larger than hashOver
	// bytes with a hash. If emit is nil, it only notes what there is. An error means that not everything was examined.
	Changed(ctx context.Context, hashOver int64, emit func(*audit.File) error) error
}

// vm implements vmm.VM and vmm.Observer. It parses what the container sends.
type vm struct {
	container container
	channel   *net.UnixConn
	relay     *relay // nil: there is no network
	stream    *trace.Stream

	done      chan struct{}
	mu        sync.Mutex // guards the fields below
	destroyed bool
	err       error
	observer  *observer // valid once observed is closed
	hashOver  int64     // of the run

	observed chan struct{}

	destroy  sync.Once
	leftover error
}

// connect returns the VM of a container that has been started. It takes over both.
func connect(ctx context.Context, c container, e ends, id string) (vmm.VM, error) {
	v := &vm{container: c, channel: e.channel, done: make(chan struct{}), observed: make(chan struct{})}
	if e.device != nil {
		v.relay = newRelay(e.device, e.tap)
	}
	go v.watch()
	stream, err := trace.Accept(e.sink)
	if err != nil {
		e.sink.Close() // runsc ends, since its sink has failed
		err = addCause(c, err)
		return nil, fmt.Errorf("sandbox %s: %w", id, errors.Join(err, v.Destroy(context.WithoutCancel(ctx))))
	}
	v.stream = stream
	return v, nil
}

// watch waits for the end of the container, sets err and closes done.
func (v *vm) watch() {
	<-v.container.Waited()
	v.mu.Lock()
	if !v.destroyed {
		v.err = fmt.Errorf("runsc ended by itself: %s%s", v.container.End(), v.container.Quote())
	}
	v.mu.Unlock()
	close(v.done)
}

// Channel implements vmm.VM.
func (v *vm) Channel() io.ReadWriteCloser { return v.channel }

// Freeze implements vmm.VM.
func (v *vm) Freeze(ctx context.Context) error { return v.container.Freeze(ctx) }

// Thaw implements vmm.VM.
func (v *vm) Thaw(ctx context.Context) error { return v.container.Thaw(ctx) }

// ErrNoMemoryImage means that the memory of a gVisor sandbox cannot be written as an image: it is
// that of the sentry and of many processes, not of one machine.
var ErrNoMemoryImage = errors.New("a sandbox of the tier gvisor has no memory image: it has no machine whose memory could be written")

// Snapshot implements vmm.VM.
func (v *vm) Snapshot(context.Context, *os.File) error { return ErrNoMemoryImage }

// Dump implements vmm.VM.
func (v *vm) Dump(context.Context, io.Writer) error { return ErrNoMemoryImage }

// Stalls implements vmm.VM: a full disk is an error of the workload's write, the sandbox goes on.
func (v *vm) Stalls() <-chan string { return nil }

// Done implements vmm.VM.
func (v *vm) Done() <-chan struct{} { return v.done }

// Err implements vmm.VM.
func (v *vm) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

// Destroy implements vmm.VM. Further calls wait for the first and return its result.
func (v *vm) Destroy(context.Context) error {
	v.destroy.Do(func() { v.leftover = v.cleanUp() })
	return v.leftover
}

func (v *vm) cleanUp() error {
	v.mu.Lock()
	v.destroyed = true
	v.mu.Unlock()
	err := v.container.Remove() // it kills it
	<-v.done
	if v.relay != nil {
		err = errors.Join(err, v.relay.close())
	}
	if v.stream != nil {
		v.stream.Close()
	}
	v.channel.Close()
	return err
}
