package access

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Config is the section serve: of host.yaml. The zero Config serves on loopback, to who
// opens the printed link and to holders of a token.
//
//	serve:
//	  listen: 0.0.0.0:8443              # default 127.0.0.1:8333; anything but loopback needs cert and key
//	  names: [custody.example.com]      # by which it is reached; needed unless listen is one address
//	  cert: /etc/custody/tls.crt        # PEM, with its chain; read again when it changes
//	  key: /etc/custody/tls.key
//	  port_domain: sandboxes.example.net  # HTTP to a port of a sandbox is at PORT-SANDBOX.sandboxes.example.net; none if it is not given
//	  local: admin                      # role of the user of the printed link, or none: there is no link
//	  session: {max: 12h, idle: 1h}     # a session's length, and without a request; at most 12h
//	  rate: {per_second: 50, burst: 200}  # requests of one principal, and of one address without one
//	  oidc:
//	    issuer: https://id.example.com
//	    client_id: custody
//	    client_secret_file: /etc/custody/oidc.secret  # not for a public client
//	    audience: custody-api           # of bearer tokens, beside client_id
//	    scopes: [profile, groups]       # beside openid
//	    algs: [RS256, ES256]            # that tokens may be signed with; these two if it is not given
//	    claim: groups                   # that grants match; default groups
//	    grants:
//	      custody-auditors: {tenant: acme, role: auditor}
//	      sre: [{tenant: acme, role: viewer}, {tenant: beta, role: operator}]
//
// With ca: FILE the issuer's certificate may also be one of the roots in that file. An issuer
// on http:// is accepted on loopback only.
type Config struct {
	Listen     string      `yaml:"listen"`
	Names      []string    `yaml:"names"`
	Cert       string      `yaml:"cert"`
	Key        string      `yaml:"key"`
	PortDomain string      `yaml:"port_domain"`
	Local      string      `yaml:"local"`
	Session    SessionTime `yaml:"session"`
	Rate       Rate        `yaml:"rate"`
	OIDC       *OIDC       `yaml:"oidc"`
}

// SessionTime is how long a session lasts.
type SessionTime struct {
	Max  time.Duration `yaml:"max"`  // from login; default and at most 12 h
	Idle time.Duration `yaml:"idle"` // without a request; default 1 h
}

// Rate is how often one principal may ask.
type Rate struct {
	PerSecond float64 `yaml:"per_second"` // default 50
	Burst     int     `yaml:"burst"`      // default 200
}

// OIDC is an OpenID Connect issuer with the grants of its users.
type OIDC struct {
	Issuer           string            `yaml:"issuer"`
	CA               string            `yaml:"ca"`
	ClientID         string            `yaml:"client_id"`
	ClientSecretFile string            `yaml:"client_secret_file"`
	Audience         string            `yaml:"audience"`
	Scopes           []string          `yaml:"scopes"`
	Algs             []string          `yaml:"algs"`
	Claim            string            `yaml:"claim"`
	Grants           map[string]Grants `yaml:"grants"`
}

// Grants is one Grant or a list of them.
type Grants []Grant

// UnmarshalYAML reads it.
func (g *Grants) UnmarshalYAML(unmarshal func(any) error) error {
	var shape any
	if err := unmarshal(&shape); err != nil {
		return err
	}
	if _, several := shape.([]any); several {
		return unmarshal((*[]Grant)(g))
	}
	var one Grant
	err := unmarshal(&one)
	*g = Grants{one}
	return err
}

// The defaults and bounds of Config.
const (
	DefaultListen = "127.0.0.1:8333"
	LocalNone     = "none"

	maxSession      = 12 * time.Hour
	defaultIdle     = time.Hour
	defaultRate     = 50
	defaultBurst    = 200
	defaultClaim    = "groups"
	defaultLocal    = string(Admin)
	loopbackNetwork = "localhost"
)

// signing is what a token may be signed with: public keys only, so that none and HMAC never are.
func signing() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
}

// ConfigError is a section serve: that cannot be used.
type ConfigError struct {
	Text string
	Todo string
}

// Error implements error.
func (e *ConfigError) Error() string { return "serve: " + e.Text }

// Hint returns what to do about it.
func (e *ConfigError) Hint() string { return e.Todo }

// WithDefaults returns c with defaults for its unset fields.
func (c Config) WithDefaults() Config {
	c.Listen = or(c.Listen, DefaultListen)
	c.Local = or(c.Local, defaultLocal)
	c.Session.Max = or(c.Session.Max, maxSession)
	c.Session.Idle = or(c.Session.Idle, defaultIdle)
	c.Rate.PerSecond = or(c.Rate.PerSecond, defaultRate)
	c.Rate.Burst = or(c.Rate.Burst, defaultBurst)
	if c.OIDC != nil {
		o := *c.OIDC
		o.Claim = or(o.Claim, defaultClaim)
		if len(o.Algs) == 0 {
			o.Algs = []string{"RS256", "ES256"}
		}
		c.OIDC = &o
	}
	return c
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Check returns an error if c is invalid. The error is a *ConfigError.
func (c Config) Check() error {
	c = c.WithDefaults()
	if err := c.checkListen(); err != nil {
		return err
	}
	switch {
	case c.Local != LocalNone && !Role(c.Local).valid():
		return &ConfigError{fmt.Sprintf("local %q: want viewer, auditor, operator, admin or none", c.Local), "it is the role of the user of the printed link"}
	case c.Session.Max < time.Minute || c.Session.Max > maxSession:
		return &ConfigError{fmt.Sprintf("session.max is %v, want a minute to %v", c.Session.Max, maxSession), "write it as 8h or 30m"}
	case c.Session.Idle < time.Minute || c.Session.Idle > c.Session.Max:
		return &ConfigError{fmt.Sprintf("session.idle is %v, want a minute to session.max", c.Session.Idle), "write it as 1h or 15m"}
	case !(c.Rate.PerSecond > 0) || c.Rate.PerSecond > 1e6 || c.Rate.Burst < 1:
		return &ConfigError{"rate: per_second and burst must be above 0", "leave rate out for 50 a second and bursts of 200"}
	}
	if c.OIDC != nil {
		if err := c.OIDC.check(); err != nil {
			return &ConfigError{"oidc: " + err.Error(), "docs/operations.md shows a section that works"}
		}
	}
	return nil
}

// checkListen refuses what would show the record in the clear beyond this machine.
func (c Config) checkListen() error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return &ConfigError{fmt.Sprintf("listen %q: %v", c.Listen, err), "write ADDRESS:PORT, such as " + DefaultListen}
	}
	addr, err := netip.ParseAddr(host)
	switch {
	case host != loopbackNetwork && err != nil:
		return &ConfigError{fmt.Sprintf("listen %q is not an address of this machine", c.Listen), "write an IP address, 0.0.0.0 or [::] for all, or localhost"}
	case (c.Cert == "") != (c.Key == ""):
		return &ConfigError{"cert and key go together, and one of them is missing", "name the PEM file of each"}
	case host != loopbackNetwork && !addr.Unmap().IsLoopback() && c.Cert == "":
		return &ConfigError{fmt.Sprintf("listen %s is not loopback, and there is no TLS: the record and its tokens would be readable on the network", c.Listen),
			"give cert and key, or listen on " + DefaultListen}
	case host != loopbackNetwork && addr.IsUnspecified() && len(c.Names) == 0:
		return &ConfigError{fmt.Sprintf("listen %s is every address of this machine, and names is empty", c.Listen),
			"list under names the host names that browsers use"}
	}
	for _, n := range c.Names {
		if _, ok := knownAs(n); !ok {
			return &ConfigError{fmt.Sprintf("names: %q is not a host name", n), "without scheme, port and path: custody.example.com"}
		}
	}
	return c.checkPortDomain()
}

// knownAs returns an entry of names in the form that hostname returns for requests.
func knownAs(name string) (string, bool) {
	if addr, err := netip.ParseAddr(name); err == nil {
		return addr.String(), addr.Zone() == ""
	}
	h, ok := hostname(name)
	return h, ok && h == strings.ToLower(name)
}

// TLS reports whether c serves with a certificate.
func (c Config) TLS() bool { return c.Cert != "" }

// known returns the names that a request may give as its host.
func (c Config) known() map[string]bool {
	known := map[string]bool{}
	for _, n := range c.Names {
		if h, ok := knownAs(n); ok {
			known[h] = true
		}
	}
	host, _, err := net.SplitHostPort(c.Listen)
	addr, addrErr := netip.ParseAddr(host)
	switch {
	case err != nil:
	case host == loopbackNetwork || addrErr == nil && addr.Unmap().IsLoopback():
		known["localhost"], known["127.0.0.1"], known["::1"] = true, true, true
		if addrErr == nil {
			known[addr.String()] = true
		}
	case addrErr == nil && !addr.IsUnspecified():
		known[addr.String()] = true
	}
	return known
}

func (o *OIDC) check() error {
	u, err := url.Parse(o.Issuer)
	switch {
	case err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return fmt.Errorf("issuer %q is not a URL", o.Issuer)
	case u.Scheme != "https" && !(u.Scheme == "http" && isLoopback(u.Hostname())):
		return fmt.Errorf("issuer %q: want https", o.Issuer)
	case o.ClientID == "":
		return errors.New("client_id is missing")
	case len(o.Grants) == 0:
		return errors.New("grants is empty: it would permit nothing")
	}
	for _, alg := range o.Algs {
		if !slices.Contains(signing(), alg) {
			return fmt.Errorf("algs: %q is not a signature with a public key", alg)
		}
	}
	for value, grants := range o.Grants {
		if len(grants) == 0 {
			return fmt.Errorf("grants: %q has none", value)
		}
		for _, g := range grants {
			if err := g.check(); err != nil {
				return fmt.Errorf("grants: %q: %w", value, err)
			}
		}
	}
	return nil
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == loopbackNetwork || err == nil && addr.Unmap().IsLoopback()
}
