package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/hostd"
)

// callers is how many start sandboxes concurrently, more than the pool has.
const callers = 8

// firsts measures n times how long it takes from the creation of a sandbox over the API to the exit of its first process, alternating
// with n runs of command, which does the same through the socket of the service; and then the same with several callers.
func firsts(ctx context.Context, page *client.Client, host *hostd.Client, command []string, n int) error {
	kinds := []struct {
		name string
		run  func() error
	}{
		{"API", func() error { return first(ctx, page) }},
		{"custody run", func() error { return runCommand(ctx, command) }},
	}
	for _, c := range []int{1, callers} {
		took := make([][]time.Duration, len(kinds))
		for range (n + c - 1) / c {
			for i, kind := range kinds {
				if err := await(ctx, host); err != nil {
					return err
				}
				some, err := concurrently(c, kind.run)
				if err != nil {
					return fmt.Errorf("%s: %w", kind.name, err)
				}
				took[i] = append(took[i], some...)
			}
		}
		for i, kind := range kinds {
			fmt.Printf("from creation to exit, %d callers, %s: %s\n", c, kind.name, summary(took[i]))
		}
	}
	return nil
}

// concurrently calls f n times and returns how long each call took.
func concurrently(n int, f func() error) ([]time.Duration, error) {
	took, errs := make([]time.Duration, n), make([]error, n)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			from := time.Now()
			errs[i] = f()
			took[i] = time.Since(from)
		})
	}
	calls.Wait()
	return took, errors.Join(errs...)
}

// first creates a sandbox, runs a process in it, and destroys it in the background, as the runs of the service do.
func first(ctx context.Context, page *client.Client) error {
	box, err := page.Create(ctx, client.SandboxRequest{})
	if err != nil {
		return err
	}
	defer func() {
		go func() {
			if err := box.Destroy(ctx); err != nil {
				fmt.Fprintln(os.Stderr, "warm: destroy a sandbox:", err)
			}
		}()
	}()
	p, err := box.Start(ctx, client.ProcessRequest{Argv: []string{"true"}})
	if err != nil {
		return err
	}
	return succeed(ctx, p)
}

// succeed waits for the end of a process.
func succeed(ctx context.Context, p *client.Process) error {
	exit, err := p.Wait(ctx)
	if err == nil && (exit.ExitCode == nil || *exit.ExitCode != 0) {
		err = fmt.Errorf("the process ended with %+v", exit)
	}
	return err
}

func runCommand(ctx context.Context, command []string) error {
	text, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	return nil
}

// streamed is the size of an output, in bytes.
const streamed = 256 << 20

// outputs are commands that write that much, each after a byte of its own: the time begins with the output, not with what it is made from.
var outputs = []struct{ pieces, script string }{
	{"small", fmt.Sprintf("echo; yes 'a line of output, which the redactor reads' | head -c %d", streamed)},
	{"large", fmt.Sprintf("f=/tmp/lines$$; yes 'a line of output, which the redactor reads' | head -c %d >$f; echo; cat $f $f $f $f; rm $f", streamed/4)},
}

// stream measures how fast the output of processes comes, against that of commands which write the same in sandboxes of runsc alone, by turns.
// The record has the outputs of the sandbox up to the project's record.output, a part of the first one.
func stream(ctx context.Context, page *client.Client, runsc string) (err error) {
	box, err := page.Create(ctx, client.SandboxRequest{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Destroy(ctx)) }()
	for _, o := range slices.Concat(outputs, outputs) {
		writes := []string{"sh", "-c", o.script}
		p, err := box.Start(ctx, client.ProcessRequest{Argv: writes})
		if err != nil {
			return err
		}
		ours, err := rate(p.Output(ctx, client.Stdout))
		if err != nil {
			return err
		}
		if err := succeed(ctx, p); err != nil {
			return err
		}
		do := exec.CommandContext(ctx, runsc, append([]string{"--network=none", "do"}, writes...)...)
		pipe, err := do.StdoutPipe()
		if err != nil {
			return err
		}
		if err := do.Start(); err != nil {
			return err
		}
		theirs, err := rate(pipe)
		if err := errors.Join(err, do.Wait()); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(do.Args, " "), err)
		}
		fmt.Printf("output of a process in %s pieces, over the API: %.1f MB/s; from runsc into a pipe: %.1f MB/s\n", o.pieces, ours, theirs)
	}
	return nil
}

// rate reads an output to its end, and returns how fast it came after its first byte, in MB/s.
func rate(r io.Reader) (float64, error) {
	if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
		return 0, err
	}
	from := time.Now()
	size, err := io.Copy(io.Discard, r)
	if err == nil && size != streamed {
		err = fmt.Errorf("%d bytes in place of %d", size, streamed)
	}
	return float64(size) / 1e6 / time.Since(from).Seconds(), err
}
