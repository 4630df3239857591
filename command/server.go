package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/flock"
	"github.com/custody-project/custody/privsep"
)

// Recorder records accesses. When it returns nil the event is durable.
type Recorder interface {
	Record(ctx context.Context, a audit.Access) error
}

// Server executes the commands of clients on the same machine. It is safe for concurrent use.
type Server struct {
	Dir    string                               // of the host's state
	Open   func(dir string) (*host.Host, error) // as Env.OpenDir
	Store  string                               // as Env.Store
	Tenant string                               // of the host, for the access log
	Access Recorder
	Log    *slog.Logger

	mu    sync.Mutex // guards the fields below
	users map[int]*userLoad
	total int
}

// userLoad is what a user's commands use. The number of users is that of the socket's group.
type userLoad struct {
	running int
	rate    *rate.Limiter
}

// The bounds of commands. A command counts until its client has taken all output.
const (
	maxOfUser  = 8
	maxOfAll   = 64
	perSecond  = 20 // commands that a user begins
	perRequest = 40 // after a pause
)

// Handlers returns the calls of one connection of a user. conn returns the connection.
func (s *Server) Handlers(user privsep.Peer, conn func() *privsep.Conn) map[string]privsep.Handler {
	p := &peer{server: s, uid: user.UID, conn: conn}
	return map[string]privsep.Handler{commandCall: p.execute, interruptCall: privsep.Handle(p.interrupt)}
}

// enter counts a command of a user, until leave is called.
func (s *Server) enter(uid int) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == nil {
		s.users = map[int]*userLoad{}
	}
	load := s.users[uid]
	if load == nil {
		load = &userLoad{rate: rate.NewLimiter(perSecond, perRequest)}
		s.users[uid] = load
	}
	switch {
	case load.running >= maxOfUser:
		return nil, fmt.Errorf("the service executes %d commands for you already: wait until one of them ends", maxOfUser)
	case s.total >= maxOfAll:
		return nil, fmt.Errorf("the service executes %d commands already: try again later", maxOfAll)
	}
	load.running++
	s.total++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		load.running--
		s.total--
	}, nil
}

// wait waits until the user may begin another command.
func (s *Server) wait(ctx context.Context, uid int) error {
	s.mu.Lock()
	limit := s.users[uid].rate
	s.mu.Unlock()
	return limit.Wait(ctx)
}

// peer is one connection.
type peer struct {
	server *Server
	uid    int
	conn   func() *privsep.Conn

	mu   sync.Mutex // guards stop
	stop context.CancelFunc
}

// interrupt ends the connection's command in order.
func (p *peer) interrupt(context.Context, struct{}) (any, []*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		p.stop()
	}
	return struct{}{}, nil, nil
}

// begin returns the context of the connection's only command.
func (p *peer) begin(ctx context.Context) (context.Context, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		return nil, errors.New("a connection executes one command")
	}
	ctx, p.stop = context.WithCancel(ctx)
	return ctx, nil
}

// execute implements privsep.Handler. ctx ends when the client has gone away.
func (p *peer) execute(ctx context.Context, body []byte, files []*os.File) (any, []*os.File, error) {
	defer func() {
		for _, f := range files {
			f.Close() // an error: it was closed by decode
		}
	}()
	var r request
	if err := privsep.Decode(body, &r); err != nil {
		return nil, nil, err
	}
	if len(files) != 1 {
		return nil, nil, errors.New("the call takes one descriptor")
	}
	leave, err := p.server.enter(p.uid)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	if err := p.server.wait(ctx, p.uid); err != nil {
		return nil, nil, err
	}
	c, err := decode(r.Path, files[0])
	if err != nil {
		return nil, nil, err
	}
	inner, err := p.begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer p.interrupt(ctx, struct{}{})
	entry, err := p.server.admit(c, p.uid)
	if err != nil {
		return nil, nil, err
	}
	if err := p.server.Access.Record(ctx, entry); err != nil {
		p.server.Log.Error("a command could not be recorded", "command", c.Path(), "error", err)
		return nil, nil, errors.New("the access could not be recorded, so the command is not executed; the log of custody serve has the cause")
	}
	code, err := p.run(ctx, inner, c, r)
	return result{code}, nil, err
}

// run executes a command. The output ends with ctx, the command with inner.
func (p *peer) run(ctx, inner context.Context, c Command, r request) (code int, err error) {
	defer func() {
		if v := recover(); v != nil {
			p.server.Log.Error("a mistake in custody's own code, please report it", "command", c.Path(), "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = errors.New("a mistake in custody's own code ended the command; the log of custody serve has the details: please report it")
		}
	}()
	to := func(s stream) remoteFile {
		return remoteFile{ctx, p.conn(), s, map[stream]string{toStdout: os.Stdout.Name(), toStderr: os.Stderr.Name()}[s]}
	}
	e := &Env{
		Messages: NewMessages(to(toStderr), func() string { return "custody " + c.Path() }), Stdout: to(toStdout), Store: p.server.Store, User: &p.uid,
		Dir: func() (string, error) { return p.server.Dir, nil }, OpenDir: p.server.Open,
	}
	e.Layout.Width, e.Layout.Color = max(0, r.Width), r.Color
	e.Replace = replacer{ctx, p.conn()}.replace
	return e.Code(c.Execute(flock.WithNotice(inner, e.Say), e)), nil
}

// remoteFile is an output of the client.
type remoteFile struct {
	ctx  context.Context // of the connection
	conn *privsep.Conn
	to   stream
	name string
}

// Write returns when the client has written b.
func (f remoteFile) Write(b []byte) (n int, err error) {
	for n < len(b) {
		part := b[n:min(len(b), n+chunk)]
		var done written
		if _, err := f.conn.Call(f.ctx, outputCall, output{f.to, part}, &done); err != nil {
			return n, err
		}
		if done.Errno != 0 {
			return n, &fs.PathError{Op: "write", Path: f.name, Err: unix.Errno(done.Errno)}
		}
		n += len(part)
	}
	return n, nil
}

// replacer has the client write a file.
type replacer struct {
	ctx  context.Context
	conn *privsep.Conn
}

// replace implements Env.Replace. The client chooses the file.
func (r replacer) replace(path string, write func(io.Writer) error) error {
	if _, err := r.conn.Call(r.ctx, replaceCall, struct{}{}, nil); err != nil {
		return err
	}
	err := write(remoteFile{r.ctx, r.conn, toFile, path})
	var done committed
	if _, lost := r.conn.Call(r.ctx, commitCall, commit{err == nil}, &done); lost != nil {
		return errors.Join(err, lost)
	}
	if done.Failed {
		return Failed
	}
	return err
}
