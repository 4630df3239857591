package access_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	stdlog "log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/replay/access"
)

// certificate writes a self-signed one for 127.0.0.1 with this serial number.
func certificate(t *testing.T, dir string, serial int64) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "custody"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	put(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	put(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
	return cert, key
}

func put(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestTLS: a session over TLS, a certificate that is exchanged while the server runs, and old protocols.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificate(t, dir, 1)
	var mu sync.Mutex
	var warned []string
	warn := func(w string) {
		mu.Lock()
		defer mu.Unlock()
		warned = append(warned, w)
	}
	conf, err := access.TLSConfig(cert, key, warn)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, access.Config{Listen: l.Addr().String(), Cert: cert, Key: key})
	server := &http.Server{Handler: s.mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: quiet(), TLSConfig: conf}
	var served sync.WaitGroup
	served.Go(func() { server.ServeTLS(l, "", "") })
	t.Cleanup(func() { server.Close(); served.Wait() })
	base := "https://" + l.Addr().String() + "/"

	serial := func(max uint16) (int64, error) {
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true, MaxVersion: max, MinVersion: tls.VersionTLS10})
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
	}
	if n, err := serial(0); n != 1 || err != nil {
		t.Errorf("certificate %d, %v", n, err)
	}
	if _, err := serial(tls.VersionTLS11); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
	if _, err := serial(tls.VersionTLS12); err != nil {
		t.Errorf("TLS 1.2: %v", err)
	}

	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	resp, err := client.Post(base+"api/v1/session", "application/json", strings.NewReader(`{"token":"`+s.token(t, "ann", "acme", access.Viewer)+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	got := resp.Cookies()
	if resp.StatusCode != 201 || resp.ProtoMajor != 2 || len(got) != 1 || got[0].Name != "__Host-custody_session" || !got[0].Secure {
		t.Fatalf("login: %d %s %v", resp.StatusCode, resp.Proto, got)
	}
	req, _ := http.NewRequest("GET", base+"api/v1/viewer/r", nil)
	req.AddCookie(got[0])
	if resp, err := client.Do(req); err != nil || resp.StatusCode != 200 {
		t.Errorf("the session: %v %v", resp, err)
	} else {
		resp.Body.Close()
	}

	put(t, cert, []byte("half of it"))
	time.Sleep(1100 * time.Millisecond)
	if n, err := serial(0); n != 1 || err != nil {
		t.Errorf("with a broken file: certificate %d, %v", n, err)
	}
	mu.Lock()
	if len(warned) != 1 {
		t.Errorf("warned %q", warned)
	}
	mu.Unlock()
	certificate(t, dir, 2)
	time.Sleep(1100 * time.Millisecond)
	if n, err := serial(0); n != 2 || err != nil {
		t.Errorf("after the exchange: certificate %d, %v", n, err)
	}
	// Without TLS there is no answer that could carry anything.
	if resp, err := http.Get("http://" + l.Addr().String() + "/api/v1/session"); err == nil {
		resp.Body.Close()
		if resp.StatusCode != 400 || len(resp.Cookies()) != 0 {
			t.Errorf("in the clear: %d", resp.StatusCode)
		}
	}
}

func TestBadCertificate(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificate(t, dir, 1)
	if _, err := access.TLSConfig(cert, cert, nil); err == nil {
		t.Error("a certificate is taken for a key")
	}
	if _, err := access.TLSConfig(cert, filepath.Join(dir, "none"), nil); err == nil {
		t.Error("a key that is not there is taken")
	}
	other := t.TempDir()
	_, otherKey := certificate(t, other, 2)
	if _, err := access.TLSConfig(cert, otherKey, nil); err == nil {
		t.Error("another certificate's key is taken")
	}
	if _, err := access.TLSConfig(cert, key, nil); err != nil {
		t.Error(err)
	}
}

// quiet is for servers whose clients go wrong on purpose.
func quiet() *stdlog.Logger { return stdlog.New(io.Discard, "", 0) }
