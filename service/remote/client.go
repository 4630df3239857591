package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/run/caller"
)

// Client is a connection to the service.
type Client struct {
	*privsep.Conn
	done chan error // the result of Run
}

// Dial connects to the service at path, which can make the calls that handlers returns; nil: none.
func Dial(path string, handlers func(*privsep.Conn) map[string]privsep.Handler) (*Client, error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, &Failure{fmt.Sprintf("the service: %v", err), dialAdvice(err)}
	}
	calls := map[string]privsep.Handler{}
	client := &Client{Conn: privsep.New(c, calls), done: make(chan error, 1)}
	if handlers != nil {
		maps.Copy(calls, handlers(client.Conn))
	}
	go func() { client.done <- client.Run(context.Background()) }()
	return client, nil
}

func dialAdvice(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "it serves the members of its socket's group, usually custody: have an administrator add you, then log in again"
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return "it is not running: have an administrator start it; " + SocketEnv + "=none does without it, as root"
	}
	return ""
}

// Close ends the connection, and waits.
func (c *Client) Close() error {
	c.Conn.Close()
	return <-c.done
}

// lost explains an error of a call.
func (c *Client) lost(err error, begun bool) error {
	switch {
	case !errors.Is(err, privsep.ErrClosed):
		return err
	case begun:
		return &Failure{"the service ended before the run did: the run's record is closed as interrupted when the service starts again", "see the service's log"}
	}
	return &Failure{"the service ended the connection: it serves too many clients, or ends", "try again; see the service's log"}
}

// User is the client's side of a run.
type User struct {
	// Notice, Progress and Problem get what run.Options describes.
	Notice, Progress func(string)
	Problem          func(error)
	// Attach is called before the first step, its second result after the last.
	Attach func() (caller.Console, func())
	// Records gets the run's records, if the request asks for them.
	Records io.Writer
	// OpenFiles opens the directories of the request, as run.OpenFiles does; nil: the request has none. Describe returns the text of its error,
	// and what to do about it.
	OpenFiles func(ctx context.Context, s caller.FileSpec, notice func(string)) (caller.Files, error)
	Describe  func(error) (text, hint string)
}

// Run carries out a run through the service at path. An error means that no run began, or that the service has gone. If ctx is done,
// the run is cancelled.
func Run(ctx context.Context, path string, r Request, u User) (caller.Result, error) {
	var err error
	if r.Source.File != "" {
		if r.Source.File, err = filepath.Abs(r.Source.File); err != nil {
			return caller.Result{}, err
		}
	}
	request, err := privsep.Memory("request", r)
	if err != nil {
		return caller.Result{}, err
	}
	defer request.Close()
	if info, err := request.Stat(); err != nil || info.Size() > MaxRequest {
		return caller.Result{}, errors.Join(err, fmt.Errorf("the command and the project's file are larger than the %d MiB that the service takes", MaxRequest>>20))
	}
	a, files := &attachment{user: u}, &copying{workdir: r.Workdir, out: r.Out, user: u}
	c, err := Dial(path, func(c *privsep.Conn) map[string]privsep.Handler {
		all := a.handlers(c)
		maps.Copy(all, files.handlers())
		return all
	})
	if err != nil {
		return caller.Result{}, err
	}
	stop := context.AfterFunc(ctx, func() {
		_, _ = c.Call(context.Background(), CallCancel, CancelCall{context.Cause(ctx).Error()}, nil)
	})
	defer stop()
	var o Outcome
	_, err = c.Call(context.WithoutCancel(ctx), CallRun, None{}, &o, request)
	closed := errors.Join(c.Close(), files.close())
	begun := a.end()
	if err != nil {
		return caller.Result{}, errors.Join(c.lost(err, begun), closed)
	}
	if closed != nil {
		u.Problem(closed)
	}
	return o.result()
}
