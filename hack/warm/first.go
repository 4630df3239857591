package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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

// streamed is the size of the output that stream reads, in bytes.
const streamed = 256 << 20

// stream measures how fast the output of a process comes, against that of a command which writes the same in a sandbox of runsc alone.
func stream(ctx context.Context, page *client.Client, runsc string) (err error) {
	writes := []string{"sh", "-c", fmt.Sprintf("yes 'a line of output, which the redactor reads' | head -c %d", streamed)}
	box, err := page.Create(ctx, client.SandboxRequest{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Destroy(ctx)) }()
	rate := func(size int64, from time.Time) float64 { return float64(size) / 1e6 / time.Since(from).Seconds() }
	from := time.Now()
	p, err := box.Start(ctx, client.ProcessRequest{Argv: writes})
	if err != nil {
		return err
	}
	size, err := io.Copy(io.Discard, p.Output(ctx, client.Stdout))
	if err != nil {
		return err
	}
	ours := rate(size, from)
	if err := succeed(ctx, p); err != nil {
		return err
	}
	var count counter
	do := exec.CommandContext(ctx, runsc, append([]string{"--network=none", "do"}, writes...)...)
	do.Stdout = &count
	from = time.Now()
	if err := do.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(do.Args, " "), err)
	}
	fmt.Printf("output of a process over the API: %.1f MB/s, %d of %d bytes; from runsc into a pipe: %.1f MB/s\n", ours, size, streamed, rate(int64(count), from))
	return nil
}

// counter counts what is written to it.
type counter int64

// Write implements io.Writer.
func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}
