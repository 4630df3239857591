package proof

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"time"

	"github.com/digitorus/timestamp"

	"github.com/custody-project/custody/audit/proof/verdict"
)

// stamped checks the RFC 3161 time stamp over the checkpoint's bytes, with the cosignatures
// that it had when it was stamped. If no authority is trusted, a stamp proves nothing.
func (l *logCheck) stamped(_ context.Context) error {
	response, err := l.src.stamp()
	switch {
	case err != nil:
		return err
	case response == nil && l.v.trust.Stamped:
		return verdict.Broken(verdict.ErrNoStamp, 0, stampFile, "")
	case response == nil:
		return nil
	}
	if l.stamps.roots == nil {
		if l.v.trust.Stamped {
			l.v.doubt(verdict.Open(verdict.ErrStampUntrusted, stampFile, "no authority is trusted"))
		}
		return nil
	}
	t, signer, err := stampedOver(stampFile, response, l.cp.note)
	if err != nil {
		return err
	}
	if err := l.stamps.accept(t, signer); err != nil {
		l.v.doubt(verdict.Open(verdict.ErrStampUntrusted, stampFile, "%v", err))
		return nil
	}
	l.v.report.Published.Stamp, l.v.report.Published.Authority = t.Time.UTC(), signer.Subject.String()
	return nil
}

// authorities are the trusted time-stamping authorities; without roots there are none.
type authorities struct{ roots *x509.CertPool }

// stampedOver opens a stamp and checks that it is over a checkpoint's bytes.
func stampedOver(file string, response, checkpoint []byte) (*timestamp.Timestamp, *x509.Certificate, error) {
	t, signer, err := openStamp(response)
	if err != nil {
		return nil, nil, verdict.Broken(verdict.ErrStamp, 0, file, "%v", err)
	}
	h := t.HashAlgorithm.New()
	h.Write(checkpoint)
	if !bytes.Equal(h.Sum(nil), t.HashedMessage) {
		return nil, nil, verdict.Broken(verdict.ErrStampedOther, 0, file, "it is over %x", t.HashedMessage)
	}
	return t, signer, nil
}

// over returns when an earlier checkpoint was stamped; zero if it was not, or not by a trusted authority.
func (a authorities) over(file string, response, checkpoint []byte) (time.Time, error) {
	if response == nil || a.roots == nil {
		return time.Time{}, nil
	}
	t, signer, err := stampedOver(file, response, checkpoint)
	if err != nil || a.accept(t, signer) != nil {
		return time.Time{}, err
	}
	return t.Time.UTC(), nil
}

// accept checks that the signer's certificate is for time stamping only, marked critical (RFC 3161, section 2.3), and
// was issued by a trusted authority.
func (a authorities) accept(t *timestamp.Timestamp, signer *x509.Certificate) error {
	_, err := signer.Verify(x509.VerifyOptions{
		Roots: a.roots, Intermediates: pool(t.Certificates), CurrentTime: t.Time,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping},
	})
	if err != nil {
		return err
	}
	extended := asn1.ObjectIdentifier{2, 5, 29, 37} // extKeyUsage, RFC 5280, section 4.2.1.12
	for _, e := range signer.Extensions {
		if e.Id.Equal(extended) && e.Critical && len(signer.ExtKeyUsage) == 1 && len(signer.UnknownExtKeyUsage) == 0 {
			return nil
		}
	}
	return errors.New("its certificate is not for time stamping only")
}

func pool(certificates []*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range certificates {
		p.AddCert(c)
	}
	return p
}
