// Command loadtest puts the record under load. It is a tool for those who work on
// Custody; nothing installs it.
//
//	loadtest write    records events of a made-up run and names which were acknowledged
//	loadtest tidy     closes what died and carries what was left into the store
//	loadtest report   measures, in one run, against bare loops over the same bytes
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// command is what one subcommand does; flags are parsed before run.
type command struct {
	name string
	make func(*flag.FlagSet) (run func(context.Context) error)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := dispatch(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "loadtest:", err)
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, args []string) error {
	commands := []command{{"write", writeCommand}, {"tidy", tidyCommand}, {"report", reportCommand}}
	for _, c := range commands {
		if len(args) == 0 || args[0] != c.name {
			continue
		}
		flags := flag.NewFlagSet("loadtest "+c.name, flag.ExitOnError)
		run := c.make(flags)
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return run(ctx)
	}
	return fmt.Errorf("want one of: write, tidy, report; each has -h")
}
