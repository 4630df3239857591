package stamp

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// authority is a real TSA: `openssl ts` behind an HTTP server on loopback, used as its manual describes.
//
//	Client --POST query--> loopback --stdin--> openssl ts -reply --> response
type authority struct {
	dir  string
	url  string
	ca   []byte // PEM
	mu   sync.Mutex
	edit func(query []byte) []byte // alters a query in transit
}

// kind describes how an authority's certificate differs from a valid one.
type kind struct {
	usage    []x509.ExtKeyUsage
	lenient  bool // the usage is not critical
	from, to time.Duration
	digest   string // of ESSCertID; sha256 by default
}

func newAuthority(t testing.TB, k kind) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir(), edit: func(q []byte) []byte { return q }}
	if k.usage == nil {
		k.usage = []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping}
	}
	if k.to == 0 {
		k.from, k.to = -time.Hour, time.Hour
	}
	if k.digest == "" {
		k.digest = "sha256"
	}
	a.certificates(t, k)
	conf := fmt.Sprintf("[tsa]\ndefault_tsa = t\n[t]\nserial = %s/serial\nsigner_cert = %[1]s/tsa.pem\nsigner_key = %[1]s/tsa.key\n"+
		"certs = %[1]s/ca.pem\ndefault_policy = 1.2.3.4\nsigner_digest = sha256\ndigests = sha256, sha512\naccuracy = secs:1\ness_cert_id_alg = %s\n", a.dir, k.digest)
	write(t, filepath.Join(a.dir, "ts.conf"), []byte(conf))
	server := httptest.NewServer(http.HandlerFunc(a.serve))
	t.Cleanup(server.Close)
	a.url = server.URL
	return a
}

func (a *authority) serve(rw http.ResponseWriter, req *http.Request) {
	query, err := io.ReadAll(io.LimitReader(req.Body, 1<<20))
	if err != nil || req.Header.Get("Content-Type") != "application/timestamp-query" {
		http.Error(rw, "no query", http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock() // the serial number's file
	response, err := a.reply(req.Context(), a.edit(query))
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	rw.Header().Set("Content-Type", "application/timestamp-reply")
	rw.Write(response)
}

func (a *authority) reply(ctx context.Context, query []byte) ([]byte, error) {
	path := filepath.Join(a.dir, "query.tsq")
	if err := os.WriteFile(path, query, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "openssl", "ts", "-reply", "-config", filepath.Join(a.dir, "ts.conf"), "-queryfile", path)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("openssl: %w: %s", err, stderr.String())
	}
	return out, nil
}

// certificates makes a CA and a TSA under it.
func (a *authority) certificates(t testing.TB, k kind) {
	t.Helper()
	caKey, tsaKey := newECDSA(t), newECDSA(t)
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Test CA"}, NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER := certify(t, ca, ca, caKey.Public(), caKey)
	tsa := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "Test TSA"}, NotBefore: now.Add(k.from), NotAfter: now.Add(k.to),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
	tsa.ExtraExtensions = []pkix.Extension{usageExtension(t, k)}
	tsaDER := certify(t, tsa, ca, tsaKey.Public(), caKey)
	keyDER, err := x509.MarshalECPrivateKey(tsaKey)
	if err != nil {
		t.Fatal(err)
	}
	a.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
	write(t, filepath.Join(a.dir, "ca.pem"), a.ca)
	write(t, filepath.Join(a.dir, "tsa.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: tsaDER}))
	write(t, filepath.Join(a.dir, "tsa.key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
	write(t, filepath.Join(a.dir, "serial"), []byte("01\n"))
}

// usageExtension writes extKeyUsage by hand, since crypto/x509 never makes it critical.
func usageExtension(t testing.TB, k kind) pkix.Extension {
	t.Helper()
	oids := map[x509.ExtKeyUsage]asn1.ObjectIdentifier{
		x509.ExtKeyUsageTimeStamping: {1, 3, 6, 1, 5, 5, 7, 3, 8},
		x509.ExtKeyUsageCodeSigning:  {1, 3, 6, 1, 5, 5, 7, 3, 3},
	}
	var list []asn1.ObjectIdentifier
	for _, u := range k.usage {
		list = append(list, oids[u])
	}
	value, err := asn1.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return pkix.Extension{Id: oidExtKeyUsage, Critical: !k.lenient, Value: value}
}

func newECDSA(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func certify(t testing.TB, c, parent *x509.Certificate, public crypto.PublicKey, by crypto.Signer) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, parent, public, by)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (a *authority) roots(t testing.TB) *Roots {
	t.Helper()
	r, err := ParseRoots(a.ca)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var checkpoint = []byte("custody-test\n1\nAAAA\n\n— custody-test AAAA\n")

func TestStamp(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, kind{})
	c := Client{URL: a.url, Roots: a.roots(t)}
	response, err := c.Stamp(t.Context(), checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Verify(response, checkpoint, a.roots(t))
	if err != nil {
		t.Fatal(err)
	}
	if age := time.Since(s.Time); age < -2*time.Second || age > time.Minute || s.Authority != "CN=Test TSA" || s.Policy != "1.2.3.4" || s.Accuracy != time.Second {
		t.Errorf("it states %+v", s)
	}
	openssl(t, a, response, checkpoint) // verified by another program
	if _, err := (Client{URL: a.url}).Stamp(t.Context(), checkpoint); err != nil {
		t.Errorf("without roots: %v", err)
	}
}

// openssl checks a response with `openssl ts -verify`.
func openssl(t *testing.T, a *authority, response, signed []byte) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "r.tsr"), response)
	write(t, filepath.Join(dir, "data"), signed)
	out, err := exec.Command("openssl", "ts", "-verify", "-in", filepath.Join(dir, "r.tsr"), "-data", filepath.Join(dir, "data"),
		"-CAfile", filepath.Join(a.dir, "ca.pem")).CombinedOutput()
	if err != nil {
		t.Errorf("openssl ts -verify: %v: %s", err, out)
	}
}

// TestOldIdentifier: Verify accepts authorities that identify their certificate by SHA-1, as RFC 3161 did before RFC 5816.
func TestOldIdentifier(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, kind{digest: "sha1"})
	if _, err := (Client{URL: a.url, Roots: a.roots(t)}).Stamp(t.Context(), checkpoint); err != nil {
		t.Error(err)
	}
}

// TestWrong: Verify refuses wrong stamps and authorities, each with its error.
func TestWrong(t *testing.T) {
	t.Parallel()
	good := newAuthority(t, kind{})
	response, err := Client{URL: good.url}.Stamp(t.Context(), checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	other := newAuthority(t, kind{})
	trailing := append(bytes.Clone(response), 0)
	cases := map[string]struct {
		response, signed []byte
		roots            *Roots
		want             error
	}{
		"other bytes":     {response, append(bytes.Clone(checkpoint), '\n'), good.roots(t), ErrImprint},
		"other authority": {response, checkpoint, other.roots(t), ErrUntrusted},
		"no authority":    {response, checkpoint, nil, ErrUntrusted},
		"trailing byte":   {trailing, checkpoint, good.roots(t), ErrMalformed},
		"cut":             {response[:len(response)-1], checkpoint, good.roots(t), ErrMalformed},
		"empty":           {nil, checkpoint, good.roots(t), ErrMalformed},
		"garbage":         {[]byte("<html>not a stamp</html>"), checkpoint, good.roots(t), ErrMalformed},
		"rejected":        {mustHex("30053003020102"), checkpoint, good.roots(t), ErrRefused},
		"granted nothing": {mustHex("30053003020100"), checkpoint, good.roots(t), ErrMalformed},
		"large":           {make([]byte, maxResponse+1), checkpoint, good.roots(t), ErrMalformed},
	}
	for name, c := range cases {
		if s, err := Verify(c.response, c.signed, c.roots); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v, want %v", name, s, err, c.want)
		}
	}
	// A response has unsigned bytes (a second copy of the CA's certificate, digest
	// algorithms that CMS states twice): altering them must not alter the statement.
	want, err := Verify(response, checkpoint, good.roots(t))
	if err != nil {
		t.Fatal(err)
	}
	for at := range response {
		bad := bytes.Clone(response)
		bad[at] ^= 1
		if s, err := Verify(bad, checkpoint, good.roots(t)); err == nil && !reflect.DeepEqual(s, want) {
			t.Errorf("with byte %d altered it states %+v", at, s)
		}
	}
}

func mustHex(s string) (out []byte) {
	fmt.Sscanf(s, "%x", &out)
	return out
}

func TestWrongCertificate(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]kind{
		"expired":       {from: -2 * time.Hour, to: -time.Hour},
		"not yet valid": {from: time.Hour, to: 2 * time.Hour},
	} {
		a := newAuthority(t, k)
		if _, err := (Client{URL: a.url, Roots: a.roots(t)}).Stamp(t.Context(), checkpoint); !errors.Is(err, ErrUntrusted) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, k := range map[string]kind{ // openssl does not make stamps with these
		"for code as well": {usage: []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping, x509.ExtKeyUsageCodeSigning}},
		"for code":         {usage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}},
		"not critical":     {lenient: true},
	} {
		a := newAuthority(t, k)
		if _, err := (Client{URL: a.url, Roots: a.roots(t)}).Stamp(t.Context(), checkpoint); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestReplayed: an authority, or a party in between, sends a wrong answer.
func TestReplayed(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, kind{})
	c := Client{URL: a.url, Roots: a.roots(t)}
	first, err := c.Stamp(t.Context(), checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	for name, s := range map[string]struct {
		answer http.HandlerFunc
		want   error
	}{
		"replay": {func(rw http.ResponseWriter, _ *http.Request) { rw.Write(first) }, ErrNonce},
		"page":   {func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "<html>") }, ErrMalformed},
		"status": {func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(503) }, ErrRefused},
		"redirect": {func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, a.url, http.StatusTemporaryRedirect)
		}, ErrRefused},
		"endless": {func(rw http.ResponseWriter, _ *http.Request) { rw.Write(make([]byte, 1<<20)) }, ErrMalformed},
		"never":   {func(http.ResponseWriter, *http.Request) { <-release }, context.DeadlineExceeded},
	} {
		server := httptest.NewServer(s.answer)
		if _, err := (Client{URL: server.URL, Roots: a.roots(t), Timeout: 300 * time.Millisecond}).Stamp(t.Context(), checkpoint); !errors.Is(err, s.want) {
			t.Errorf("%s: %v, want %v", name, err, s.want)
		}
		if name == "never" {
			close(release)
		}
		server.Close()
	}
	a.mu.Lock()
	a.edit = func(q []byte) []byte { q[len(q)-20] ^= 1; return q } // the imprint or the nonce
	a.mu.Unlock()
	if _, err := c.Stamp(t.Context(), checkpoint); !errors.Is(err, ErrImprint) && !errors.Is(err, ErrNonce) {
		t.Errorf("an altered query: %v", err)
	}
}

func TestRoots(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, kind{})
	tsa, err := os.ReadFile(filepath.Join(a.dir, "tsa.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"empty": "", "garbage": "garbage", "no self-signed one": string(tsa),
		"not a certificate": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "large": strings.Repeat("x", maxRoots+1),
	} {
		if _, err := ParseRoots([]byte(data)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := LoadRoots(filepath.Join(a.dir, "ca.pem")); err != nil {
		t.Error(err)
	}
	if _, err := LoadRoots(filepath.Join(a.dir, "none.pem")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// FuzzVerify: no input crashes the parsers or takes long, and only a stamp of these bytes verifies.
func FuzzVerify(f *testing.F) {
	a := newAuthority(f, kind{})
	roots := a.roots(f)
	response, err := Client{URL: a.url}.Stamp(f.Context(), checkpoint)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(response)
	f.Add(response[:len(response)/2])
	f.Add(mustHex("30053003020102"))
	f.Add([]byte{})
	want, err := Verify(response, checkpoint, roots)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := Verify(data, checkpoint, roots); err == nil && !reflect.DeepEqual(s, want) {
			t.Errorf("%x states %+v", data, s)
		}
		if _, err := Verify(data, []byte("something else"), roots); err == nil {
			t.Errorf("%x is a stamp of something else", data)
		}
	})
}
