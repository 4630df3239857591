package firecracker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/confine"
)

// vm implements vmm.VM.
type vm struct {
	process *process
	cgroup  *confine.Group
	uid     *confine.Lease
	api     *api
	channel *stream
	stderr  *confine.Tail
	memory  int64    // bytes of the machine's RAM
	saved   *os.File // receives the RAM with Snapshot; nil: the machine cannot be saved
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

func newVM(m vmm.Machine) *vm {
	return &vm{memory: m.Memory, stalls: make(chan string, 1), done: make(chan struct{})}
}

// maxState bounds the size of a machine's device state, which is far smaller.
const maxState = 32 << 20

func (v *vm) start(ctx context.Context, d *Driver, m vmm.Machine) error {
	if err := v.prepare(ctx, d, m); err != nil {
		return err
	}
	var err error
	if m.Image.State != nil {
		err = v.restore(ctx, m)
	} else {
		err = v.boot(ctx, m, false)
	}
	if err != nil {
		return v.explain(err)
	}
	if m.Scratch != nil {
		v.watch.Go(func() { v.watchSpace(m.Scratch) })
	}
	return nil
}

// prepare starts a Firecracker without a machine.
func (v *vm) prepare(ctx context.Context, d *Driver, m vmm.Machine) error {
	if err := confine.Sweep(); err != nil {
		return fmt.Errorf("clean up after machines whose custody process was killed: %w", err)
	}
	var err error
	if v.uid, err = confine.LeaseUID(); err != nil {
		return err
	}
	if v.cgroup, err = confine.NewGroup(v.uid.UID(), m.CPUs, m.Memory); err != nil {
		return err
	}
	if err := v.launch(d, m); err != nil {
		return err
	}
	return v.awaitAPI(ctx)
}

// launch starts the process.
func (v *vm) launch(d *Driver, m vmm.Machine) error {
	stderr, errW, err := confine.NewTail("firecracker")
	if err != nil {
		return err
	}
	v.stderr = stderr
	defer errW.Close()
	j := jail{
		uid: v.uid.UID(), paths: d.paths, network: network(m.Tap), stdout: m.Console, stderr: errW,
		admit: v.cgroup.Add, maxFile: max(m.Memory, maxState),
	}
	files, err := v.inputs(d, m, &j)
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err != nil {
		return err
	}
	v.process, err = j.start()
	err = errors.Join(err, v.uid.Unname())
	if v.process == nil {
		return err
	}
	v.watch.Go(v.await)
	v.api = newAPI(v.process.path(apiSocket), v.uid.UID())
	v.channel = newStream(v.process.path(vsockSocket), v.uid.UID(), v.done)
	return err
}

// inputs sets the files of the jail. The caller closes the files that are returned.
func (v *vm) inputs(d *Driver, m vmm.Machine, j *jail) (opened []*os.File, err error) {
	uid := v.uid.UID()
	j.files = []file{{name: rootFile, file: m.Image.Root}}
	if m.Image.State != nil {
		state, err := readState(m.Image.State)
		if err != nil {
			return nil, err
		}
		j.copies = map[string][]byte{stateFile: state}
		j.files = append(j.files, file{name: memoryFile, file: m.Image.Memory})
	} else {
		kernel, initrd, err := bootFiles(m.Image, d.version.less(unpacked))
		if err != nil {
			return nil, err
		}
		j.copies = map[string][]byte{kernelFile: kernel, initrdFile: initrd}
		if onDisk(m.Image.Memory) {
			v.saved = m.Image.Memory
			if err := v.saved.Chown(uid, uid); err != nil {
				return nil, err
			}
			j.files = append(j.files, file{name: memoryFile, file: m.Image.Memory, write: true})
		}
	}
	if m.Scratch == nil {
		return nil, nil
	}
	info, err := m.Scratch.Stat()
	if err != nil {
		return nil, fmt.Errorf("scratch disk: %w", err)
	}
	j.maxFile = max(j.maxFile, info.Size())
	if err := m.Scratch.Chown(uid, uid); err != nil {
		return nil, fmt.Errorf("scratch disk: %w", err)
	}
	disk, err := v.uid.Name(m.Scratch)
	if err != nil {
		return nil, fmt.Errorf("scratch disk: %w", err)
	}
	j.files = append(j.files, file{name: scratchFile, file: disk, write: true})
	return []*os.File{disk}, nil
}

// readState reads the device state.
func readState(f *os.File) ([]byte, error) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxState+1))
	if err == nil && len(b) > maxState {
		err = fmt.Errorf("it has more than %d bytes", maxState)
	}
	if err != nil {
		return nil, fmt.Errorf("read the device state: %w", err)
	}
	return b, nil
}

// onDisk reports whether f is a file with a name: an anonymous file cannot be mounted.
func onDisk(f *os.File) bool {
	var st unix.Stat_t
	return f != nil && unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink > 0
}

// apiEvery is the pause before the API's socket is looked for again.
const apiEvery = time.Millisecond

// awaitAPI waits until Firecracker answers, and checks its version.
func (v *vm) awaitAPI(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	for {
		if _, err := os.Lstat(v.process.path(apiSocket)); err == nil {
			break
		}
		select {
		case <-v.done:
			return errors.New("it did not start")
		case <-ctx.Done():
			return v.explain(fmt.Errorf("firecracker did not open its API's socket: %w", ctx.Err()))
		case <-time.After(apiEvery):
		}
	}
	var answer struct {
		Version string `json:"firecracker_version"`
	}
	for { // the socket is there a moment before the process listens
		err := v.api.get(ctx, "/version", &answer)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			return v.explain(err)
		}
		select {
		case <-v.done:
			return errors.New("it did not start")
		case <-ctx.Done():
			return v.explain(err)
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
	<-v.process.waited
	v.mu.Lock()
	if !v.destroyed {
		v.err = fmt.Errorf("firecracker ended by itself: %s%s", ending(v.process.state), v.stderr.Quote())
	}
	v.mu.Unlock()
	close(v.done)
}

// ending describes how Firecracker ended, given the state of the shell that started it.
func ending(shell *os.ProcessState) string {
	if code := shell.ExitCode(); code > 128 {
		return "signal: " + syscall.Signal(code-128).String()
	}
	return shell.String()
}

// addCause adds to the error of a failed start how Firecracker ended, if it did.
func (v *vm) addCause(err error) error {
	if v.process == nil {
		return err
	}
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
	return fmt.Errorf("%w%s", err, v.stderr.Quote())
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
	var errs []error
	if v.process != nil {
		err := v.process.kill()
		if errors.Is(err, errStuck) {
			// It keeps its uid and its control group. Sweep removes them after it has ended.
			v.closeEnds()
			v.uid.Abandon()
			return err
		}
		errs = append(errs, err)
		v.watch.Wait()
	}
	v.closeEnds()
	if v.process != nil {
		errs = append(errs, v.process.root.Close())
	}
	if v.cgroup != nil {
		errs = append(errs, v.cgroup.Remove())
	}
	if v.uid != nil {
		v.uid.Release()
	}
	return errors.Join(errs...)
}

// closeEnds closes Custody's ends of the API, the channel and standard error.
func (v *vm) closeEnds() {
	if v.api != nil {
		v.api.close()
	}
	if v.channel != nil {
		v.channel.Close()
	}
	if v.stderr != nil {
		v.stderr.Close()
	}
}
