package commands

import (
	"context"
	"io"

	"github.com/custody-project/custody/client"
)

// LogsCmd prints the output of a process.
type LogsCmd struct {
	Follow  bool   `short:"f" help:"Continue until the process has ended."`
	Stream  string `enum:",stdout,stderr,tty" default:"" help:"Only this output: stdout, stderr, or tty for a process with a terminal."`
	Offset  int64  `placeholder:"BYTE" help:"Begin at this byte of the output (with --stream, or the standard output)."`
	Sandbox string `arg:"" help:"The ID of the sandbox."`
	Process string `arg:"" optional:"" help:"The name of the process, as custody ps prints it (default: the last one that was started)."`
	Service
}

// Run prints standard output to standard output, and standard error to standard error.
func (c LogsCmd) Run(e *Env) error {
	service, err := c.client()
	if err != nil {
		return err
	}
	box := service.Sandbox(c.Sandbox)
	p, err := c.process(e.Context, box)
	if err != nil {
		return explain(err)
	}
	outputs := map[string]io.Writer{client.Stdout: e.Stdout, client.Stderr: e.Stderr}
	switch {
	case p.Terminal != nil:
		outputs = map[string]io.Writer{client.TTY: e.Stdout}
	case c.Offset != 0 && c.Stream == "":
		delete(outputs, client.Stderr)
	}
	if c.Stream != "" {
		outputs = map[string]io.Writer{c.Stream: e.Stdout}
	}
	ctx, cancel := context.WithCancel(e.Context)
	defer cancel()
	errs := make(chan error, len(outputs))
	for stream, w := range outputs {
		o := box.Process(p.Name).OutputFrom(ctx, stream, c.Offset)
		if !c.Follow {
			o = box.Process(p.Name).OutputSoFar(ctx, stream, c.Offset)
		}
		go func() {
			_, err := io.Copy(w, o)
			errs <- err
		}()
	}
	for range outputs {
		if err := <-errs; err != nil {
			return explain(err)
		}
	}
	return nil
}

// process returns the process that is named, or the last one.
func (c LogsCmd) process(ctx context.Context, box *client.Box) (p client.StartedProcess, err error) {
	if c.Process != "" {
		return box.Process(c.Process).Info(ctx)
	}
	list, err := box.Processes(ctx)
	if err != nil {
		return p, err
	}
	if len(list) == 0 {
		return p, failure("custody exec starts one", "the sandbox %s has had no process", c.Sandbox)
	}
	return list[len(list)-1], nil
}
