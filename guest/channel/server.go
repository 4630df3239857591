package channel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/erase"
	"github.com/custody-project/custody/internal/splice"
)

// Runner starts commands, each in a separate cell.
type Runner interface {
	// Start returns an ExecError when it is the command's own fault. The values of the
	// command's secrets are gone when it has returned.
	Start(context.Context, Command) (Cell, error)
}

// Cell is a running command and all processes that it has started.
type Cell interface {
	// Pipes returns our ends. stdin is closed by the caller; stderr is nil with a terminal.
	Pipes() (stdin io.WriteCloser, stdout, stderr io.ReadCloser)
	Signal(syscall.Signal) error
	Resize(Winsize) error
	// Alive reports whether the main process runs.
	Alive() bool
	// Wipe removes the files with the command's secrets from the cell.
	Wipe() error
	// Wait waits for the main command, then kills what it left behind, and
	// returns when nothing of the cell runs. It is called once.
	Wait() Exit
	// Close releases the rest of the cell. It is called once, after the
	// sensors have been flushed.
	Close() error
}

// ExecError: a command could not be executed. Code is the exit code of a shell in that case.
type ExecError struct {
	Code int // 126 or 127
	Err  error
}

func (e *ExecError) Error() string { return e.Err.Error() }
func (e *ExecError) Unwrap() error { return e.Err }

// Server is the guest's end of the channel. It serves one session of the host after another, each of which but the last was suspended.
type Server struct {
	// Runner runs the steps' commands.
	Runner Runner
	// Workspace opens the directory that CopyIn fills and CopyOut reads. The caller closes it.
	Workspace func() (*os.Root, error)
	// Flush returns when every event that happened before the call has gone through Emit. It may be nil.
	Flush func(context.Context) error
	// Drain has the kernel free the memory that nothing uses any more. It may be nil.
	Drain func() error
	// CPU returns the processor time that the processes of all cells have used; 0: it is not known. It may be nil.
	CPU func() time.Duration
	// EndSession kills all processes of the session. It may be nil.
	EndSession func() error
	// File carries out an operation on a file of the session. An error can be a FileError. It may be nil.
	File func(context.Context, FileRequest, FileStreams) error
	// Identify makes the guest the sandbox of a run. It is called once in each session, before any command of the run, and may set
	// Flush. It may be nil. After a suspension the commands are frozen meanwhile.
	Identify func(context.Context, Identity) error
	// Freeze stops all processes of the cells, and Thaw lets them run again. They may be nil: the guest then cannot be suspended.
	Freeze, Thaw func() error
	// Dial connects to a TCP port on the loopback interface, and Ports lists those that listen there. They may be nil.
	Dial  func(ctx context.Context, port int) (splice.Conn, error)
	Ports func() ([]int, error)

	run      string // the run's ID, which secrets are sealed for; set with the identity
	stage    stage
	events   eventStream
	files    baseline
	commands commands
}

// NewServer returns a server; its fields may be set until Serve is called.
func NewServer(r Runner, workspace func() (*os.Root, error), flush func(context.Context) error) *Server {
	return &Server{Runner: r, Workspace: workspace, Flush: flush, events: eventStream{opened: make(chan struct{})}}
}

// Emit sends one event to the host. It blocks until the host accepts events and
// while the host is behind; so the caller must not hold a lock that
// the rest of init needs.
func (s *Server) Emit(ctx context.Context, e *audit.Event) error { return s.events.emit(ctx, e) }

// Serve serves the host until the connection ends, and then kills the running commands. ErrSuspended means that the host has suspended
// the guest: the commands are frozen, conn is as it was before Serve, and the host's next message is a Wake.
func (s *Server) Serve(ctx context.Context, conn io.ReadWriteCloser) error {
	link := &link{ReadWriteCloser: conn}
	written := combine(link)
	session, err := yamux.Server(written, yamuxConfig())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer session.Close()
	defer closeOnDone(ctx, session)()
	defer cancel()
	for {
		ctl, err := session.Accept()
		if err != nil {
			return fmt.Errorf("channel ended: %w", err)
		}
		var h hello
		if err := readFrame(ctl, &h, maxHello); err != nil {
			return fmt.Errorf("read hello: %w", err)
		}
		if h.Kind == streamPark {
			work.Wait()
			return s.park(ctl, written, link, session)
		}
		data, err := acceptAll(session, h.dataStreams())
		if err != nil {
			return err
		}
		work.Go(func() { s.serve(ctx, h, ctl, data) })
	}
}

// executes reports whether the stream is a command's.
func (h hello) executes() bool {
	return h.Kind == streamExec || h.Kind == streamRehearse || h.Kind == streamAttach
}

func (h hello) dataStreams() int {
	switch {
	case h.executes() && h.Command != nil && h.Command.TTY != nil:
		return 2
	case h.executes():
		return 3
	case h.transfers():
		return 1
	}
	return 0
}

// transfers reports whether the stream is followed by one of data, and is interrupted when the guest is suspended.
func (h hello) transfers() bool {
	return h.Kind == streamCopyIn || h.Kind == streamCopyOut || h.Kind == streamFile || h.Kind == streamConnect
}

func acceptAll(session *yamux.Session, n int) (streams []net.Conn, err error) {
	for range n {
		s, err := session.Accept()
		if err != nil {
			return nil, fmt.Errorf("accept a data stream: %w", err)
		}
		streams = append(streams, s)
	}
	return streams, nil
}

func (s *Server) serve(ctx context.Context, h hello, ctl net.Conn, data []net.Conn) {
	if h.Kind == streamEvents {
		s.events.open(ctl)
		return
	}
	defer ctl.Close()
	end, refused := s.stage.enter(h.Kind)
	defer end()
	if h.transfers() {
		defer s.commands.aside(append(data, ctl)...)()
	}
	switch {
	case h.Kind == streamAttach && h.Command != nil:
		s.attach(ctx, h.Command, refused, ctl, data)
	case h.executes() && h.Command != nil:
		s.exec(ctx, h.Command, refused, ctl, data)
	case refused != nil:
		closeAll(data)
		writeFrame(ctl, report{Error: refused.Error(), Done: true}, maxReport)
	case h.Kind == streamIdentity && h.Identity != nil:
		writeFrame(ctl, s.identify(ctx, *h.Identity), maxReport)
	case h.Kind == streamCopyIn:
		s.copyIn(ctl, data[0])
	case h.Kind == streamCopyOut:
		s.copyOut(ctl, data[0])
	case h.Kind == streamPing:
		writeFrame(ctl, s.alive(), maxReport)
	case h.Kind == streamDrain:
		writeFrame(ctl, s.freed(), maxReport)
	case h.Kind == streamPorts:
		writeFrame(ctl, s.listening(), maxReport)
	case h.Kind == streamConnect:
		s.connect(ctx, h.Port, ctl, data[0])
	case h.Kind == streamEnd:
		s.endSession(ctx, ctl)
	case h.Kind == streamSuspend:
		s.suspend(ctx, ctl)
	case h.Kind == streamThaw:
		writeFrame(ctl, s.thaw(), maxReport)
	case h.Kind == streamFile && h.File != nil:
		s.file(ctx, h.File, ctl, data[0])
	}
}

// endSession ends the session, and reports a mark behind the events of its last processes.
func (s *Server) endSession(ctx context.Context, ctl net.Conn) {
	r := report{Done: true}
	var err error
	if s.EndSession != nil {
		err = s.EndSession()
	}
	if s.Flush != nil {
		err = errors.Join(err, s.Flush(ctx))
	}
	if err != nil {
		r.Error = err.Error()
	}
	if r.Mark, err = s.events.mark(ctx); err != nil {
		return // the channel has ended
	}
	writeFrame(ctl, r, maxReport)
}

func (s *Server) freed() report {
	r := report{Done: true}
	if s.Drain == nil {
		return r
	}
	if err := s.Drain(); err != nil {
		r.Error = err.Error()
	}
	return r
}

// start starts the command, with its secrets if it has any.
func (s *Server) start(ctx context.Context, cmd Command, sealed bool, ctl net.Conn) (cell Cell, key []byte, err error) {
	if !sealed {
		cell, err = s.Runner.Start(ctx, cmd)
		return cell, nil, err
	}
	key, err = s.unseal(cmd.Step, ctl, func(all []Secret) (err error) {
		cmd.Secrets = all
		cell, err = s.Runner.Start(ctx, cmd)
		return err
	})
	return cell, key, err
}

// unseal calls use with the secrets that the host seals for a step, and returns the key of its proofs. The values are gone when it returns.
func (s *Server) unseal(step string, ctl net.Conn, use func([]Secret) error) (key []byte, err error) {
	erase.OnStack(func() {
		var b *bundle
		var end func()
		if b, end, err = receive(ctl, sealContext(s.run, step)); err != nil {
			err = fmt.Errorf("take the step's secrets: %w", err)
			return
		}
		defer end()
		if err = use(b.secrets); err == nil {
			key = append([]byte(nil), b.key[:]...)
		}
	})
	return key, err
}

// receive asks the host for what it has sealed for a command, bound to run and step. end zeroes it.
func receive(ctl net.Conn, bound []byte) (b *bundle, end func(), err error) {
	r, err := newRecipient()
	if err != nil {
		return nil, nil, err
	}
	defer r.erase()
	if err := writeFrame(ctl, report{Key: r.point()}, maxReport); err != nil {
		return nil, nil, err
	}
	var head [4]byte
	if _, err := io.ReadFull(ctl, head[:]); err != nil {
		return nil, nil, err
	}
	if n := binary.BigEndian.Uint32(head[:]); n > maxSealed {
		return nil, nil, fmt.Errorf("%d bytes, at most %d are allowed", n, maxSealed)
	}
	buf := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(ctl, buf); err != nil {
		return nil, nil, err
	}
	plain, err := r.open(buf, bound)
	if err == nil {
		b, err = decodeBundle(plain)
	}
	if err != nil {
		erase.Bytes(buf)
		return nil, nil, err
	}
	return b, func() { erase.Bytes(buf); clear(b.key[:]) }, nil
}

// controls applies the host's control frames to a command.
type controls struct {
	ctl  net.Conn
	step string
	key  []byte // of the step's proofs; nil: it is not leased
}

// steer applies the host's controls until the command has ended. When the host is gone the command is killed.
func (h controls) steer(cell Cell) {
	for {
		var m control
		if err := readFrame(h.ctl, &m, maxReport); err != nil {
			if !errors.Is(err, yamux.ErrTimeout) {
				cell.Signal(syscall.SIGKILL)
			}
			return
		}
		if m.Signal > 0 {
			cell.Signal(syscall.Signal(m.Signal))
		}
		if m.Resize != nil {
			cell.Resize(*m.Resize)
		}
		if m.Prove != nil && h.key != nil && cell.Alive() {
			writeFrame(h.ctl, report{Proof: &proof{Step: h.step, MAC: prove(h.key, m.Prove, h.step)}}, maxReport)
		}
		if m.Wipe {
			w := &wiped{}
			if err := cell.Wipe(); err != nil {
				w.Error = err.Error()
			}
			writeFrame(h.ctl, report{Wiped: w}, maxReport)
		}
	}
}
