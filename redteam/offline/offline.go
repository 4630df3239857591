// Package offline runs one command against the simulated internet and reports the traffic that was observed outside the
// command's host, with the secrets of its project masked.
package offline

import (
	"context"
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

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/redact/pattern"
	"github.com/custody-project/custody/redteam/simnet"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/secrets"
	"github.com/custody-project/custody/secrets/local"
)

// Session is a simulated internet with the host on which one command runs. It is not safe for concurrent use.
type Session struct {
	// Problems are errors that do not prevent the command from running.
	Problems []error

	net      *simnet.Network
	argv     []string
	project  project.File
	redactor *redact.Redactor
}

// New makes the simulated internet for a command. If the command is custody with --policy, the project file determines
// the secrets that are masked and the traffic that is expected. h has the key for tags of masked values.
func New(ctx context.Context, h *host.Host, argv []string) (*Session, error) {
	tag, err := h.TagKey()
	if err != nil {
		return nil, err
	}
	n, err := simnet.New(ctx)
	if err != nil {
		return nil, err
	}
	s := &Session{net: n, argv: argv}
	if err := n.UseResolver(); err != nil {
		s.Problems = append(s.Problems, err) // a project that configures resolvers needs none of the host's
	}
	path := policyOf(argv)
	if p, err := project.Load(ctx, path); err == nil { // the command reports the errors in it
		s.project = p
	}
	if err := s.mask(tag, filepath.Dir(path)); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return s, nil
}

// Close removes the simulated internet.
func (s *Session) Close() error { return s.net.Close() }

// Mask masks the values of the project's secrets in text.
func (s *Session) Mask(text string) string { return s.redactor.String(text) }

// mask makes the redactor, with the key of the simulated LLM API, the values of the project that can be read without
// minting, and patterns of secrets. dir is the directory of the project file.
func (s *Session) mask(tag []byte, dir string) (err error) {
	if s.redactor, err = pattern.NewRedactor(tag); err != nil {
		return err
	}
	if err := s.redactor.Add("world-llm-key", []byte(s.net.ModelKey())); err != nil {
		return err
	}
	values, _ := local.Broker{}.ReadValues(secrets.Request{Bindings: run.Bindings(s.project), Dir: dir})
	for name, value := range values {
		if err := s.redactor.Add(name, value); err != nil {
			s.Problems = append(s.Problems, fmt.Errorf("the secret %s is not masked here: %w", name, err))
		}
	}
	return nil
}

// policyOf returns the path of a custody command's project file.
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

// Run runs the command with the given standard streams and returns its exit code. The command trusts the simulated
// internet's certificate authority, and has the key of its LLM API in WORLD_LLM_KEY.
func (s *Session) Run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) (code int, err error) {
	dir, err := os.MkdirTemp("", "custody-world-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, s.net.CA(), 0o644); err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, s.argv[0], s.argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+ca, "WORLD_LLM_KEY="+s.net.ModelKey())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	err = s.net.Run(cmd)
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return 0, fmt.Errorf("run %s: %w", s.argv[0], err)
	}
	return cmd.ProcessState.ExitCode(), nil
}

// Seen describes the requests that servers received and the packets that reached the attacker, one per line. Of a packet
// it has only the beginning, which is masked before it is shortened. The DNS queries of the project's gateway are
// described differently, because the policy allows them.
func (s *Session) Seen() ([]string, error) {
	var lines []string
	for _, r := range s.net.Requests() {
		lines = append(lines, fmt.Sprintf("a server got: %s %s%s", r.Method, r.Host, r.URI))
	}
	own, err := newOwnDNS(s.project)
	if err != nil {
		return lines, err
	}
	attacks := 0
	for _, seen := range s.net.Seen() {
		if text := own.describe(seen); text != "" {
			if !slices.Contains(lines, text) {
				lines = append(lines, text)
			}
			continue
		}
		attacks++
		seen.Text = s.redactor.Cut(seen.Text)
		lines = append(lines, "the attacker saw: "+seen.String())
	}
	if attacks == 0 && s.net.Lost() == 0 {
		lines = append(lines, "the attacker saw nothing")
	}
	return lines, nil
}

// ownDNS recognizes the DNS queries that the gateway makes for the project's rules.
type ownDNS struct {
	policy    *netpolicy.Policy
	resolvers []netip.AddrPort // of the project
}

func newOwnDNS(p project.File) (own ownDNS, err error) {
	if own.policy, err = p.Policy(); err != nil || len(p.Resolvers) == 0 {
		return own, err
	}
	servers, err := hostd.Resolvers(p)
	for _, s := range servers {
		own.resolvers = append(own.resolvers, s.Addr)
	}
	return own, err
}

// describe returns a line about a query of the gateway, "" for any other sighting. A query for a name that a rule allows
// is the gateway's; if it was sent to another resolver, the attacker's sighting of its packet shows that.
func (o ownDNS) describe(s simnet.Sighting) string {
	to := netip.AddrPortFrom(s.Dst.Addr().Unmap(), s.Dst.Port())
	switch {
	case s.Where == simnet.AtResolver:
		if name, _, _ := strings.Cut(s.Text, " "); len(o.policy.Match(name)) > 0 {
			return "the gateway looked up " + name + ", which the policy allows; custody world --hosts lists the hosts of the simulated internet"
		}
	case slices.Contains(o.resolvers, to):
		return "the gateway asked the resolver " + to.String() + ", which the simulated internet does not have: remove resolvers from the project file, or use udp://" + simnet.Resolver4.String()
	}
	return ""
}
