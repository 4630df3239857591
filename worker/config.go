package worker

import (
	"fmt"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/dnsproxy/upstream"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/secrets"
)

// Config describes a run to its worker. It needs no parser of project files.
type Config struct {
	Settings  sandbox.Settings
	Facts     audit.Lifecycle // of the run's first event; their tier is the machine's
	Mode      wal.Mode
	Resolvers []string // DNS servers, see upstream.ParseServer
	Tokens    int64    // limit of LLM tokens; 0: none
	Charged   bool     // LLM tokens are charged to a quota, see Events.Charge
	Steps     []Step
	Session   bool             // the owner starts processes instead of steps: Run sets it if there is Options.Serve
	In        *In              // what is copied in; nil: nothing
	Out       string           // path to which files are copied out, for the record; empty: none are
	Terminal  *channel.Winsize // of the steps; nil: they have none
	Live      bool             // see sandbox.Step
	Time      time.Duration    // limit of the run
	Waits     []sandbox.Wait
	TagKey    []byte // of the redactor
	Secrets   []Secret
	Anomaly   string        // the reaction to a credential in a wrong place, see secrets.Config
	KeyWait   time.Duration // see sealer.Watch
	Spool     bool          // the host limits what the log can hold, see Events.Room
	Progress  bool          // the user wants to know how far copies are
	Notify    bool          // findings and ends are notified, see Events.Notify
}

// In is a directory that is copied in; see sandbox.In.
type In struct {
	Dir  string
	Size channel.Size
}

// Step is a command of the run; see sandbox.Step.
type Step struct {
	Name      string
	Argv      audit.Texts
	Env, Vars audit.Texts
	Dir       audit.Text
	Secrets   []string
	Time      time.Duration
}

// Secret is a secret of the project. Its source stays with the broker.
type Secret struct {
	Name    string
	Scheme  string // of its source, which determines the broker
	Deliver secrets.Deliver
	Hosts   []string // patterns; see secrets.Binding
}

// order is what Run sends to a worker.
type order struct {
	Config
	Rules   []string          // the policy, in normal form
	Brokers map[string]string // see secrets/remote
	// Recover makes the worker close the record of one that ended before it did. Last is the manifest that was signed
	// last.
	Recover bool
	Last    []byte
	Reason  string // why that one ended; empty: it is not known
}

// Rules returns a policy's rules in normal form.
func Rules(p *netpolicy.Policy) (list []string) {
	for _, r := range p.Rules() {
		list = append(list, r.String())
	}
	return list
}

// PolicyOf returns the policy of rules in normal form.
func PolicyOf(rules []string) (*netpolicy.Policy, error) {
	var list []netpolicy.Rule
	for _, text := range rules {
		r, err := netpolicy.ParseRule(text)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return netpolicy.New(list)
}

// ServersOf returns the DNS servers of their texts.
func ServersOf(texts []string) (list []upstream.Server, err error) {
	for _, text := range texts {
		s, err := upstream.ParseServer(text)
		if err != nil {
			return nil, fmt.Errorf("resolvers: %w", err)
		}
		list = append(list, s)
	}
	return list, nil
}

// binding returns a secret as the Issuer needs it. Its source is only a scheme.
func (s Secret) binding() (secrets.Binding, error) {
	b := secrets.Binding{Name: s.Name, From: s.Scheme + ":", Deliver: s.Deliver}
	if len(s.Hosts) == 0 {
		return b, nil
	}
	var patterns []netpolicy.Pattern
	for _, text := range s.Hosts {
		p, err := netpolicy.ParsePattern(text)
		if err != nil {
			return b, fmt.Errorf("secret %s: %w", s.Name, err)
		}
		patterns = append(patterns, p)
	}
	b.Hosts = func(host string) bool {
		for _, p := range patterns {
			if p.Matches(host) {
				return true
			}
		}
		return false
	}
	return b, nil
}

// bindings returns all secrets.
func (c Config) bindings() (list []secrets.Binding, err error) {
	for _, s := range c.Secrets {
		b, err := s.binding()
		if err != nil {
			return nil, err
		}
		list = append(list, b)
	}
	return list, nil
}
