package service

import (
	"context"
	"errors"
	"os"
	"strings"
	"unicode"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/service/remote"
)

// caller is the client of a run, as the run sees it. Its methods are safe for concurrent use. They return at the latest when the
// connection has ended.
type caller struct {
	conn *privsep.Conn
	ctx  context.Context // of the run
}

// call calls the client, also after the run was cancelled. A client that has gone gets no message.
func (u *caller) call(name string, args, result any, files ...*os.File) error {
	got, err := u.conn.Call(context.WithoutCancel(u.ctx), name, args, result, files...)
	for _, f := range got {
		f.Close()
	}
	return err
}

func (u *caller) notice(text string)   { _ = u.call(remote.CallNotice, remote.Clip(text), nil) }
func (u *caller) progress(text string) { _ = u.call(remote.CallProgress, remote.Clip(text), nil) }
func (u *caller) problem(err error)    { _ = u.call(remote.CallProblem, failureOf(err), nil) }

// notices is a writer whose lines become notices.
type notices struct{ *caller }

// Write implements io.Writer.
func (n notices) Write(p []byte) (int, error) {
	n.notice(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

// attach connects the run's steps to the client. A client that does not answer loses its connection or its run is cancelled, so
// that the run ends.
func (u *caller) attach(s *session, json bool) (run.Console, func()) {
	p, err := openPipes()
	if err != nil {
		u.problem(err)
		return run.Console{}, func() {}
	}
	var a remote.Attached
	err = u.call(remote.CallAttach, remote.None{}, &a, p.theirs...)
	p.closeTheirs()
	if err == nil && !validTerm(a.Term) {
		err = errors.New("the type of the terminal is not valid")
	}
	if err != nil {
		s.conn.Close() // it has no console
	}
	console := run.Console{
		Stdin: p.stdin, Stdout: p.stdout, Stderr: p.stderr, Live: a.Live, Window: a.Window, Term: a.Term, Signals: s.signals, Resizes: s.resizes,
	}
	if json {
		console.Stdout, console.Stderr = nil, nil
	}
	return console, func() {
		p.close()
		_ = u.call(remote.CallDetach, remote.None{}, nil)
	}
}

// validTerm reports whether text can be the value of TERM.
func validTerm(text string) bool {
	return len(text) <= 64 && strings.IndexFunc(text, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsGraphic(r) }) < 0
}

// pipes connect a run to its client. Each end is a file of its own: what a client does to the flags of its ends does not change ours.
type pipes struct {
	stdin          *os.File // our ends
	stdout, stderr *os.File
	theirs         []*os.File
}

func openPipes() (p *pipes, err error) {
	p = &pipes{}
	defer func() {
		if err != nil {
			p.closeTheirs()
			p.close()
		}
	}()
	for _, ours := range []**os.File{&p.stdin, &p.stdout, &p.stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		theirs := r
		if *ours = w; ours == &p.stdin {
			*ours, theirs = r, w
		}
		p.theirs = append(p.theirs, theirs)
	}
	return p, nil
}

func (p *pipes) closeTheirs() {
	for _, f := range p.theirs {
		f.Close()
	}
}

func (p *pipes) close() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if f != nil {
			f.Close()
		}
	}
}

// records sends the records of the run.
func (u *caller) records(logs host.RunLogs, id string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		err := u.call(remote.CallRecords, remote.None{}, nil, r)
		r.Close()
		sent <- err
	}()
	err = run.WriteRecords(w, logs, id)
	w.Close()
	return errors.Join(err, <-sent)
}
