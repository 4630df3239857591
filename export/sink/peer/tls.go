// Package peer has what the sinks share that talk to others over a network: TLS,
// credentials out of files or the environment, and careful HTTP.
package peer

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/custody-project/custody/internal/regular"
)

// TLS names the files of a connection's trust. The zero TLS trusts the system's authorities.
type TLS struct {
	CA         string // PEM of the only authorities that are trusted
	Cert, Key  string // PEM of our own certificate, where the other side wants one
	ServerName string // that its certificate must have, where it is not the host's
}

// Config reads the files. The client certificate is read again for each connection, so that it can be renewed.
func (t TLS) Config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := regular.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("read ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca: %s has no certificate", t.CA)
		}
	}
	if (t.Cert == "") != (t.Key == "") {
		return nil, errors.New("cert and key go together: one of them is missing")
	}
	if t.Cert == "" {
		return c, nil
	}
	load := func() (*tls.Certificate, error) {
		cert, err := regular.KeyPair(t.Cert, t.Key)
		return &cert, err
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	_, err := load()
	return c, err
}

// Secret is where a credential comes from: a file or a variable of the environment, never both.
type Secret struct{ File, Env string }

// maxSecret bounds what is read of a file.
const maxSecret = 64 << 10

// Set reports whether there is one.
func (s Secret) Set() bool { return s.File != "" || s.Env != "" }

// Value reads it. It is read whenever it is needed, so that it can be renewed, and kept nowhere.
func (s Secret) Value() (string, error) {
	switch {
	case s.File != "" && s.Env != "":
		return "", errors.New("a credential comes from a file or from the environment, not from both")
	case s.Env != "":
		v, ok := os.LookupEnv(s.Env)
		if !ok || v == "" {
			return "", fmt.Errorf("the environment has no %s", s.Env)
		}
		return checked(v, "$"+s.Env)
	case s.File == "":
		return "", nil
	}
	f, err := regular.Open(s.File)
	if err != nil {
		return "", fmt.Errorf("read credential: %w", err)
	}
	defer f.Close()
	b := make([]byte, maxSecret)
	n, err := f.Read(b)
	if n == 0 {
		return "", fmt.Errorf("read credential: %s is empty: %w", s.File, err)
	}
	return checked(string(bytes.TrimSpace(b[:n])), s.File)
}

// checked refuses what would break a header.
func checked(v, from string) (string, error) {
	for _, c := range []byte(v) {
		if c < ' ' || c == 0x7f {
			return "", fmt.Errorf("the credential in %s has a control character", from)
		}
	}
	if v == "" {
		return "", fmt.Errorf("the credential in %s is empty", from)
	}
	return v, nil
}

// Local reports whether a host is this machine by its own address, so that no bytes leave it.
func Local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
