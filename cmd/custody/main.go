//go:build linux

// Custody runs an agent's commands inside a microVM and keeps a verifiable record of their actions.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	_ "time/tzdata" // zones by name, on hosts without a time zone database

	"github.com/custody-project/custody/client/commands"
	"github.com/custody-project/custody/command"
	"github.com/custody-project/custody/egress"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/internal/flock"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/metrics/hostmetrics"
	"github.com/custody-project/custody/outside"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/run/line"
	"github.com/custody-project/custody/service/remote"
)

// cli is the command line. Each command's Run gets the app.
type cli struct {
	runCLI
	Runs     runsCmd     `cmd:"" group:"runs" help:"List the runs, newest first."`
	Timeline timelineCmd `cmd:"" group:"runs" help:"Show what a run did."`
	Note     noteCmd     `cmd:"" group:"runs" help:"Attach a note to a run or to one of its records, signed and under your user name."`
	Notes    notesCmd    `cmd:"" group:"runs" help:"List the notes on a run."`
	Search   searchCmd   `cmd:"" group:"runs" help:"Find records in all runs: a file, a host, a program, a secret, a finding."`
	Serve    serveCmd    `cmd:"" group:"runs" help:"Serve the page and the API until stopped."`
	Token    tokenCmd    `cmd:"" group:"runs" help:"Create, list and delete API tokens."`
	Verify   verifyCmd   `cmd:"" group:"proof" help:"Verify a run or a bundle. Exit status 0: it verifies; 1: it does not; 2: that cannot be determined."`
	Bundle   bundleCmd   `cmd:"" group:"proof" help:"Write all that an auditor needs to verify a run into one file."`
	Export   exportCmd   `cmd:"" group:"store" help:"Export records as OCSF, ECS, CEF or JSON, to stdout or a SIEM."`
	Report   reportCmd   `cmd:"" group:"proof" help:"Write a signed report of the evidence in runs for a framework's controls."`
	Fsck     fsckCmd     `cmd:"" group:"store" help:"Check this host's logs, the store and the checkpoints against each other. Exit status 0: no problem; 1: problems."`
	Rebuild  rebuildCmd  `cmd:"" group:"store" help:"Rebuild the store from the runs' logs."`
	Ship     shipCmd     `cmd:"" group:"store" help:"Ship the segments that the store does not have yet."`
	Prune    pruneCmd    `cmd:"" group:"store" help:"Apply the retention settings of host.yaml: remove segments that the store has, and runs older than delete_after."`
	Hold     holdCmd     `cmd:"" group:"store" help:"Prevent retention from deleting a run, release it, or list the held runs."`
	Erase    eraseCmd    `cmd:"" group:"store" help:"Erase a record's contents; its hash stays, so proofs still verify."`
	Ingest   ingestCmd   `cmd:"" group:"store" help:"Ingest segments from NATS into a store until stopped."`
	Monitor  monitorCmd  `cmd:"" group:"proof" help:"Read another host's log entry by entry, and report a fork of its history."`
	Witness  witnessCmd  `cmd:"" group:"proof" help:"Cosign other hosts' checkpoints until stopped."`
	Key      keyCmd      `cmd:"" group:"proof" help:"Show or change this host's signing key."`
	Notify   notifyCmd   `cmd:"" group:"run" help:"Try, list and deliver the notifications of host.yaml."`
	Template templateCmd `cmd:"" group:"run" help:"Make, list and remove templates of sandboxes."`
	Project  projectCmd  `cmd:"" group:"run" help:"Register, list, show and withdraw project files that runs can only narrow."`
	Trust    trustCmd    `cmd:"" group:"run" help:"Accept a project file's requests for access outside the sandbox."`
	Policy   policyCmd   `cmd:"" group:"run" help:"Check a project's file."`
	Secrets  secretsCmd  `cmd:"" group:"run" help:"Check the sources of a project's secrets."`
	Pause    pauseCmd    `cmd:"" group:"run" help:"Revoke a live run's credentials and freeze its sandbox, which keeps its memory. (custody sandbox pause is for sandboxes of a service.)"`
	Resume   resumeCmd   `cmd:"" group:"run" help:"Continue a run that custody pause froze."`
	Snapshot snapshotCmd `cmd:"" group:"run" help:"Write the memory of a live run's sandbox to a file, unless it contains a credential."`
	Redteam  redteamCmd  `cmd:"" group:"host" help:"Attack a sandbox with the probes of the suite. Exit status 0: all were blocked and recorded; 1: not all."`
	World    worldCmd    `cmd:"" group:"host" help:"Run a command against a simulated internet, to test a policy offline."`
	Host     hostCmd     `cmd:"" group:"host" help:"Make sandboxes and sign records for custody serve, which then needs no privileges, until stopped."`
	Doctor   doctorCmd   `cmd:"" group:"host" help:"Report what this host supports and which isolation a run gets."`
	Version  versionCmd  `cmd:"" group:"host" help:"Print the version."`
	Help     helpCmd     `cmd:"" group:"host" help:"Show the help of a command."`

	commands.All

	Completion completionCmd `cmd:"" group:"host" help:"Print the code that sets up tab completion in a shell."`
	Man        manCmd        `cmd:"" group:"host" help:"Print the manual page, for man(1)."`
}

// runCLI is the command line of `custody run`.
type runCLI = line.CLI[runCmd]

// app is shared by the commands: their input and output, and the location of the state.
type app struct {
	ctx     context.Context
	stdin   *os.File
	stdout  io.Writer
	stderr  io.Writer
	store   string        // from --store
	hostd   *hostd.Client // see privileged
	outside host.Outside
	// command is the called command, such as "custody key rotate".
	command string
	*console.Messages
}

// newApp returns an app whose messages go to stderr.
func newApp(ctx context.Context, stdin *os.File, stdout, stderr io.Writer) *app {
	a := &app{ctx: ctx, stdin: stdin, stdout: stdout, stderr: stderr}
	a.Messages = command.NewMessages(stderr, func() string { return a.command })
	return a
}

// env is what commands use of the process.
func (a *app) env() *command.Env {
	return &command.Env{Messages: a.Messages, Stdout: a.stdout, Layout: a.layout(), Dir: a.dir, OpenDir: a.opener(), Outside: a.outside, Store: a.store, Replace: regular.Replace}
}

// dir returns the directory of the host's state, which ordinary users cannot open where it is a service's.
func (a *app) dir() (string, error) {
	if os.Geteuid() != 0 && remote.Socket(os.Getenv) != "" {
		return "", &remote.NotServed{Command: a.command}
	}
	return host.Dir()
}

// perform executes a command, or has the service execute it.
func (a *app) perform(c command.Command) error {
	socket := remote.Socket(os.Getenv)
	switch {
	case socket == "":
		return c.Execute(a.ctx, a.env())
	case a.store != "":
		return command.Usage(errors.New("--store: the service uses the store of its host; " + remote.SocketEnv + "=none does without the service"))
	}
	return command.Client{Socket: socket, Env: a.env()}.Execute(a.ctx, c)
}

// knownKeys returns the public keys that the host knows.
func (a *app) knownKeys() (host.PublicKeys, error) {
	if socket := remote.Socket(os.Getenv); socket != "" {
		return command.Client{Socket: socket, Env: a.env()}.KnownKeys(a.ctx)
	}
	return a.env().KnownKeys()
}

// layout formats tables for their destination: width and colour only for a terminal.
func (a *app) layout() replay.Options {
	width, ok := console.TerminalWidth(a.stdout)
	if !ok {
		return replay.Options{}
	}
	return replay.Options{Width: width, Color: os.Getenv("NO_COLOR") == ""}
}

// exitCode ends the program with a code and no message.
type exitCode = command.Exit

const (
	exitFailed = 125 // of Custody itself, unless the command defines another code
	exitUsage  = 125
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == hostd.WorkerArg {
		os.Exit(hostd.Worker())
	}
	if len(os.Args) == 2 && os.Args[1] == outside.Arg {
		os.Exit(outside.Main())
	}
	os.Exit(execute(os.Args[1:]))
}

func execute(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // after the first signal commands end in order; the second kills the process
	stderr, err := console.OwnStderr()
	if err != nil {
		fmt.Fprintln(os.Stderr, "custody:", err)
		return exitFailed
	}
	stdout := console.NewOutput(ctx, os.Stdout)
	a := newApp(ctx, os.Stdin, stdout, console.NewOutput(ctx, stderr))
	a.ctx = flock.WithNotice(ctx, a.Say)
	if run.RequireRoot() == nil {
		processes := outside.New()
		defer processes.Close()
		a.outside = processes.Host()
	}
	if err := console.ForbidCores(); err != nil { // most commands may hold the signing key
		a.Complain(err)
		return exitFailed
	}
	a.Adopt()
	var c cli
	done := false
	var grammar any = &c
	if len(args) > 0 && args[0] == "run" {
		grammar = &c.runCLI
	}
	parser := newParser(grammar, a.stdout, a.stderr, func() { done = true })
	if answerCompletion(parser); done {
		return 0
	}
	words, err := parser.Parse(args)
	if done { // help or the version was printed
		return 0
	}
	if err != nil {
		a.Complain(parseMisuse(err))
		return exitUsage
	}
	a.store = c.Store
	if err := sweep(a.ctx); err != nil {
		a.Complain(err)
	}
	a.command = words.Selected().FullPath()
	code := a.code(words.Run(a, a.caller()))
	if err := stdout.Err(); err != nil && code == 0 { // the output is incomplete
		a.Complain(err)
		return exitFailed
	}
	return code
}

// sweep undoes what killed runs have changed of the host's network, if this process has the privileges.
func sweep(ctx context.Context) error {
	if run.RequireRoot() != nil {
		return nil // then runs cannot have changed anything
	}
	return egress.Sweep(ctx)
}

// caller is what the commands for services on other machines use of the process.
func (a *app) caller() *commands.Env {
	return &commands.Env{Context: a.ctx, Stdin: a.stdin, Stdout: a.stdout, Stderr: a.stderr, Say: a.Say}
}

// code prints an error and returns the program's exit code.
func (a *app) code(err error) int {
	if exit := commands.Exit(0); errors.As(err, &exit) {
		return int(exit)
	}
	return a.env().Code(err)
}

// open opens $CUSTODY_HOME and cleans up after killed runs.
func (a *app) open() (*host.Host, error) { return a.env().Open(a.ctx) }

// home opens $CUSTODY_HOME.
func (a *app) home() (*host.Host, error) { return a.env().Home() }

// meter serves this process's metrics at address. It returns nil, which measures nothing, if address is empty.
func (a *app) meter(address string) (*hostmetrics.Meters, error) {
	return hostmetrics.Serve(a.ctx, address, version(), a.Complain)
}

type versionCmd struct{}

func (versionCmd) Run(a *app) error {
	_, err := fmt.Fprintln(a.stdout, "custody", version())
	return err
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
