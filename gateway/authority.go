package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/net/http2"

	"github.com/custody-project/custody/netpolicy"
)

// Lifetimes of certificates. A sandbox that runs longer can no longer open TLS.
const (
	authorityLife = 7 * 24 * time.Hour
	leafLife      = 24 * time.Hour
	clockSlack    = 24 * time.Hour // how far a guest's clock may be behind
	maxLeaves     = 512
)

// Authority is a certificate authority that one sandbox trusts, only for the names whose rules open TLS (RFC 5280,
// section 4.2.1.10). Its key is only in this process's memory. It is safe for concurrent use.
type Authority struct {
	patterns []netpolicy.Pattern
	cert     *x509.Certificate
	key      *ecdsa.PrivateKey
	leafKey  *ecdsa.PrivateKey // shared by all names, since they have the same holder
	leaves   *lru.Cache[string, *tls.Certificate]
	making   sync.Mutex // serializes the signing of leaves, so that concurrent requests for a name share one
}

// NewAuthority makes an authority for the names of rules, each exact or with "*." before it. The certificate contains
// the run's name.
func NewAuthority(run string, names []string) (*Authority, error) {
	a := &Authority{}
	var domains []string
	for _, n := range names {
		p, err := netpolicy.ParsePattern(n)
		name, _ := p.Name()
		if err != nil || name == "" {
			return nil, fmt.Errorf("authority: %q is not a host name", n)
		}
		a.patterns = append(a.patterns, p)
		domains = append(domains, name) // a constraint includes all names below it: the RFC has no other form
	}
	if len(domains) == 0 {
		return nil, fmt.Errorf("authority: there are no names")
	}
	slices.Sort(domains)
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	if a.leafKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	if a.leaves, err = lru.New[string, *tls.Certificate](maxLeaves); err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	return a, a.sign(run, slices.Compact(domains))
}

// sign signs the authority's own certificate.
func (a *Authority) sign(run string, domains []string) error {
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:                serial(),
		Subject:                     pkix.Name{Organization: []string{"Custody"}, CommonName: "Custody sandbox " + run},
		NotBefore:                   now.Add(-clockSlack),
		NotAfter:                    now.Add(authorityLife),
		IsCA:                        true,
		BasicConstraintsValid:       true,
		MaxPathLenZero:              true,
		KeyUsage:                    x509.KeyUsageCertSign,
		ExtKeyUsage:                 []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		PermittedDNSDomainsCritical: true,
		PermittedDNSDomains:         domains,
		ExcludedIPRanges:            []*net.IPNet{{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		return fmt.Errorf("authority: %w", err)
	}
	return nil
}

func serial() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails: see crypto/rand
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b)
}

// PEM returns the certificate that the guest must trust.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// covers reports whether a guest that trusts a accepts its certificates for name. A nil authority covers no name.
func (a *Authority) covers(name string) bool {
	if a == nil {
		return false
	}
	return slices.ContainsFunc(a.patterns, func(p netpolicy.Pattern) bool { return matches(p, name) })
}

func matches(p netpolicy.Pattern, name string) bool {
	base, below := p.Name()
	if !below {
		return name == base
	}
	return len(name) > len(base)+1 && name[len(name)-len(base)-1:] == "."+base
}

// config returns the TLS configuration for the guest's connections to name.
func (a *Authority) config(name string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{http2.NextProtoTLS, "http/1.1"},
		// A session ticket of one name must not be used for another.
		SessionTicketsDisabled: true,
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if !sameName(h.ServerName, name) { // the gateway's own parser has read it before: both must agree
				return nil, fmt.Errorf("the server name is not the destination")
			}
			return a.leaf(name)
		},
	}
}

// leaf returns the certificate for name, which must be covered.
func (a *Authority) leaf(name string) (*tls.Certificate, error) {
	if c, ok := a.made(name); ok {
		return c, nil
	}
	if !a.covers(name) {
		return nil, fmt.Errorf("authority: %s is not one of its names", name)
	}
	a.making.Lock()
	defer a.making.Unlock()
	if c, ok := a.made(name); ok {
		return c, nil
	}
	return a.make(name)
}

// made returns a certificate for name that is still valid for a while, if there is one.
func (a *Authority) made(name string) (*tls.Certificate, bool) {
	c, ok := a.leaves.Get(name)
	return c, ok && time.Now().Add(leafLife/2).Before(c.Leaf.NotAfter)
}

func (a *Authority) make(name string) (*tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{Organization: []string{"Custody"}},
		NotBefore:    a.cert.NotBefore,
		NotAfter:     time.Now().Add(leafLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{name},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &a.leafKey.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("certificate for %s: %w", name, err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certificate for %s: %w", name, err)
	}
	c := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leafKey, Leaf: parsed}
	a.leaves.Add(name, c)
	return c, nil
}
