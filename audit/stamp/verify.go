package stamp

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/digitorus/pkcs7"
	"github.com/digitorus/timestamp"

	"github.com/custody-project/custody/internal/regular"
)

// Roots are the certificates of trusted authorities, and intermediate certificates.
type Roots struct {
	roots   *x509.CertPool
	between []*x509.Certificate
}

// maxRoots bounds a file of certificates, in bytes.
const maxRoots = 4 << 20

// LoadRoots reads certificates from a PEM file. Self-signed ones are trusted; others
// are intermediates on the path from a TSA's certificate to a trusted one.
func LoadRoots(path string) (*Roots, error) {
	data, err := regular.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r, err := ParseRoots(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// ParseRoots is LoadRoots for the contents of such a file.
func ParseRoots(data []byte) (*Roots, error) {
	if len(data) > maxRoots {
		return nil, fmt.Errorf("more than %d bytes of certificates", maxRoots)
	}
	r := &Roots{roots: x509.NewCertPool()}
	trusted := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate: %w", err)
		}
		if bytes.Equal(c.RawSubject, c.RawIssuer) && c.CheckSignatureFrom(c) == nil {
			r.roots.AddCert(c)
			trusted++
		} else {
			r.between = append(r.between, c)
		}
	}
	if trusted == 0 {
		return nil, errors.New("no self-signed certificate of an authority (PEM)")
	}
	return r, nil
}

var (
	oidTSTInfo       = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 1, 4}
	oidSigningCert   = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 2, 12}
	oidSigningCertV2 = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 2, 47}
	oidExtKeyUsage   = asn1.ObjectIdentifier{2, 5, 29, 37}
	oidSHA256        = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}
)

// open parses a response and checks what needs no trust: that it is signed by the one certificate that
// it names, as a time stamp. The library does not check the type of the signed
// data, nor which certificate the signer named (RFC 3161 section 2.4.2, RFC 5816).
func open(response []byte) (t *timestamp.Timestamp, p *pkcs7.PKCS7, err error) {
	if len(response) > maxResponse {
		return nil, nil, fmt.Errorf("%w: more than %d bytes", ErrMalformed, maxResponse)
	}
	defer func() { // the parser panics on some malformed input
		if r := recover(); r != nil {
			t, p, err = nil, nil, fmt.Errorf("%w: %v", ErrMalformed, r)
		}
	}()
	token, err := granted(response)
	if err != nil {
		return nil, nil, err
	}
	if p, err = pkcs7.Parse(token); err == nil {
		err = checkSigned(p)
	}
	if err == nil {
		t, err = timestamp.Parse(token)
	}
	if err != nil && !errors.Is(err, ErrUntrusted) {
		err = fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if err != nil {
		return nil, nil, err
	}
	return t, p, nil
}

func checkSigned(p *pkcs7.PKCS7) error {
	signer := p.GetOnlySigner()
	if signer == nil {
		return errors.New("it does not have exactly one signer's certificate")
	}
	var kind asn1.ObjectIdentifier
	if err := p.UnmarshalSignedAttribute(pkcs7.OIDAttributeContentType, &kind); err != nil || !kind.Equal(oidTSTInfo) {
		return fmt.Errorf("the signed data is of type %v", kind)
	}
	if err := meant(p, signer); err != nil {
		return err
	}
	var at time.Time
	if p.UnmarshalSignedAttribute(pkcs7.OIDAttributeSigningTime, &at) == nil && (at.Before(signer.NotBefore) || at.After(signer.NotAfter)) {
		return fmt.Errorf("%w: its certificate was not valid on %s", ErrUntrusted, at.UTC())
	}
	return p.Verify()
}

// meant checks that the signer's certificate is the one that the signer signed as its own.
func meant(p *pkcs7.PKCS7, signer *x509.Certificate) error {
	var v2 struct {
		Certs []struct {
			Hash   pkix.AlgorithmIdentifier `asn1:"optional"` // SHA-256 if left out
			Digest []byte
			Issuer asn1.RawValue `asn1:"optional"`
		}
		Policies asn1.RawValue `asn1:"optional"`
	}
	var v1 struct {
		Certs []struct {
			Digest []byte
			Issuer asn1.RawValue `asn1:"optional"`
		}
		Policies asn1.RawValue `asn1:"optional"`
	}
	sum, old := sha256.Sum256(signer.Raw), sha1.Sum(signer.Raw)
	switch {
	case p.UnmarshalSignedAttribute(oidSigningCertV2, &v2) == nil && len(v2.Certs) > 0:
		if alg := v2.Certs[0].Hash.Algorithm; len(alg) > 0 && !alg.Equal(oidSHA256) {
			return fmt.Errorf("it names its certificate by the digest %v, which is not supported", alg)
		}
		if bytes.Equal(v2.Certs[0].Digest, sum[:]) {
			return nil
		}
	case p.UnmarshalSignedAttribute(oidSigningCert, &v1) == nil && len(v1.Certs) > 0:
		if bytes.Equal(v1.Certs[0].Digest, old[:]) {
			return nil
		}
	}
	return errors.New("its certificate is not the one that the signer named")
}

// attested returns the certificate of the authority if roots attest it at that time, for time stamping only (RFC 3161,
// section 2.3).
func attested(p *pkcs7.PKCS7, at time.Time, roots *Roots) (*x509.Certificate, error) {
	if roots == nil {
		return nil, fmt.Errorf("%w: no authority is trusted", ErrUntrusted)
	}
	signer := p.GetOnlySigner()
	between := x509.NewCertPool()
	for _, c := range append(p.Certificates, roots.between...) {
		between.AddCert(c)
	}
	_, err := signer.Verify(x509.VerifyOptions{
		Roots: roots.roots, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping},
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	if len(signer.ExtKeyUsage) != 1 || len(signer.UnknownExtKeyUsage) > 0 || !critical(signer) {
		return nil, fmt.Errorf("%w: its certificate is not for time stamping only", ErrUntrusted)
	}
	return signer, nil
}

func critical(c *x509.Certificate) bool {
	for _, e := range c.Extensions {
		if e.Id.Equal(oidExtKeyUsage) {
			return e.Critical
		}
	}
	return false
}
