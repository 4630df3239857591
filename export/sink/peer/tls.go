// Package peer has the common parts of sinks that use a network: TLS,
// credentials from files or the environment, and bounded HTTP.
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

// TLS names the certificate files of a connection. The zero TLS trusts the system's authorities.
type TLS struct {
	CA         string // PEM of the only trusted authorities
	Cert, Key  string // PEM of the client certificate, if the server requires one
	ServerName string // expected in the server's certificate, if it is not the host
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

// Secret is the source of a credential: a file or an environment variable, never both.
type Secret struct{ File, Env string }

// maxSecret bounds the size of a file.
const maxSecret = 64 << 10

// Set reports whether the source is set.
func (s Secret) Set() bool { return s.File != "" || s.Env != "" }

// Value reads it. It is read whenever it is needed, so that it can be renewed, and not stored.
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

// checked refuses what is invalid in a header.
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

// Local reports whether a host is a loopback address, so that no bytes leave this machine.
func Local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
