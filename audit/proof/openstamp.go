package proof

import (
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"

	"github.com/digitorus/pkcs7"
	"github.com/digitorus/timestamp"
)

// openStamp parses a response and checks that the certificate in it signed it.
func openStamp(response []byte) (t *timestamp.Timestamp, signer *x509.Certificate, err error) {
	defer func() { // the parsers are a library's, and their input is untrusted
		if r := recover(); r != nil {
			err = fmt.Errorf("it cannot be parsed: %v", r)
		}
	}()
	if t, err = timestamp.ParseResponse(response); err != nil {
		return nil, nil, err
	}
	p, err := pkcs7.Parse(t.RawToken)
	if err != nil {
		return nil, nil, err
	}
	if signer = p.GetOnlySigner(); signer == nil || !t.HashAlgorithm.Available() {
		return nil, nil, errors.New("it does not have the certificate of exactly one signer")
	}
	var kind asn1.ObjectIdentifier
	tstInfo := asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 1, 4} // RFC 3161, section 2.4.2
	if err := p.UnmarshalSignedAttribute(pkcs7.OIDAttributeContentType, &kind); err != nil || !kind.Equal(tstInfo) {
		return nil, nil, errors.New("the signed data is not a time stamp")
	}
	return t, signer, p.Verify()
}
