// Warm measures the sandboxes of a running service, for bench-service: how long an acquire of a warm sandbox takes, how many sandboxes the
// pool makes in a second while each is taken immediately, how long processes and first processes take over the API, and how fast output comes.
//
//	warm HOST-SOCKET PAGE TOKEN TIER N RUNSC COMMAND...
//
// COMMAND runs a command in a sandbox through the socket of the service.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/project"
)

func main() {
	if err := measure(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "warm:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, args []string) error {
	if len(args) < 7 {
		return errors.New("usage: warm HOST-SOCKET PAGE TOKEN TIER N RUNSC COMMAND [ARG...]")
	}
	n, err := strconv.Atoi(args[4])
	if err != nil || n < 1 {
		return fmt.Errorf("the number %q is not positive", args[4])
	}
	page, err := client.New(args[1], args[2])
	if err != nil {
		return err
	}
	if err := processes(ctx, page, n); err != nil {
		return fmt.Errorf("processes: %w", err)
	}
	host := hostd.NewClient(args[0])
	if err := firsts(ctx, page, host, args[6:], n/2); err != nil {
		return fmt.Errorf("first processes: %w", err)
	}
	if err := stream(ctx, page, args[5]); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	if err := acquires(ctx, host, args[3], n); err != nil {
		return fmt.Errorf("acquires: %w", err)
	}
	return nil
}

// acquires takes n warm sandboxes, each as soon as there is one, and gives them back.
func acquires(ctx context.Context, host *hostd.Client, tier string, n int) error {
	var took []time.Duration
	began := time.Now()
	for len(took) < n {
		if err := await(ctx, host); err != nil {
			return err
		}
		from := time.Now()
		cold, err := acquire(ctx, host, tier)
		if err != nil {
			return err
		}
		if !cold {
			took = append(took, time.Since(from))
		}
	}
	all := time.Since(began)
	fmt.Printf("acquire: %s; %.2f refills/s\n", summary(took), float64(n)/all.Seconds())
	return nil
}

// acquire takes a sandbox, and gives it back in the background. cold reports that it was made for the call.
func acquire(ctx context.Context, host *hostd.Client, tier string) (cold bool, err error) {
	l := project.Default().Limits
	ignore := func(string) {}
	s, details, err := host.Open(ctx, hostd.Spec{Template: project.Default().Template, Tier: tier, CPUs: l.CPUs, Memory: l.Memory, Disk: l.Disk},
		hostd.Events{Notice: ignore, Progress: ignore, Stalled: func(error) {}, Resumed: func() {}})
	if err != nil {
		return false, err
	}
	go func() { // the service does the same
		if err := s.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "warm: give a sandbox back:", err)
		}
	}()
	return details.Cold != "", nil
}

// await waits until the pool has a warm sandbox.
func await(ctx context.Context, host *hostd.Client) error {
	for limit := time.Now().Add(2 * time.Minute); time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
		text, err := host.Metrics(ctx)
		if err != nil {
			return err
		}
		const idle = "custody_pool_sandboxes{state=\"idle\"} "
		if _, number, ok := strings.Cut(string(text), idle); ok && !strings.HasPrefix(number, "0") {
			return nil
		}
	}
	return errors.New("the pool made no sandbox in two minutes: see the log of custody host")
}

// processes runs n processes in one sandbox, one after the other.
func processes(ctx context.Context, page *client.Client, n int) (err error) {
	box, err := page.Create(ctx, client.SandboxRequest{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Destroy(ctx)) }()
	var took []time.Duration
	for range n + 1 {
		from := time.Now()
		p, err := box.Start(ctx, client.ProcessRequest{Argv: []string{"true"}})
		if err != nil {
			return err
		}
		if err := succeed(ctx, p); err != nil {
			return err
		}
		took = append(took, time.Since(from))
	}
	fmt.Printf("process in a live sandbox: first %.1f ms, then %s\n", milliseconds(took[0]), summary(took[1:]))
	return nil
}

// summary returns the median and the 99th percentile.
func summary(took []time.Duration) string {
	slices.Sort(took)
	return fmt.Sprintf("p50 %.1f, p99 %.1f ms, of %d", milliseconds(took[len(took)/2]), milliseconds(took[len(took)*99/100]), len(took))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
