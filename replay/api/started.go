package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/fleet"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/run"
)

// startedOf returns the description of a process.
func startedOf(p *fleet.Process) client.StartedProcess {
	c := p.Command
	out := client.StartedProcess{Name: p.Name, Argv: c.Argv, Cwd: c.Dir, User: c.User, Started: p.Started}
	if t := c.Terminal; t != nil {
		out.Terminal = &client.TerminalState{Rows: t.Rows, Cols: t.Cols, Type: c.Term}
	}
	select {
	case <-p.Done():
	default:
		return out
	}
	exit, ended, err := p.Exit()
	out.Ended, out.OOM, out.Error = &ended, exit.OOM, exit.Error
	if err != nil {
		out.Error = err.Error()
		return out
	}
	out.ExitCode = &exit.Code
	if exit.Signal != 0 {
		out.Signal = unix.SignalName(syscall.Signal(exit.Signal))
	}
	return out
}

// commandOf returns what a request asks for.
func commandOf(q client.ProcessRequest) (c run.Command, err error) {
	switch {
	case (len(q.Argv) == 0) == (q.Shell == ""):
		return c, bad("give argv, or shell with a script", "the request has not exactly one of argv and shell")
	case q.Shell != "":
		q.Argv = []string{"/bin/sh", "-c", q.Shell}
	}
	for _, text := range slices.Concat(q.Argv, []string{q.Cwd, q.User}) {
		if strings.ContainsRune(text, 0) {
			return c, bad("leave it out", "an argument, cwd or user has a NUL")
		}
	}
	c = run.Command{Argv: q.Argv, Dir: q.Cwd, User: q.User, Secrets: q.Secrets, Immediate: true}
	if c.Time, err = seconds("time_seconds", q.TimeSeconds); err != nil {
		return c, err
	}
	if t := q.Terminal; t != nil {
		c.Terminal, c.Term = &channel.Winsize{Rows: t.Rows, Cols: t.Cols}, t.Type
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(q.Env)) {
		list = append(list, name+"="+q.Env[name])
	}
	c.Env, err = project.ParseVariables(list, func(string) (string, bool) { return "", false })
	if err != nil {
		return c, bad("", "env: %v", err)
	}
	return c, nil
}

func (h *sandboxesHandler) start(w http.ResponseWriter, r *request) error {
	s, err := h.find(r)
	if err != nil {
		return err
	}
	var q client.ProcessRequest
	if err := r.body(&q); err != nil {
		return err
	}
	c, err := commandOf(q)
	if err != nil {
		return err
	}
	if err := live(r.Context(), s); err != nil {
		return err
	}
	p, err := s.Start(r.Context(), c, q.Stdin)
	if err != nil {
		return fleetProblem(err)
	}
	return answerWith(w, http.StatusCreated, startedOf(p))
}

// patience bounds how long a request waits for a sandbox. It is below the limits of common proxies.
const patience = 25 * time.Second

// live returns when the sandbox is live, or with a temporary error that names its place in the queue.
func live(ctx context.Context, s *fleet.Sandbox) error {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := s.Ready(waiting)
	if err == nil || waiting.Err() == nil || ctx.Err() != nil {
		return fleetProblem(err)
	}
	detail := "the sandbox is not live yet"
	if i := s.Info(); i.Position > 0 {
		detail = fmt.Sprintf("the sandbox waits for its turn: its place in the queue is %d", i.Position)
	}
	return later(http.StatusServiceUnavailable, client.NotLive, detail, "try again: it starts by itself", time.Second)
}

func (h *sandboxesHandler) started(w http.ResponseWriter, r *request) error {
	s, err := h.find(r)
	if err != nil {
		return err
	}
	list := []client.StartedProcess{}
	for _, p := range s.Processes() {
		list = append(list, startedOf(p))
	}
	return answer(w, struct {
		Processes []client.StartedProcess `json:"processes"`
	}{list})
}

// process returns the process that the path names.
func (h *sandboxesHandler) process(r *request) (*fleet.Process, error) {
	s, err := h.find(r)
	if err != nil {
		return nil, err
	}
	p, err := s.Process(r.PathValue("process"))
	if errors.Is(err, fleet.ErrUnknown) {
		return nil, access.NewProblem(http.StatusNotFound, "no-process", err.Error(), "GET processes of the sandbox lists them")
	}
	return p, err
}

// longestWait bounds how long a request waits for the end of a process.
const longestWait = 60

func (h *sandboxesHandler) startedOne(w http.ResponseWriter, r *request) error {
	p, err := h.process(r)
	if err != nil {
		m, run, err := h.records.past(r, err)
		if err != nil {
			return err
		}
		described, err := pastProcess(m, run, r.PathValue("process"))
		if err != nil {
			return err
		}
		return answer(w, described)
	}
	wait, err := r.number("wait", 0, longestWait)
	if err != nil {
		return err
	}
	if wait > 0 {
		leave, err := h.enter(r)
		if err != nil {
			return err
		}
		defer leave()
		defer p.Attend()()
		ctx, cancel := context.WithTimeout(r.Context(), time.Duration(wait)*time.Second)
		defer cancel()
		select {
		case <-p.Done():
		case <-ctx.Done():
		case <-h.ended:
		}
	}
	return answer(w, startedOf(p))
}

func (h *sandboxesHandler) signal(w http.ResponseWriter, r *request) error {
	p, err := h.process(r)
	if err != nil {
		return err
	}
	var q client.SignalRequest
	if err := r.body(&q); err != nil {
		return err
	}
	sig := unix.SignalNum(q.Signal)
	if sig == 0 {
		return bad("give its name, such as SIGTERM or SIGKILL", "%.40q is no signal", q.Signal)
	}
	if err := p.Signal(r.Context(), sig); err != nil {
		return fleetProblem(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (h *sandboxesHandler) resize(w http.ResponseWriter, r *request) error {
	p, err := h.process(r)
	if err != nil {
		return err
	}
	var q client.TerminalState
	if err := r.body(&q); err != nil {
		return err
	}
	if err := p.Resize(r.Context(), channel.Winsize{Rows: q.Rows, Cols: q.Cols}); err != nil {
		return fleetProblem(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// maxInput bounds the input of one request, in bytes.
const maxInput = 8 << 20

// input writes the body to the process's input. With the parameter end, its input then ends.
func (h *sandboxesHandler) input(w http.ResponseWriter, r *request) error {
	p, err := h.process(r)
	if err != nil {
		return err
	}
	end, err := r.flag("end")
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxInput+1))
	if err != nil {
		return bad("send it again", "the body could not be read")
	}
	if len(text) > maxInput {
		return access.NewProblem(http.StatusRequestEntityTooLarge, "body", "the body is too long", "send at most "+strconv.Itoa(maxInput)+" bytes in one request")
	}
	if len(text) > 0 {
		if _, err := p.Write(r.Context(), text); err != nil {
			return fleetProblem(err)
		}
	}
	if end {
		if err := p.CloseInput(); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// outputPiece bounds what is sent at a time, in bytes.
const outputPiece = 64 << 10

// output streams an output of a process from an offset on, until the process has ended.
func (h *sandboxesHandler) output(w http.ResponseWriter, r *request) error {
	p, err := h.process(r)
	if err != nil {
		m, run, err := h.records.past(r, err)
		if err != nil {
			return err
		}
		return h.pastOutput(w, r, m, run)
	}
	offset, err := r.number("offset", 0, 1<<62)
	if err != nil {
		return err
	}
	streams := []string{"stdout", "stderr"}
	if p.Command.Terminal != nil {
		streams = []string{"tty", "stderr"}
	}
	name, err := r.oneOf("stream", streams...)
	if err != nil {
		return err
	}
	out, err := p.Output(name)
	if err != nil {
		return fleetProblem(err)
	}
	follow, err := r.flag("follow")
	if err != nil {
		return err
	}
	leave, err := h.enter(r)
	if err != nil {
		return err
	}
	defer leave()
	defer p.Attend()()
	ctx, cancel := context.WithDeadline(r.Context(), streamEnd(time.Now(), r.who.Expires))
	defer cancel()
	if !follow { // what there is now
		cancel()
		return h.pour(ctx, r, newAnswering(w), out, name, int64(offset), func(int64) {})
	}
	hold := out.Hold(int64(offset))
	defer hold.Release()
	return h.pour(ctx, r, newAnswering(w), out, name, int64(offset), hold.Move)
}

// pour sends an output until it or ctx ends, and calls reached with each offset that the client has reached, from which it can resume.
func (h *sandboxesHandler) pour(ctx context.Context, r *request, a *answering, out *fleet.Output, stream string, offset int64, reached func(int64)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-h.ended:
			cancel()
		case <-stop:
		}
	}()
	for {
		b, err := out.Read(ctx, offset, outputPiece)
		missing := new(fleet.Gone)
		switch {
		case errors.As(err, &missing):
			next, err := older(h, r, a, stream, offset, missing)
			if err != nil && !a.begun {
				return err
			}
			if err != nil || next == offset {
				return nil
			}
			offset = next
			reached(offset)
			continue
		case errors.Is(err, fleet.ErrInvalid) && !a.begun:
			return fleetProblem(err)
		}
		a.begin()
		if err != nil || len(b) == 0 {
			return nil
		}
		if a.send(b) != nil {
			return nil // the client has gone, or is too slow
		}
		offset += int64(len(b))
		reached(offset)
	}
}

// older sends from the record what is not in memory any more, and returns the offset that it has reached.
func older(h *sandboxesHandler, r *request, a *answering, stream string, offset int64, missing *fleet.Gone) (int64, error) {
	s, err := h.find(r)
	if err != nil {
		return offset, err
	}
	i := s.Info()
	return h.records.older(r, a, slices.Concat(i.Before, i.Runs), r.PathValue("process"), stream, offset, missing)
}

func write(w io.Writer, b []byte) error {
	_, err := w.Write(b)
	return err
}
