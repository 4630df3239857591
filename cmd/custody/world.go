package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/redact/pattern"
	"github.com/custody-project/custody/redteam/simnet"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/secrets"
	"github.com/custody-project/custody/secrets/local"
)

type worldCmd struct {
	Hosts   bool     `help:"List the hosts of the simulated internet, and do nothing else."`
	Command []string `arg:"" optional:"" passthrough:"partial" help:"The command and its arguments, after --."`
}

// Run runs a command on a host of its own in the red team's simulated internet, and reports what was seen outside that host.
func (c worldCmd) Run(a *app) (err error) {
	if c.Hosts {
		return writeHosts(a.stdout, simnet.Hosts())
	}
	if err := run.RequireRoot(); err != nil {
		return err
	}
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	if len(c.Command) == 0 {
		return usageError{errors.New("give a command after --, such as: custody world -- custody run -- true")}
	}
	w, err := simnet.New(a.ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := w.UseResolver(); err != nil {
		a.Complain(err) // a project that names resolvers needs none of the host's
	}
	path := policyOf(c.Command)
	p, err := project.Load(a.ctx, path)
	if err != nil {
		p = project.File{} // the command reports what is wrong with it
	}
	red, err := a.worldRedactor(w, p, filepath.Dir(path))
	if err != nil {
		return err
	}
	a.Mask = red.String
	code, err := a.inWorld(w, c.Command)
	if err != nil {
		return err
	}
	if err := a.reportSeen(w, red, p); err != nil {
		return err
	}
	return exitCode(code)
}

// writeHosts writes a table of hosts.
func writeHosts(out io.Writer, hosts []simnet.Host) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "HOST\tPORTS\tADDRESSES\tWHAT")
	for _, h := range hosts {
		addrs := make([]string, len(h.Addrs))
		for i, a := range h.Addrs {
			addrs[i] = a.String()
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", h.Name, strings.Join(h.Ports, ","), strings.Join(addrs, ","), h.What)
	}
	return table.Flush()
}

// worldRedactor knows the key of the world's model, those values of the command's project that can be read without minting,
// and patterns of secrets. dir is that of the project's file.
func (a *app) worldRedactor(w *simnet.Network, p project.File, dir string) (*redact.Redactor, error) {
	h, err := a.home()
	if err != nil {
		return nil, err
	}
	tag, err := h.TagKey()
	if err != nil {
		return nil, err
	}
	red, err := pattern.NewRedactor(tag)
	if err != nil {
		return nil, err
	}
	if err := red.Add("world-llm-key", []byte(w.ModelKey())); err != nil {
		return nil, err
	}
	values, _ := local.Broker{}.ReadValues(secrets.Request{Bindings: run.Bindings(p), Dir: dir})
	for name, value := range values {
		if err := red.Add(name, value); err != nil {
			a.Say("the secret " + name + " is not masked here: " + err.Error())
		}
	}
	return red, nil
}

// policyOf returns the path of the project's file of a custody command.
func policyOf(argv []string) string {
	for i, arg := range argv {
		if path, ok := strings.CutPrefix(arg, "--policy="); ok {
			return path
		}
		if arg == "--policy" && i+1 < len(argv) {
			return argv[i+1]
		}
	}
	return project.Name
}

// inWorld runs a command that trusts the world's authority, and has the key of its model in
// WORLD_LLM_KEY.
func (a *app) inWorld(w *simnet.Network, argv []string) (code int, err error) {
	dir, err := os.MkdirTemp("", "custody-world-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, w.CA(), 0o644); err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(a.ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.stdin, console.Inherited(a.stdout), console.Inherited(a.stderr)
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+ca, "WORLD_LLM_KEY="+w.ModelKey())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	err = w.Run(cmd)
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return 0, fmt.Errorf("run %s: %w", argv[0], err)
	}
	return cmd.ProcessState.ExitCode(), nil
}

// reportSeen reports the requests that servers got and what reached the attacker. What was seen of a packet is its beginning
// only, and masked before it is shortened. The DNS queries of the project's own resolver are reported apart: the policy allows them.
func (a *app) reportSeen(w *simnet.Network, red *redact.Redactor, p project.File) error {
	for _, r := range w.Requests() {
		a.Say(fmt.Sprintf("a server got: %s %s%s", r.Method, r.Host, r.URI))
	}
	own, err := newOwnDNS(p)
	if err != nil {
		return err
	}
	attacks := 0
	said := map[string]bool{}
	for _, s := range w.Seen() {
		if text := own.describe(s); text != "" {
			if !said[text] {
				a.Say(text)
			}
			said[text] = true
			continue
		}
		attacks++
		s.Text = red.Cut(s.Text)
		a.Say("the attacker saw: " + s.String())
	}
	if attacks == 0 && w.Lost() == 0 {
		a.Say("the attacker saw nothing")
	}
	return nil
}

// ownDNS recognizes the DNS queries that the gateway makes for a project's rules.
type ownDNS struct {
	policy    *netpolicy.Policy
	resolvers []netip.AddrPort // that the project names
}

func newOwnDNS(p project.File) (own ownDNS, err error) {
	if own.policy, err = p.Policy(); err != nil || len(p.Resolvers) == 0 {
		return own, err
	}
	servers, err := run.Resolvers(p)
	for _, s := range servers {
		own.resolvers = append(own.resolvers, s.Addr)
	}
	return own, err
}

// describe returns a line about a query of the gateway's, "" for any other sighting. A query for a name that a rule allows is
// the gateway's; if it went to another resolver than the world's, the attacker's sighting of its packet shows that.
func (o ownDNS) describe(s simnet.Sighting) string {
	to := netip.AddrPortFrom(s.Dst.Addr().Unmap(), s.Dst.Port())
	switch {
	case s.Where == simnet.AtResolver:
		if name, _, _ := strings.Cut(s.Text, " "); len(o.policy.Match(name)) > 0 {
			return "the gateway looked up " + name + ", which the policy allows; custody world --hosts lists the hosts that are here"
		}
	case slices.Contains(o.resolvers, to):
		return "the gateway asked the resolver " + to.String() + ", which is not here: leave resolvers out of the project's file, or name udp://" + simnet.Resolver4.String()
	}
	return ""
}
