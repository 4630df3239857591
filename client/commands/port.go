package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"

	"github.com/custody-project/custody/client"
)

// PortCmd makes TCP ports of a sandbox reachable on this machine.
type PortCmd struct {
	Sandbox string   `arg:"" help:"The ID of the sandbox."`
	Ports   []string `arg:"" name:"local:remote" help:"A port of this machine, on 127.0.0.1, and the port of the sandbox that it leads to. One number stands for both; 0 as the first is any free one. With --link, only a port of the sandbox."`
	Link    bool     `help:"Print, for each port of the sandbox, a link that opens it in a browser once, and pass no connections on. The service needs a domain for sandboxes."`
	Service
}

// maxConnections bounds the connections at a time, as the service does for a sandbox. Further ones wait.
const maxConnections = 64

// Run passes connections on until the command or the sandbox is ended.
func (c PortCmd) Run(e *Env) error {
	if c.Link {
		return c.links(e)
	}
	var pairs []pair
	for _, text := range c.Ports {
		p, err := parsePair(text)
		if err != nil {
			return err
		}
		pairs = append(pairs, p)
	}
	service, err := c.client()
	if err != nil {
		return err
	}
	interrupted, stop := signal.NotifyContext(e.Context, os.Interrupt)
	defer stop()
	box := service.Sandbox(c.Sandbox)
	info, err := box.Info(interrupted)
	if err == nil && info.State == "ended" {
		err = failure(hints["ended"], "the sandbox %s has ended", c.Sandbox)
	}
	if err != nil {
		return explain(err)
	}
	ctx, cancel := context.WithCancelCause(interrupted)
	f := &forwarder{Env: e, box: box, fail: cancel, places: make(chan struct{}, maxConnections)}
	defer f.work.Wait()
	defer cancel(nil)
	for _, p := range pairs {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", p.local))
		if err != nil {
			return err
		}
		f.work.Go(func() { f.serve(ctx, l, p.remote) })
		if _, err := fmt.Fprintln(e.Stdout, l.Addr()); err != nil {
			return err
		}
	}
	<-ctx.Done()
	if interrupted.Err() != nil {
		return nil
	}
	return explain(context.Cause(ctx))
}

// links prints links with which a browser logs in to ports.
func (c PortCmd) links(e *Env) error {
	var ports []int
	for _, text := range c.Ports {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 {
			return failure("write ports of the sandbox, such as 8080", "%.40q is no port from 1 to 65535", text)
		}
		ports = append(ports, int(n))
	}
	service, err := c.client()
	if err != nil {
		return err
	}
	for _, port := range ports {
		link, err := service.Sandbox(c.Sandbox).LogIn(e.Context, port)
		if err != nil {
			return explain(err)
		}
		if _, err := fmt.Fprintln(e.Stdout, link.URL); err != nil {
			return err
		}
	}
	return nil
}

// pair is a port of this machine and the one of the sandbox that it leads to.
type pair struct {
	local  string
	remote int
}

// parsePair parses LOCAL:REMOTE, or one number for both.
func parsePair(text string) (pair, error) {
	local, remote, both := strings.Cut(text, ":")
	if !both {
		remote = local
	}
	_, badLocal := strconv.ParseUint(local, 10, 16)
	n, err := strconv.ParseUint(remote, 10, 16)
	if badLocal != nil || err != nil || n == 0 {
		return pair{}, failure("write LOCAL:REMOTE, such as 8080:80", "%.40q is not two ports from 1 to 65535", text)
	}
	return pair{local, int(n)}, nil
}

// forwarder passes connections on to ports of a sandbox.
type forwarder struct {
	*Env
	box    *client.Box
	fail   context.CancelCauseFunc // ends the command
	places chan struct{}           // one for each connection
	work   sync.WaitGroup          // Run waits for it
}

// serve passes the connections of a listener on until ctx is done, and closes it.
func (f *forwarder) serve(ctx context.Context, l net.Listener, port int) {
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		select {
		case f.places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		near, err := l.Accept()
		if err != nil {
			f.fail(err) // nothing, if ctx is done
			return
		}
		f.work.Go(func() {
			defer func() { <-f.places }()
			f.pass(ctx, near.(*net.TCPConn), port)
		})
	}
}

// pass passes one connection on until both directions have ended.
func (f *forwarder) pass(ctx context.Context, near *net.TCPConn, port int) {
	defer near.Close()
	far, err := f.box.Dial(ctx, port)
	if err != nil {
		_ = near.SetLinger(0) // the caller gets an error, and not an empty answer
		f.refused(ctx, port, err)
		return
	}
	defer far.Close()
	defer context.AfterFunc(ctx, func() {
		near.Close()
		far.Close()
	})()
	var back sync.WaitGroup
	back.Go(func() { carry(near, far) })
	carry(far, near)
	back.Wait()
}

// refused reports why a connection cannot be made. If no other one can be made either, the command ends.
func (f *forwarder) refused(ctx context.Context, port int, err error) {
	if ctx.Err() != nil {
		return
	}
	for _, final := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone} {
		if client.IsStatus(err, final) {
			f.fail(err)
			return
		}
	}
	err = explain(err)
	f.Say(fmt.Sprintf("port %d: %v", port, err))
	if known := new(Failure); errors.As(err, &known) && known.hint != "" {
		f.Say("hint: " + known.hint)
	}
}

// carry copies one direction to its end.
func carry(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		_ = half.CloseWrite() // the other direction goes on
		return
	}
	to.Close()
	from.Close()
}
