// Package endpoint has what a client of an HTTP server needs besides the address.
package endpoint

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"time"
)

// Server authenticates a server, and this client to it. The zero Server trusts the system's authorities.
type Server struct {
	Authorities      []byte `json:",omitempty"` // PEM of the only trusted ones; empty: the system's
	Certificate, Key []byte `json:",omitempty"` // PEM of the client's own, if the server requires one
	Name             string `json:",omitempty"` // expected in the server's certificate, if it is not the host
	Socket           string `json:",omitempty"` // path of the unix socket on which it listens; empty: the host and the port of its address
}

// TLS returns the settings of a connection.
func (s Server) TLS() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.Name}
	if len(s.Authorities) > 0 {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(s.Authorities) {
			return nil, errors.New("there is no certificate of an authority in PEM")
		}
	}
	if len(s.Certificate) == 0 {
		return c, nil
	}
	own, err := tls.X509KeyPair(s.Certificate, s.Key)
	if err != nil {
		return nil, err
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
	return c, nil
}

// maxHeader bounds the header of an answer, in bytes.
const maxHeader = 16 << 10

// Transport returns a transport to the server, which uses the proxies of the environment unless there is a socket.
func (s Server) Transport() (*http.Transport, error) {
	c, err := s.TLS()
	if err != nil {
		return nil, err
	}
	dial := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dial.DialContext, TLSClientConfig: c, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 30 * time.Second, MaxIdleConns: 16, MaxResponseHeaderBytes: maxHeader,
	}
	if s.Socket != "" {
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial.DialContext(ctx, "unix", s.Socket)
		}
	}
	return t, nil
}
