package ship

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority is a CA in files.
type authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// issue writes name.pem and name.key.
func (a *authority) issue(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore = time.Now().Add(-time.Hour)
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	parent, signer := c, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+".key", "EC PRIVATE KEY", private)
	c, err = x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return c, key
}

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(a.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func serverCert(addr string) *x509.Certificate {
	return &x509.Certificate{IPAddresses: []net.IP{net.ParseIP(addr)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
}

// wantHint dials and fails unless the error has a hint that contains those words.
func wantHint(t *testing.T, c Config, words ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := Dial(ctx, c)
	if err == nil {
		r.Close()
		t.Errorf("Dial succeeded, want an error about %q", words)
		return
	}
	var hint interface{ Hint() string }
	if !errors.As(err, &hint) {
		t.Errorf("no hint in: %v", err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error()+" "+hint.Hint(), w) {
			t.Errorf("%q is not in: %v; hint: %s", w, err, hint.Hint())
		}
	}
}

func TestTLS(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	s := startNATS(t, alwaysSync, "")
	s.kill()
	ca.issue("server", serverCert(s.addr))
	ca.issue("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	other.issue("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	s.configure(alwaysSync, fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }", ca.path("server.pem"), ca.path("server.key"), ca.path("ca.pem")))
	s.start()

	c := s.config()
	c.URL = "tls://" + s.addr + ":4222"
	c.CA, c.Cert, c.Key = ca.path("ca.pem"), ca.path("client.pem"), ca.path("client.key")
	signer, _ := hostKey(t, "h1")
	segs := sealedRun(t, signer, "acme", "h1", "r-1", 40, 10)
	db := openStore(t)
	ingester(t, c, db, IngestOptions{})
	r := dial(t, c)
	send(t, r, segs...)
	if err := drainRemote(t, r, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	wantExactly(t, db, segs)

	for name, test := range map[string]struct {
		change func(*Config)
		words  []string
	}{
		"another CA":        {func(c *Config) { c.CA = other.path("ca.pem") }, []string{"CA file"}},
		"the system's CAs":  {func(c *Config) { c.CA = "" }, []string{"CA file"}},
		"no certificate":    {func(c *Config) { c.Cert, c.Key = "", "" }, []string{"client certificate"}},
		"a stranger's":      {func(c *Config) { c.Cert, c.Key = other.path("client.pem"), other.path("client.key") }, []string{"client certificate"}},
		"only half":         {func(c *Config) { c.Key = "" }, []string{"both files"}},
		"a key of another":  {func(c *Config) { c.Key = other.path("client.key") }, []string{"belong together"}},
		"no such CA":        {func(c *Config) { c.CA = ca.path("nothing") }, []string{"no such file"}},
		"a key for a CA":    {func(c *Config) { c.CA = ca.path("ca.key") }, []string{"no certificate"}},
		"no URL":            {func(c *Config) { c.URL = "" }, []string{"URL"}},
		"another protocol":  {func(c *Config) { c.URL = "https://" + s.addr }, []string{"nats://"}},
		"two ways to be in": {func(c *Config) { c.NKey, c.Creds = "a", "b" }, []string{"both"}},
	} {
		t.Run(name, func(t *testing.T) {
			bad := c
			test.change(&bad)
			wantHint(t, bad, test.words...)
		})
	}
}

func TestServerWithoutTLS(t *testing.T) {
	s := startNATS(t, alwaysSync, "")
	s.conn()
	c := s.config()
	c.URL = "tls://" + s.addr + ":4222"
	wantHint(t, c, "does not use TLS")
}

func TestServerCertificates(t *testing.T) {
	for name, test := range map[string]struct {
		cert  func(addr string) *x509.Certificate
		words string
	}{
		"another name": {func(string) *x509.Certificate { return serverCert("127.0.0.1") }, "name in the URL"},
		"expired": {func(addr string) *x509.Certificate {
			c := serverCert(addr)
			c.NotAfter = time.Now().Add(-time.Minute)
			return c
		}, "clocks"},
	} {
		t.Run(name, func(t *testing.T) {
			ca := newAuthority(t)
			s := startNATS(t, alwaysSync, "")
			s.kill()
			ca.issue("server", test.cert(s.addr))
			s.configure(alwaysSync, fmt.Sprintf("tls { cert_file: %q, key_file: %q }", ca.path("server.pem"), ca.path("server.key")))
			s.start()
			c := s.config()
			c.URL, c.CA = "tls://"+s.addr+":4222", ca.path("ca.pem")
			wantHint(t, c, test.words)
		})
	}
}
