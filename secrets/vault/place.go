package vault

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"

	"github.com/custody-project/custody/internal/regular"
)

// Place is what a Broker uses of the host, besides the network. A Broker without privileges has that of another process. It is safe for
// concurrent use.
type Place interface {
	// Credential returns what is in the file of the login: TokenFile, SecretIDFile or JWTFile.
	Credential() (string, error)
	// Trust returns what is in the files of certificates.
	Trust() (Trust, error)
	// Dial connects to the socket of an address unix://PATH.
	Dial(ctx context.Context) (net.Conn, error)
	// Audit opens Vault's audit log. It returns nil if that is still the known file, which is nil at first.
	Audit(known fs.FileInfo) (*os.File, error)
	// Addresses returns those of this host.
	Addresses() ([]net.IP, error)

	SaveNote(name string, n Note) error
	RemoveNote(name string) error
	// Notes returns all notes by name, and the errors of those that cannot be read.
	Notes() (map[string]Note, error)
}

// Trust has certificates in PEM. Without authorities, those of the system are used.
type Trust struct{ Authorities, Certificate, Key []byte }

// apply adds the certificates to c.
func (t Trust) apply(c *tls.Config) error {
	if len(t.Authorities) > 0 {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(t.Authorities) {
			return errors.New("there is no certificate of an authority in PEM")
		}
	}
	if len(t.Certificate) == 0 {
		return nil
	}
	own, err := tls.X509KeyPair(t.Certificate, t.Key)
	if err != nil {
		return err
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
	return nil
}

// Here returns the Place of a process that can open the files of c.
func Here(c Config) Place { return here{c} }

// place returns the configured Place.
func (c Config) place() Place {
	if c.Place != nil {
		return c.Place
	}
	return here{c}
}

// here is the Place of this process.
type here struct{ c Config }

// Credential implements Place.
func (h here) Credential() (string, error) {
	switch h.c.Login {
	case LoginAppRole:
		return readSecret(h.c.SecretIDFile, false)
	case LoginKubernetes, LoginJWT:
		path := h.c.JWTFile
		if h.c.Login == LoginKubernetes && path == "" {
			path = kubernetesToken
		}
		// Kubernetes chooses the mode of the file that it mounts into a pod.
		return readSecret(path, path == kubernetesToken)
	}
	return readSecret(h.c.TokenFile, false)
}

// maxTrust bounds the size of certificates.
const maxTrust = 4 << 20

// Trust implements Place.
func (h here) Trust() (t Trust, err error) {
	if h.c.CACert != "" {
		t.Authorities, err = regular.Given(context.Background(), h.c.CACert, maxTrust)
	} else if h.c.CAPath != "" {
		t.Authorities, err = regular.ReadTree(h.c.CAPath, maxTrust)
	}
	if err != nil || h.c.ClientCert == "" {
		return t, err
	}
	if t.Certificate, err = regular.Given(context.Background(), h.c.ClientCert, maxTrust); err == nil {
		t.Key, err = regular.Given(context.Background(), h.c.ClientKey, maxTrust)
	}
	return t, err
}

// Dial implements Place.
func (h here) Dial(ctx context.Context) (net.Conn, error) {
	path, ok := strings.CutPrefix(h.c.Address, unixScheme)
	if !ok {
		return nil, errors.New("the address of Vault is not a unix socket")
	}
	return (&net.Dialer{Timeout: patience}).DialContext(ctx, "unix", path)
}

// Audit implements Place.
func (h here) Audit(known fs.FileInfo) (*os.File, error) { return openOther(h.c.Audit, known) }

// openOther opens the regular file at path, unless it is the known one.
func openOther(path string, known fs.FileInfo) (*os.File, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case known != nil && os.SameFile(info, known):
		return nil, nil
	case !info.Mode().IsRegular():
		return nil, errors.New(path + " is not a regular file")
	}
	return os.Open(path)
}

// Addresses implements Place.
func (h here) Addresses() ([]net.IP, error) {
	all, err := net.InterfaceAddrs()
	var list []net.IP
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			list = append(list, n.IP)
		}
	}
	return list, err
}
