package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/service/remote"
)

// Client has commands executed by the service of the host.
type Client struct {
	Socket string // of the service
	// Env is this process's: the service gets the layout, and its output comes to Stdout and Out.
	Env *Env
}

// endWait is how long a command may take to end in order after a signal.
const endWait = 30 * time.Second

var errEnd = errors.New("interrupted by a signal, and the service did not end the command in time")

// Execute has a command executed. The error can be an Exit, whose messages were printed.
func (cl Client) Execute(ctx context.Context, c Command) error {
	c, err := withLocalZone(c)
	if err != nil {
		return err
	}
	args, err := encode(c)
	if err != nil {
		return err
	}
	defer args.Close()
	s := &screen{env: cl.Env}
	if b, ok := c.(Bundle); ok {
		s.path = b.Out
	}
	conn, err := remote.Dial(cl.Socket, func(*privsep.Conn) map[string]privsep.Handler {
		return map[string]privsep.Handler{
			outputCall: privsep.Handle(s.output), replaceCall: privsep.Handle(s.replace), commitCall: privsep.Handle(s.commit),
		}
	})
	if err != nil {
		return err
	}
	code, err := cl.call(ctx, conn, c.Path(), args)
	closed := conn.Close()
	s.abandon()
	switch {
	case err != nil:
		return errors.Join(err, closed)
	case s.failed != nil:
		return s.failed
	case code == 0:
		return closed
	}
	return Exit(code)
}

// call calls the service. After the end of ctx, the command ends in order and prints why.
func (cl Client) call(ctx context.Context, conn *remote.Client, path string, args *os.File) (int, error) {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(endWait, func() { cancel(errEnd) })
		context.AfterFunc(late, func() { timer.Stop() })
		_, _ = conn.Call(late, interruptCall, struct{}{}, nil) // an error: the command has ended
	})
	defer stop()
	var r result
	_, err := conn.Call(late, commandCall, request{path, cl.Env.Layout.Width, cl.Env.Layout.Color}, &r, args)
	if errors.Is(err, privsep.ErrClosed) {
		return 0, &remote.Failure{Text: "the service ended the connection before the command was done", Advice: "try again; see the service's log"}
	}
	return r.Code, err
}

// KnownKeys returns the public keys that the service's host knows.
func (cl Client) KnownKeys(ctx context.Context) (known host.PublicKeys, err error) {
	text, err := cl.printed(ctx, Keys{})
	if err != nil {
		return known, err
	}
	return known, decodeKeys(text, &known)
}

// screen writes what the service sends. Its calls come one after another, unless the service is compromised.
type screen struct {
	env  *Env
	path string // of the file that a command writes; "": it writes none

	mu     sync.Mutex // guards the fields below
	file   *replacement
	failed error // of writing the file
}

// replacement is a file that is being written.
type replacement struct {
	data *io.PipeWriter
	done chan error // has the result once
}

// output writes to the terminal or to the file.
func (s *screen) output(_ context.Context, o output) (any, []*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var w io.Writer
	switch {
	case o.Stream == toStdout:
		w = s.env.Stdout
	case o.Stream == toStderr:
		w = s.env.Out
	case o.Stream == toFile && s.file != nil:
		w = s.file.data
	default:
		return nil, nil, fmt.Errorf("there is no stream %d", o.Stream)
	}
	if _, err := w.Write(o.Data); err != nil {
		errno := unix.EIO
		errors.As(err, &errno)
		return written{int(errno)}, nil, nil
	}
	return written{}, nil, nil
}

// replace begins to write the file.
func (s *screen) replace(context.Context, struct{}) (any, []*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.path == "" || s.file != nil {
		return nil, nil, errors.New("the command writes no file, or only one")
	}
	data, in := io.Pipe()
	f := &replacement{in, make(chan error, 1)}
	go func() { // commit or abandon waits for it
		err := s.env.Replace(s.path, func(w io.Writer) error {
			_, err := io.Copy(w, data)
			return err
		})
		data.CloseWithError(err) // later writes fail
		f.done <- err
	}()
	s.file = f
	return struct{}{}, nil, nil
}

var errIncomplete = errors.New("the file is not complete")

// commit gives the file its name if it is whole, and removes it otherwise.
func (s *screen) commit(_ context.Context, c commit) (any, []*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil, nil, errors.New("no file is being written")
	}
	err := s.file.end(c.Whole)
	s.file, s.path = nil, ""
	if !errors.Is(err, errIncomplete) {
		s.failed = err
	}
	return committed{s.failed != nil}, nil, nil
}

// end ends the writing of the file, and returns the result.
func (f *replacement) end(whole bool) error {
	if whole {
		f.data.Close()
	} else {
		f.data.CloseWithError(errIncomplete)
	}
	return <-f.done
}

// abandon removes a file that is not complete.
func (s *screen) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		s.file.end(false)
		s.file = nil
	}
}

// withLocalZone replaces the zone local, which is another one in the service's environment, by $TZ. Without $TZ it is the zone of
// the machine, which is the service's, too.
func withLocalZone(c Command) (Command, error) {
	switch c := c.(type) {
	case Runs:
		var err error
		c.Zone, err = localZone(c.Zone)
		return c, err
	case Timeline:
		var err error
		c.Zone, err = localZone(c.Zone)
		return c, err
	}
	return c, nil
}

func localZone(zone string) (string, error) {
	tz, set := os.LookupEnv("TZ")
	if zone != "local" || !set {
		return zone, nil
	}
	name := strings.TrimPrefix(strings.TrimPrefix(tz, ":"), "/usr/share/zoneinfo/")
	if _, err := replay.ParseZone(name); err != nil {
		return "", Usage(fmt.Errorf("--zone local: TZ=%.80q is not the name of a time zone: give one, such as --zone Europe/Berlin", tz))
	}
	return name, nil
}
