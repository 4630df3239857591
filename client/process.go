package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// The outputs of a process. One with a terminal has only TTY.
const (
	Stdout = "stdout"
	Stderr = "stderr"
	TTY    = "tty"
)

// Process is a process of a sandbox. It is safe for concurrent use.
type Process struct {
	Name string
	box  *Box
}

// Start starts a process, and the sandbox if that is only promised. It waits until the sandbox is live, which can take long while others are
// queued before it: ctx bounds that time.
func (b *Box) Start(ctx context.Context, r ProcessRequest) (*Process, error) {
	var s StartedProcess
	if err := b.client.call(ctx, http.MethodPost, b.path("processes"), nil, r, &s, nil); err != nil {
		return nil, err
	}
	return b.Process(s.Name), nil
}

// Process returns the process with a name, which need not exist.
func (b *Box) Process(name string) *Process { return &Process{name, b} }

// Processes returns the processes of the sandbox, in the order of their start.
func (b *Box) Processes(ctx context.Context) ([]StartedProcess, error) {
	var list struct{ Processes []StartedProcess }
	err := repeat(ctx, func() error { return b.client.call(ctx, http.MethodGet, b.path("processes"), nil, nil, &list, nil) })
	return list.Processes, err
}

// Info returns the description of the process.
func (p *Process) Info(ctx context.Context) (StartedProcess, error) { return p.info(ctx, 0, attempts) }

// info waits for the end of the process, at most for some seconds.
func (p *Process) info(ctx context.Context, wait, attempts int) (s StartedProcess, err error) {
	var query url.Values
	if wait > 0 {
		query = url.Values{"wait": {strconv.Itoa(wait)}}
	}
	err = repeatFor(ctx, attempts, func() error { return p.box.client.call(ctx, http.MethodGet, p.path(), query, nil, &s, nil) })
	return s, err
}

// longestWait is how long one request waits for the end of a process, in seconds. It is below the limits of common proxies.
const longestWait = 25

// Wait waits for the end of the process, and returns its description.
func (p *Process) Wait(ctx context.Context) (StartedProcess, error) {
	for {
		s, err := p.info(ctx, longestWait, patience)
		if err != nil || s.Ended != nil {
			return s, err
		}
	}
}

// Write writes to the input of the process. It returns when the process or its pipe has it.
func (p *Process) Write(ctx context.Context, b []byte) error { return p.input(ctx, b, false) }

// CloseInput ends the input of the process.
func (p *Process) CloseInput(ctx context.Context) error { return p.input(ctx, nil, true) }

func (p *Process) input(ctx context.Context, b []byte, end bool) error {
	query := url.Values{}
	if end {
		query.Set("end", "true")
	}
	header := http.Header{"Content-Type": {"application/octet-stream"}}
	res, err := p.box.client.open(ctx, http.MethodPost, p.path("input"), query, b, header)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// Signal sends a signal, such as SIGTERM, to the process and its group.
func (p *Process) Signal(ctx context.Context, name string) error {
	return p.box.client.call(ctx, http.MethodPost, p.path("signal"), nil, SignalRequest{name}, nil, nil)
}

// Resize sets the size of the process's terminal.
func (p *Process) Resize(ctx context.Context, rows, cols uint16) error {
	return p.box.client.call(ctx, http.MethodPost, p.path("resize"), nil, TerminalState{Rows: rows, Cols: cols}, nil, nil)
}

func (p *Process) path(parts ...string) []string {
	return p.box.path(append([]string{"processes", p.Name}, parts...)...)
}

// Output returns a reader of an output of the process, from its beginning to its end. It continues where it was when a connection breaks.
func (p *Process) Output(ctx context.Context, stream string) io.Reader {
	return p.OutputFrom(ctx, stream, 0)
}

// OutputFrom is Output from a byte of the redacted output on.
func (p *Process) OutputFrom(ctx context.Context, stream string, offset int64) io.Reader {
	return &output{ctx: ctx, process: p, stream: stream, offset: offset, follow: true}
}

// OutputSoFar is OutputFrom to the end of what there is now.
func (p *Process) OutputSoFar(ctx context.Context, stream string, offset int64) io.Reader {
	return &output{ctx: ctx, process: p, stream: stream, offset: offset}
}

// output reads an output of a process.
//
//	            request               connection broken, or the service ended the answer
//	idle -----------------> reading ------------------------------------------------------> idle
//	 |                         |                          the process has ended, nothing is left
//	 +-- refused: error        +------------------------------------------------------------> end of file
type output struct {
	ctx     context.Context
	process *Process
	stream  string
	offset  int64
	follow  bool          // until the process has ended
	body    io.ReadCloser // nil: there is no connection
	failed  int           // attempts without progress
	err     error
}

// Read implements io.Reader.
func (o *output) Read(b []byte) (int, error) {
	for o.err == nil {
		if o.body == nil {
			o.err = o.connect()
			continue
		}
		n, err := o.body.Read(b)
		if o.offset += int64(n); n > 0 {
			o.failed = 0
		}
		if err != nil {
			o.body.Close()
			o.body = nil
			o.err = o.ended(err)
		}
		if n > 0 {
			return n, nil
		}
	}
	if o.body != nil {
		o.body.Close()
		o.body = nil
	}
	return 0, o.err
}

// connect asks for the output from the offset on.
func (o *output) connect() error {
	return repeatFor(o.ctx, patience, func() error {
		query := url.Values{"offset": {strconv.FormatInt(o.offset, 10)}, "follow": {strconv.FormatBool(o.follow)}, "stream": {o.stream}}
		res, err := o.process.box.client.open(o.ctx, http.MethodGet, o.process.path("output"), query, nil, nil)
		if err == nil {
			o.body = res.Body
		}
		return err
	})
}

// ended returns io.EOF if the output has ended, an error if the connection breaks again and again, and nil to connect again.
func (o *output) ended(err error) error {
	if o.ctx.Err() != nil {
		return context.Cause(o.ctx)
	}
	if !errors.Is(err, io.EOF) {
		if o.failed++; o.failed < attempts {
			return nil
		}
		return err
	}
	if !o.follow {
		return err
	}
	s, err := o.process.info(o.ctx, 0, patience)
	if err != nil {
		return err
	}
	if s.Ended == nil {
		return nil // the service ends each answer after some minutes
	}
	if o.failed++; o.failed < 2 { // what came between the answer's end and the process's
		return nil
	}
	return io.EOF
}
