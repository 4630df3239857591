package gvisor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/gvisor/trace"
)

// observer turns what the sentry reports into events.
//
//	newObserver                             identify
//	-----------> follows processes, emits nothing ---> emits the events of a run
type observer struct {
	emit func(context.Context, *audit.Event) error

	mu      sync.Mutex // guards the fields below
	run     string     // the run's ID; empty: it has none yet
	step    string     // of the command that init starts next; empty: of none
	begun   bool       // a step has begun
	marks   int        // local sockets that init has made: one at the end of each command
	ends    int        // commands of which all events were expected to be handled
	procs   map[int]*process
	dropped uint32
	writers map[string]*process // that last opened a path for writing, since a step began while no other ran
	calls   map[string]*calls   // of the steps that run
	others  *calls              // of processes that a step has left behind, or whose step is not known
}

// process is what is known of one that lives.
type process struct {
	id       string // audit.ProcID
	born     int64  // its start by the sentry's clock
	parent   string
	parentID int
	step     string    // that it or an ancestor was started for; empty: none
	start    time.Time // of its first exec, by the sentry's clock: the host can be late
	execed   bool
	calls    int    // of execve without an error, up to 2
	status   uint32 // of its main thread's exit
	// sockets are the protocols of those that it made with socket(2), by descriptor; a descriptor that it got
	// in another way has none.
	sockets map[int]string
}

// maxSockets bounds the sockets of one process that are remembered.
const maxSockets = 4096

// maxWriters bounds the paths that are remembered in one step; changes of others have no process.
const maxWriters = 1 << 16

func newObserver(emit func(context.Context, *audit.Event) error) *observer {
	return &observer{emit: emit, procs: map[int]*process{}, writers: map[string]*process{}, calls: map[string]*calls{}, others: newCalls()}
}

// identify begins to emit events, and declares which are missing. The processes that live get the run's IDs; nothing else is left of
// what happened before.
func (o *observer) identify(ctx context.Context, run string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.run != "" {
		return errors.New("the sandbox is observed for a run already")
	}
	o.run, o.marks, o.ends, o.others = run, 0, 0, newCalls()
	clear(o.writers)
	for pid, p := range o.procs {
		p.id = o.procID(pid, p.born)
	}
	for _, p := range o.procs {
		if q := o.procs[p.parentID]; q != nil && p.parent != "" {
			p.parent = q.id
		}
	}
	return o.post(ctx, "", audit.Event{Kind: audit.KindGap, Gap: &audit.Gap{Stage: audit.StageDriver, What: unobserved, Cause: "the isolation gvisor has no guest kernel to observe them in"}})
}

// begin names the step of the command that init starts next. It reports whether there has been a step before.
func (o *observer) begin(step string) (again bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.calls) == 0 {
		clear(o.writers)
	}
	again, o.begun = o.begun, true
	o.step = step
	o.calls[step] = newCalls()
	return again
}

// end is called when all events of a step have been handled. What its command has left behind keeps the step's name.
func (o *observer) end(step string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.calls, step)
	if o.step == step {
		o.step = ""
	}
}

// stepOf returns the step of a process that has inherited none: of the command that starts, or, for a process whose parent is not known, of
// the only one that runs.
func (o *observer) stepOf(p *process) string {
	if p.parentID == 1 || o.calls[o.step] != nil && len(o.calls) == 1 {
		return o.step
	}
	return ""
}

// callsOf returns the calls that a process's are among.
func (o *observer) callsOf(p *process) *calls {
	if c := o.calls[cmp.Or(p.step, o.stepOf(p))]; c != nil {
		return c
	}
	return o.others
}

// handle takes one message of the sentry.
func (o *observer) handle(ctx context.Context, m trace.Message) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if lost := m.Dropped - o.dropped; lost > 0 {
		o.dropped = m.Dropped
		gap := &audit.Gap{Stage: audit.StageTrace, Count: uint64(lost), Cause: "the host did not read gVisor's trace sink in time, or a message was too large for it"}
		if err := o.post(ctx, o.step, audit.Event{Kind: audit.KindGap, Gap: gap}); err != nil {
			return err
		}
	}
	p := o.process(m.Process)
	if m.Raw != nil && m.Raw.Errno == 0 {
		p.calls = min(p.calls+1, 2)
	}
	if c := o.callsOf(p); p.parentID == 1 && !p.execed {
		c.search(m)
	} else {
		c.note(m)
	}
	switch {
	case m.Clone != nil && m.Clone.PID != m.Process.PID:
		o.procs[m.Clone.PID] = &process{id: o.procID(m.Clone.PID, m.Clone.Start), born: m.Clone.Start, parent: p.id, parentID: m.Process.PID, step: p.step, sockets: maps.Clone(p.sockets)}
	case m.Exec != nil:
		return o.exec(ctx, p, m)
	case m.Exit != nil && m.Thread == m.Process.PID:
		p.status = m.Exit.Status
	case m.End != nil:
		delete(o.procs, m.Process.PID)
		return o.exit(ctx, p, m)
	case m.Open != nil && m.Open.Errno == 0 && m.Open.Flags&unix.O_ACCMODE != unix.O_RDONLY:
		if len(o.writers) < maxWriters {
			o.writers[absolute(m)] = p
		}
	case m.Process.PID == 1 && m.Socket != nil:
		if m.Socket.Family == unix.AF_UNIX { // others are connections of the host to ports, which the host records
			o.marks++
		}
	case m.Socket != nil && m.Socket.FD >= 0:
		p.opened(m.Socket)
	case m.Process.PID != 1 && m.Connect != nil && m.Connect.To.IsValid():
		return o.connect(ctx, p, m)
	}
	return nil
}

// process returns what is known of the process that a message is about.
func (o *observer) process(q trace.Process) *process {
	p := o.procs[q.PID]
	if p == nil { // its clone was not reported: it was lost, or the process is init
		p = &process{id: o.procID(q.PID, q.Start), born: q.Start, parentID: q.PPID}
		if parent := o.procs[q.PPID]; parent != nil {
			p.step = parent.step
		}
		o.procs[q.PID] = p
	}
	return p
}

func (o *observer) procID(pid int, start int64) string {
	h := sha256.New()
	fmt.Fprintf(h, "custody proc gvisor 1\x00%s\x00%d\x00%d", o.run, pid, start)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// argvKept is how much of an argument vector an event has, in bytes.
const argvKept = 32 << 10

func (o *observer) exec(ctx context.Context, p *process, m trace.Message) error {
	// The first process of each cell, which init starts and which only sleeps. Only init starts children of init.
	// A step's command comes from the disk: if its own exec was dropped, one in memory is not its first call.
	if m.Process.PID == 1 || p.parentID == 1 && m.Exec.Memory && !p.execed && p.calls == 1 {
		return nil
	}
	if !p.execed {
		p.execed, p.start = true, m.Time
		p.step = cmp.Or(p.step, o.stepOf(p))
	}
	x := &audit.Exec{
		Proc: p.id, Parent: p.parent, PID: m.Process.PID, PPID: m.Process.PPID,
		Exe: audit.Text(m.Exec.Path), Cwd: audit.Text(m.Process.Cwd), UID: m.Process.UID,
	}
	if p.parentID == 1 {
		x.Parent = ""
	}
	cutArgv(x, m.Exec.Argv)
	return o.post(ctx, p.step, audit.Event{Kind: audit.KindExec, Exec: x})
}

// cutArgv sets the arguments of x, at most argvKept bytes of them with a NUL behind each.
func cutArgv(x *audit.Exec, argv []string) {
	whole, size := sha256.New(), 0
	for _, a := range argv {
		whole.Write([]byte(a))
		whole.Write([]byte{0})
		if left := argvKept - size; left > 0 {
			x.Argv = append(x.Argv, audit.Text(a[:min(len(a), left)]))
		}
		size += len(a) + 1
	}
	if size > argvKept {
		x.Truncated, x.ArgvBytes, x.ArgvSHA256 = true, size, hex.EncodeToString(whole.Sum(nil))
	}
}

func (o *observer) exit(ctx context.Context, p *process, m trace.Message) error {
	if !p.execed {
		return nil
	}
	status := m.End.Status
	if status == 0 {
		status = p.status
	}
	x := &audit.Exit{Proc: p.id, PID: m.Process.PID, DurationNS: int64(max(0, m.Time.Sub(p.start)))}
	if ws := unix.WaitStatus(status); ws.Signaled() {
		x.Signal = int(ws.Signal())
		x.Code = 128 + x.Signal
	} else {
		x.Code = ws.ExitStatus()
	}
	return o.post(ctx, p.step, audit.Event{Kind: audit.KindExit, Exit: x})
}

// opened remembers the protocol of a socket.
func (p *process) opened(s *trace.Socket) {
	if p.sockets == nil || len(p.sockets) == maxSockets {
		p.sockets = map[int]string{}
	}
	p.sockets[s.FD] = protocolOf(s)
}

func protocolOf(s *trace.Socket) string {
	switch {
	case s.Type == unix.SOCK_STREAM:
		return "tcp"
	case s.Type == unix.SOCK_DGRAM && s.Proto == unix.IPPROTO_ICMP:
		return "icmp"
	case s.Type == unix.SOCK_DGRAM && s.Proto == unix.IPPROTO_ICMPV6:
		return "icmp6"
	case s.Type == unix.SOCK_DGRAM:
		return "udp"
	}
	return strconv.Itoa(s.Proto)
}

// protocol is that of a descriptor's socket, "ip" if it is not known.
func (p *process) protocol(fd int) string {
	if name, ok := p.sockets[fd]; ok {
		return name
	}
	return "ip"
}

func (o *observer) connect(ctx context.Context, p *process, m trace.Message) error {
	f := &audit.Flow{
		Proc: p.id, PID: m.Process.PID, State: audit.FlowAttempt, Proto: p.protocol(m.Connect.FD),
		DstIP: m.Connect.To.Addr().String(), DstPort: int(m.Connect.To.Port()), Errno: m.Connect.Errno,
	}
	if !p.execed && p.parentID != 1 {
		f.Parent = p.parent
	}
	return o.post(ctx, p.step, audit.Event{Kind: audit.KindFlow, Flow: f})
}

// post emits an event of a step. It does nothing before identify.
func (o *observer) post(ctx context.Context, step string, ev audit.Event) error {
	if o.run == "" {
		return nil
	}
	ev.Time, ev.Observer, ev.Step = time.Now().UTC(), audit.Host, step
	return o.emit(ctx, &ev)
}

// absolute is the path of an opened file in the cell, without looking at links.
func absolute(m trace.Message) string {
	dir := m.Open.Dir
	if dir == "" {
		dir = m.Process.Cwd
	}
	name := m.Open.Path
	if !path.IsAbs(name) {
		name = path.Join(dir, name)
	}
	return path.Clean(name)
}

// unobserved are the events that the sentry's trace sink does not have, and those of files that only
// their result is seen of.
const unobserved = "reads of files; FIFOs and sockets; files that are gone before the step ends; the operations between a file's states at the begin and the end of a step; " +
	"programs that a process loads without execve; sends without connect"

// Observe implements vmm.Observer.
func (v *vm) Observe(ctx context.Context, emit func(context.Context, *audit.Event) error) error {
	o := newObserver(emit)
	v.mu.Lock()
	v.observer = o
	v.mu.Unlock()
	close(v.observed)
	if err := v.stream.Read(func(m trace.Message) error { return o.handle(ctx, m) }); err != nil {
		return err
	}
	select {
	case <-v.done: // the sentry closes the stream when it ends
		return nil
	case <-time.After(endLimit):
		return errors.New("gVisor's sentry runs on without its trace sink")
	}
}

// endLimit bounds the time from the end of the sentry's stream to the end of runsc.
const endLimit = 10 * time.Second

// BeginRun implements vmm.Observer.
func (v *vm) BeginRun(ctx context.Context, r vmm.Observed) error {
	o, err := v.flushed(ctx)
	if err != nil {
		return err
	}
	v.mu.Lock()
	v.hashOver = r.HashOver
	v.mu.Unlock()
	return o.identify(ctx, safeID(r.Run))
}

// BeginStep implements vmm.Observer.
func (v *vm) BeginStep(ctx context.Context, name string) error {
	o, err := v.flushed(ctx)
	if err != nil {
		return err
	}
	if o.begin(name) {
		return nil
	}
	if err := v.container.Changed(ctx, 0, nil); ctx.Err() != nil {
		return err
	} // else what could not be examined is declared at the end of the step
	return nil
}

// EndStep implements vmm.Observer.
func (v *vm) EndStep(ctx context.Context, name string) error {
	o, err := v.flushed(ctx)
	if err != nil {
		return err
	}
	defer o.end(name)
	if err := o.declareCalls(ctx, name); err != nil {
		return err
	}
	v.mu.Lock()
	over := v.hashOver
	v.mu.Unlock()
	changed := v.container.Changed(ctx, over, func(f *audit.File) error { return o.file(ctx, name, f) })
	return errors.Join(changed, v.tail(o))
}

// tail returns an error if the sentry runs, and the message that is the last one of a step has not arrived. The
// sentry reports that it dropped messages only with a later one.
func (v *vm) tail(o *observer) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ends++
	if o.marks >= o.ends || v.stream.Ended() {
		return nil
	}
	o.ends = o.marks // one missing message is declared once
	return errors.New("the last message of the step is missing in gVisor's trace sink, and others before it may be, too")
}

// flushed returns the observer once all messages that were sent have been handled.
func (v *vm) flushed(ctx context.Context) (*observer, error) {
	select {
	case <-v.observed:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	v.mu.Lock()
	o := v.observer
	v.mu.Unlock()
	return o, v.stream.Flush(ctx)
}

// file emits a change of a file, with the process that last opened its path for writing, and as an event of its step.
func (o *observer) file(ctx context.Context, step string, f *audit.File) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := o.writers[string(f.Path)]; p != nil {
		f.Proc, step = p.id, cmp.Or(p.step, step)
	}
	return o.post(ctx, step, audit.Event{Kind: audit.KindFile, File: f})
}
