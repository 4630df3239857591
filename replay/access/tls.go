package access

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync"
	"time"

	"github.com/custody-project/custody/internal/regular"
)

// TLSConfig returns the server's side of TLS 1.2 and 1.3 with the certificate of two PEM files.
// When the files change, connections that come later get the new certificate; while they
// cannot be read, they get the one before, and warn is called. It is an error if they cannot be read now.
func TLSConfig(cert, key string, warn func(string)) (*tls.Config, error) {
	p := &pair{cert: cert, key: key, warn: warn}
	if _, err := p.get(nil); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: p.get}, nil
}

// pair is a certificate and its key.
type pair struct {
	cert, key string
	warn      func(string)

	mu      sync.Mutex // guards the fields below
	looked  time.Time
	stamps  [2]stamp
	current *tls.Certificate
}

// pairAgain is how long a certificate is used before its files are checked again.
const pairAgain = time.Second

func (p *pair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil && time.Since(p.looked) < pairAgain {
		return p.current, nil
	}
	p.looked = time.Now()
	stamps, err := p.stat()
	if err == nil && p.current != nil && stamps == p.stamps {
		return p.current, nil
	}
	var loaded tls.Certificate
	if err == nil {
		loaded, err = regular.KeyPair(p.cert, p.key)
	}
	switch {
	case err == nil:
		p.current, p.stamps = &loaded, stamps
		p.date(loaded.Leaf)
	case p.current == nil:
		return nil, &ConfigError{fmt.Sprintf("cert and key: %v", err), "each is a PEM file; cert has the server's certificate first, then its chain"}
	default: // perhaps one of the two files is new and the other not yet
		p.notify(fmt.Sprintf("the new certificate cannot be read, the one before is used on: %v", err))
	}
	return p.current, nil
}

func (p *pair) stat() (s [2]stamp, err error) {
	for i, path := range []string{p.cert, p.key} {
		if s[i], err = statThrough(path); err != nil {
			return s, err
		}
	}
	return s, nil
}

// date warns of a certificate that clients will refuse.
func (p *pair) date(leaf *x509.Certificate) {
	if leaf != nil && time.Now().After(leaf.NotAfter) {
		p.notify(fmt.Sprintf("the certificate ran out on %s", leaf.NotAfter.Format(time.DateOnly)))
	}
}

func (p *pair) notify(text string) {
	if p.warn != nil {
		p.warn(text)
	}
}
