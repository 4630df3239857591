package guest_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/vmm/vmtest"
)

// authority makes a CA and, signed by it, a server's certificate and key, all PEM.
func authority(t *testing.T) (ca, leaf, key string) {
	t.Helper()
	sign := func(tmpl, parent *x509.Certificate, pub *ecdsa.PublicKey, by *ecdsa.PrivateKey) string {
		der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, pub, by)
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	var keys [2]*ecdsa.PrivateKey
	for i := range keys {
		var err error
		if keys[i], err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	from, to := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Custody Sandbox r-" + rand.Text()[:8], Organization: []string{"Custody"}},
		NotBefore: from, NotAfter: to, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	server := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"}, NotBefore: from, NotAfter: to}
	der, err := x509.MarshalPKCS8PrivateKey(keys[1])
	if err != nil {
		t.Fatal(err)
	}
	return sign(root, root, &keys[0].PublicKey, keys[0]), sign(server, root, &keys[1].PublicKey, keys[0]),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// clients ask a TLS server in the cell; each writes one line.
const clients = `
	curl -sS https://localhost:8443/hello
	python3 -c '
import socket, ssl
c = ssl.create_default_context().wrap_socket(socket.create_connection(("localhost", 8443)), server_hostname="localhost")
print(c.version())'
	git ls-remote https://localhost:8443/r 2>&1 | grep -o -e "not valid" -e "certificate verification failed"`

const served = "hello\nTLSv1.3\nnot valid\n"

// TestTrust: programs trust the host's certificates for the names that the
// system has for them and by their environment, and in the template's as before.
func TestTrust(t *testing.T) {
	ca, leaf, key := authority(t)
	m := vmtest.Restore(t, vmtest.Options{Trust: []byte(ca)})
	said := m.Bash(fmt.Sprintf(`
		printf %%s '%s' > /srv/leaf.pem; printf %%s '%s' > /srv/leaf.key; echo hello > /srv/hello
		cat /etc/ssl/custody/ca.pem
		for f in /usr/share/ca-certificates/mozilla/*; do echo x; done | wc -l
		grep -c BEGIN /etc/ssl/certs/ca-certificates.crt
		od -An -tu1 -j11 -N1 /etc/ssl/custody/java.jks
		cmp /etc/ssl/custody/ca.pem /usr/local/share/ca-certificates/custody.crt`, leaf, key))
	rest, ok := strings.CutPrefix(said, ca)
	var template, bundle, java int
	if _, err := fmt.Sscan(rest, &template, &bundle, &java); !ok || err != nil || template < 100 || bundle != template+1 || java != bundle {
		t.Errorf("the template has %d certificates, the bundle %d, Java %d (%v): %s", template, bundle, java, err, said)
	}
	const server = `cd /srv; openssl s_server -quiet -accept 8443 -cert leaf.pem -key leaf.key -WWW >/dev/null 2>&1 &
		until (: < /dev/tcp/localhost/8443) 2>/dev/null; do sleep 0.1; done
		cd /workspace`
	if got := m.Bash(server + clients); got != served {
		t.Errorf("by the system's names: %q", got)
	}
	// The environment alone must do as well: the system's names lead to nothing now.
	var env []string
	for _, kv := range channel.TrustEnv() {
		env = append(env, strings.Replace(kv, channel.TrustBundle, "/srv/bundle", 1))
	}
	if got := m.Bash("mv /etc/ssl/certs/ca-certificates.crt /srv/bundle; mv /etc/ssl/certs /etc/ssl/gone; "+server+clients, env...); got != served {
		t.Errorf("by the environment: %q", got)
	}
}

// TestNoTrust: the template's own trustFiles are what they were when the host has no certificate to be trusted.
func TestNoTrust(t *testing.T) {
	m := vmtest.Restore(t, vmtest.Options{})
	got := m.Bash(`cd /etc/ssl/custody; ls; [ -s ca.pem ] && echo TRUSTED
		for f in /usr/share/ca-certificates/mozilla/*; do cat $f; done | cmp - /etc/ssl/certs/ca-certificates.crt`)
	if got != "ca.pem\njava.jks\n" {
		t.Errorf("said %q", got)
	}
}

// TestTrustRefused: a guest that is to trust what is no certificate does not wake.
func TestTrustRefused(t *testing.T) {
	ca, _, _ := authority(t)
	for _, bad := range []string{"nonsense", ca + ca} {
		if _, err := vmtest.TryRestore(t, vmtest.Options{Trust: []byte(bad)}); err == nil || !strings.Contains(err.Error(), "certificates in PEM to be trusted") {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
}
