package access_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/custody-project/custody/replay/access"
)

// parse reads a section as home does.
func parse(text string) (access.Config, error) {
	var c access.Config
	err := yaml.NewDecoder(bytes.NewReader([]byte(text)), yaml.Strict(), yaml.DisallowUnknownField()).Decode(&c)
	return c, err
}

func TestConfig(t *testing.T) {
	c, err := parse(`
listen: 0.0.0.0:8443
names: [custody.example.com]
port_domain: sandboxes.example.net
cert: /etc/custody/tls.crt
key: /etc/custody/tls.key
local: viewer
session: {max: 8h, idle: 15m}
rate: {per_second: 2.5, burst: 10}
oidc:
  issuer: https://id.example.com
  ca: /etc/custody/roots.pem
  client_id: custody
  client_secret_file: /etc/custody/oidc.secret
  audience: custody-api
  scopes: [profile, groups]
  algs: [ES256]
  claim: roles
  grants:
    custody-auditors: {tenant: acme, role: auditor}
    sre: [{tenant: acme, role: viewer}, {tenant: beta, role: operator}]
`)
	if err == nil {
		err = c.Check()
	}
	if err != nil {
		t.Fatal(err)
	}
	if c.Session.Max != 8*time.Hour || c.Rate.PerSecond != 2.5 || len(c.OIDC.Grants["sre"]) != 2 || c.OIDC.Grants["custody-auditors"][0] != (access.Grant{Tenant: "acme", Role: access.Auditor}) {
		t.Errorf("%+v %+v", c, c.OIDC)
	}
	d := access.Config{}.WithDefaults()
	if err := (access.Config{}).Check(); err != nil || d.Listen != "127.0.0.1:8333" || d.Local != "admin" || d.Session.Max != 12*time.Hour || d.Session.Idle != time.Hour {
		t.Errorf("defaults %+v, %v", d, err)
	}
}

func TestConfigKeys(t *testing.T) {
	for _, text := range []string{
		"listne: x", "names: x", "session: {maximum: 1h}", "oidc: {issuer: x, grants: {a: {tenant: acme, rolle: admin}}}", "oidc: {issuer: x, grants: {a: [{tenant: acme, role: admin, x: 1}]}}",
		"oidc: {grants: {a: admin}}", "session: {max: 12}x", "rate: {burst: many}", "listen: a\nlisten: b",
	} {
		if c, err := parse(text); err == nil {
			t.Errorf("%q is taken: %+v", text, c)
		}
	}
}

func TestConfigCheck(t *testing.T) {
	for name, c := range map[string]struct {
		config access.Config
		ok     bool
	}{
		"loopback":              {access.Config{Listen: "127.0.0.1:1"}, true},
		"another loopback":      {access.Config{Listen: "127.8.8.8:1"}, true},
		"loopback, IPv6":        {access.Config{Listen: "[::1]:1"}, true},
		"mapped loopback":       {access.Config{Listen: "[::ffff:127.0.0.1]:1"}, true},
		"localhost":             {access.Config{Listen: "localhost:1"}, true},
		"everywhere":            {access.Config{Listen: "0.0.0.0:1"}, false},
		"everywhere, IPv6":      {access.Config{Listen: "[::]:1"}, false},
		"everywhere, in short":  {access.Config{Listen: ":8080"}, false},
		"a name":                {access.Config{Listen: "localhost.example.com:1"}, false},
		"a number":              {access.Config{Listen: "2130706433:1"}, false},
		"one address":           {access.Config{Listen: "192.0.2.1:1"}, false},
		"one address with TLS":  {access.Config{Listen: "192.0.2.1:1", Cert: "c", Key: "k"}, true},
		"everywhere with TLS":   {access.Config{Listen: "0.0.0.0:1", Cert: "c", Key: "k", Names: []string{"a.example"}}, true},
		"everywhere, no names":  {access.Config{Listen: "0.0.0.0:1", Cert: "c", Key: "k"}, false},
		"cert alone":            {access.Config{Cert: "c"}, false},
		"key alone":             {access.Config{Listen: "192.0.2.1:1", Key: "k"}, false},
		"no port":               {access.Config{Listen: "127.0.0.1"}, false},
		"name with a port":      {access.Config{Names: []string{"a.example:443"}}, false},
		"name as a URL":         {access.Config{Names: []string{"https://a.example"}}, false},
		"name with a wildcard":  {access.Config{Names: []string{"*.example"}}, false},
		"domain of ports":       {access.Config{PortDomain: "sandboxes.example"}, true},
		"ports of localhost":    {access.Config{PortDomain: "localhost"}, true},
		"domain with a *":       {access.Config{PortDomain: "*.example"}, false},
		"domain with a dot":     {access.Config{PortDomain: ".example"}, false},
		"domain with a port":    {access.Config{PortDomain: "example:443"}, false},
		"domain in capitals":    {access.Config{PortDomain: "Example.net"}, false},
		"domain of an address":  {access.Config{PortDomain: "127.0.0.1"}, false},
		"domain of the page":    {access.Config{PortDomain: "example.net", Names: []string{"example.net"}}, false},
		"page below the domain": {access.Config{PortDomain: "example.net", Names: []string{"custody.example.net"}}, false},
		"page beside it":        {access.Config{PortDomain: "sandboxes.example.net", Names: []string{"custody.example.net"}}, true},
		"local of no role":      {access.Config{Local: "root"}, false},
		"no local":              {access.Config{Local: "none"}, true},
		"session too long":      {access.Config{Session: access.SessionTime{Max: 13 * time.Hour}}, false},
		"session below 0":       {access.Config{Session: access.SessionTime{Max: -1}}, false},
		"idle above the length": {access.Config{Session: access.SessionTime{Max: time.Hour, Idle: 2 * time.Hour}}, false},
		"rate below 0":          {access.Config{Rate: access.Rate{PerSecond: -1}}, false},
		"burst below 0":         {access.Config{Rate: access.Rate{Burst: -1}}, false},
	} {
		err := c.config.Check()
		var bad *access.ConfigError
		if (err == nil) != c.ok || err != nil && (!errors.As(err, &bad) || bad.Hint() == "" || !strings.HasPrefix(err.Error(), "serve: ")) {
			t.Errorf("%s: %v", name, err)
		}
		tokens, openErr := access.OpenTokens(t.TempDir())
		if openErr != nil {
			t.Fatal(openErr)
		}
		if !c.ok {
			if _, err := access.New(access.Options{Config: c.config, Tokens: tokens, Recorder: nowhere{}}); err == nil {
				t.Errorf("%s: there is a gate", name)
			}
		}
	}
}
