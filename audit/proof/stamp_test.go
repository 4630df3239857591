package proof_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"maps"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/digitorus/timestamp"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/verdict"
)

// authority is a time-stamping authority with its own root.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	root *x509.Certificate
}

var (
	forStamps  = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 8}
	forServers = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 1}
)

func newAuthority(t testing.TB, usage asn1.ObjectIdentifier, critical bool) authority {
	t.Helper()
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := func(name string, ca bool) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
			NotAfter: time.Now().Add(time.Hour), IsCA: ca, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		}
	}
	root, leaf := template("test root", true), template("test authority", false)
	root.KeyUsage = x509.KeyUsageCertSign
	leaf.SerialNumber = big.NewInt(8)
	leaf.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Critical: critical, Value: must(asn1.Marshal([]asn1.ObjectIdentifier{usage}))}}
	sign := func(c, by *x509.Certificate, public crypto.PublicKey) *x509.Certificate {
		der, err := x509.CreateCertificate(rand.Reader, c, by, public, rootKey)
		check(t, err)
		return must(x509.ParseCertificate(der))
	}
	root = sign(root, root, rootKey.Public())
	return authority{key, sign(leaf, root, key.Public()), root}
}

func (a authority) stamp(t testing.TB, data []byte, bare bool) []byte {
	t.Helper()
	sum := sha256.Sum256(data)
	response, err := (&timestamp.Timestamp{
		HashAlgorithm: crypto.SHA256, HashedMessage: sum[:], Time: time.Now(), Policy: asn1.ObjectIdentifier{1, 2, 3},
		AddTSACertificate: !bare,
	}).CreateResponseWithOpts(a.cert, a.key, crypto.SHA256)
	check(t, err)
	return response
}

func (a authority) roots() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.root)
	return p
}

func TestStamp(t *testing.T) {
	w := newWorld(t)
	a, other := newAuthority(t, forStamps, true), newAuthority(t, forStamps, true)
	odd, lax := newAuthority(t, forServers, true), newAuthority(t, forStamps, false)
	o := w.options()
	o.Stamp = a.stamp(t, w.log.last, false)
	var b bytes.Buffer
	check(t, proof.WriteBundle(t.Context(), &b, w.one, o))
	truth := unpack(t, b.Bytes())
	trust := w.trust()
	trust.Authorities, trust.Stamped = a.roots(), true
	r, err := truth.verify(t, trust)
	check(t, err)
	if time.Since(r.Published.Stamp) > time.Minute || r.Published.Authority != "CN=test authority" {
		t.Errorf("%+v", r.Published)
	}
	for title, c := range map[string]struct {
		change  func(f files, t *proof.Trust)
		finding *verdict.Finding
	}{
		"dropped":             {func(f files, _ *proof.Trust) { delete(f, "checkpoint.tsr") }, verdict.ErrNoStamp},
		"another checkpoint":  {func(f files, _ *proof.Trust) { f["checkpoint.tsr"] = a.stamp(t, w.before, false) }, verdict.ErrStampedOther},
		"signature":           {func(f files, _ *proof.Trust) { f["checkpoint.tsr"] = flipped(f["checkpoint.tsr"], -5) }, verdict.ErrStamp},
		"no certificate":      {func(f files, _ *proof.Trust) { f["checkpoint.tsr"] = a.stamp(t, w.log.last, true) }, verdict.ErrStamp},
		"trailing":            {func(f files, _ *proof.Trust) { f["checkpoint.tsr"] = append(bytes.Clone(f["checkpoint.tsr"]), 0) }, verdict.ErrStamp},
		"garbage":             {func(f files, _ *proof.Trust) { f["checkpoint.tsr"] = []byte("hello") }, verdict.ErrStamp},
		"another authority":   {func(f files, _ *proof.Trust) { f["checkpoint.tsr"] = other.stamp(t, w.log.last, false) }, verdict.ErrStampUntrusted},
		"no authority at all": {func(_ files, t *proof.Trust) { t.Authorities = nil }, verdict.ErrStampUntrusted},
		"another purpose": {func(f files, tr *proof.Trust) {
			f["checkpoint.tsr"], tr.Authorities = odd.stamp(t, w.log.last, false), odd.roots()
		}, verdict.ErrStampUntrusted},
		"purpose not critical": {func(f files, tr *proof.Trust) {
			f["checkpoint.tsr"], tr.Authorities = lax.stamp(t, w.log.last, false), lax.roots()
		}, verdict.ErrStampUntrusted},
	} {
		t.Run(title, func(t *testing.T) {
			f, trust := maps.Clone(truth), trust
			c.change(f, &trust)
			_, err := f.seal(t, w.key).verify(t, trust)
			var v *verdict.Verdict
			if !errors.As(err, &v) || v.Finding != c.finding {
				t.Errorf("got %v, want %q", err, c.finding)
			}
		})
	}
	for at := 0; at < len(truth["checkpoint.tsr"]); at += 3 {
		f := maps.Clone(truth)
		f["checkpoint.tsr"] = flipped(f["checkpoint.tsr"], at)
		if _, err := f.verify(t, trust); err == nil && !sameStamp(t, truth["checkpoint.tsr"], f["checkpoint.tsr"]) {
			t.Errorf("byte %d of the stamp is flipped, and no error reports it", at)
		}
	}
	t.Run("openssl", func(t *testing.T) { opensslStamp(t, truth, a) })
}

// sameStamp reports whether two responses hold the same signed token in other wrapping.
func sameStamp(t testing.TB, a, b []byte) bool {
	t.Helper()
	x, err := timestamp.ParseResponse(a)
	check(t, err)
	y, err := timestamp.ParseResponse(b)
	return err == nil && x.Time.Equal(y.Time) && bytes.Equal(x.HashedMessage, y.HashedMessage)
}

func flipped(b []byte, at int) []byte {
	b = bytes.Clone(b)
	if at < 0 {
		at += len(b)
	}
	b[at] ^= 1
	return b
}

// opensslStamp checks the same with OpenSSL, as docs/verify.md describes.
func opensslStamp(t *testing.T, f files, a authority) {
	dir := t.TempDir()
	pem := exec.Command("openssl", "x509", "-inform", "der", "-out", filepath.Join(dir, "tsa.pem"))
	pem.Stdin = bytes.NewReader(a.root.Raw)
	check(t, pem.Run())
	for _, n := range []string{"checkpoint", "checkpoint.tsr"} {
		check(t, os.WriteFile(filepath.Join(dir, n), f[n], 0o600))
	}
	c := exec.Command("openssl", "ts", "-verify", "-data", "checkpoint", "-in", "checkpoint.tsr", "-CAfile", "tsa.pem")
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("openssl ts: %v\n%s", err, out)
	}
}
