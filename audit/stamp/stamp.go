// Package stamp requests time stamps of checkpoints from a time-stamping authority (TSA, RFC 3161) and verifies them.
//
// A stamp covers the SHA-256 of the signed note's bytes, with the cosignatures that it had at that time. Client returns
// the authority's complete response (the .tsr file of `openssl ts`), so that any other
// tool can verify it.
package stamp

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"encoding/asn1"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"time"

	"github.com/digitorus/timestamp"
)

// Errors of a stamp, wrapped with details.
var (
	// ErrMalformed: it is not a stamp, or violates RFC 3161.
	ErrMalformed = errors.New("not a time stamp")
	// ErrImprint: the stamp covers other bytes.
	ErrImprint = errors.New("the time stamp covers other data")
	// ErrNonce: the stamp answers another request.
	ErrNonce = errors.New("the time stamp answers another request")
	// ErrUntrusted: no trusted authority attests the signer's certificate at the stated time.
	ErrUntrusted = errors.New("the time stamp is not by a trusted authority")
	// ErrRefused: the authority did not issue a stamp.
	ErrRefused = errors.New("the time-stamping authority refuses")
)

const (
	maxResponse    = 64 << 10 // bytes
	defaultTimeout = 10 * time.Second
)

// Client requests stamps from one authority. It is safe for concurrent use.
type Client struct {
	URL string
	// Roots, if set, must attest every accepted stamp; without them only the match with the request is checked.
	Roots *Roots
	// Timeout bounds one request; 0: 10 s.
	Timeout time.Duration
	// Transport carries the request; nil: http.DefaultTransport.
	Transport http.RoundTripper
}

// Stamp returns the authority's response for a signed note: a stamp of its SHA-256 with
// the nonce of this request.
func (c Client) Stamp(ctx context.Context, signed []byte) (response []byte, err error) {
	nonce, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 64))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(signed)
	query, err := (&timestamp.Request{HashAlgorithm: crypto.SHA256, HashedMessage: sum[:], Certificates: true, Nonce: nonce}).Marshal()
	if err != nil {
		return nil, err
	}
	response, err = c.ask(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("ask %s for a time stamp: %w", c.URL, err)
	}
	if err := c.accept(response, signed, nonce); err != nil {
		return nil, fmt.Errorf("the answer of %s: %w", c.URL, err)
	}
	return response, nil
}

// ask posts a query (RFC 3161, section 3.4).
func (c Client) ask(ctx context.Context, query []byte) ([]byte, error) {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(query))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/timestamp-query")
	req.Header["Idempotency-Key"] = nil // the request is idempotent: see net/http.Transport
	client := http.Client{Transport: c.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%w: status %d", ErrRefused, resp.StatusCode)
	case len(data) > maxResponse:
		return nil, fmt.Errorf("%w: more than %d bytes", ErrMalformed, maxResponse)
	}
	return data, nil
}

// accept checks that a response answers the request.
func (c Client) accept(response, signed []byte, nonce *big.Int) error {
	t, _, err := open(response)
	if err != nil {
		return err
	}
	if t.Nonce == nil || t.Nonce.Cmp(nonce) != 0 {
		return ErrNonce
	}
	if c.Roots != nil {
		_, err = Verify(response, signed, c.Roots)
		return err
	}
	return imprint(t, signed)
}

// Stamp is an authority's statement.
type Stamp struct {
	Time      time.Time // UTC
	Accuracy  time.Duration
	Authority string // subject of its certificate
	Policy    string // OID of the policy that the authority followed
	Serial    *big.Int
}

// Verify verifies that response is a stamp of signed by an authority that roots attest. The authority's certificate must
// have been valid at the stated time: a stamp outlives the certificate. Revocation is not checked: with a stolen key of
// an authority, an attacker can make stamps of any time.
func Verify(response, signed []byte, roots *Roots) (Stamp, error) {
	t, p, err := open(response)
	if err != nil {
		return Stamp{}, err
	}
	if err := imprint(t, signed); err != nil {
		return Stamp{}, err
	}
	authority, err := attested(p, t.Time, roots)
	if err != nil {
		return Stamp{}, err
	}
	return Stamp{
		Time: t.Time.UTC(), Accuracy: t.Accuracy, Authority: authority.Subject.String(),
		Policy: t.Policy.String(), Serial: t.SerialNumber,
	}, nil
}

// imprint checks that the stamp covers signed.
func imprint(t *timestamp.Timestamp, signed []byte) error {
	sum := sha256.Sum256(signed)
	if t.HashAlgorithm != crypto.SHA256 || !bytes.Equal(t.HashedMessage, sum[:]) {
		return fmt.Errorf("%w: its imprint is %v %x", ErrImprint, t.HashAlgorithm, t.HashedMessage)
	}
	return nil
}

// status is a response without its token (RFC 3161, section 2.4.2).
type status struct {
	Info  asn1.RawValue
	Token asn1.RawValue `asn1:"optional"`
}

// pkiStatus is the beginning of PKIStatusInfo.
type pkiStatus struct {
	Status int
	Text   []string       `asn1:"optional,utf8"`
	Fail   asn1.BitString `asn1:"optional"`
}

// granted returns the token of a response that has one.
func granted(response []byte) (token []byte, err error) {
	var s status
	rest, err := asn1.Unmarshal(response, &s)
	if err != nil || len(rest) > 0 {
		return nil, fmt.Errorf("%w: not a response of an authority: %v", ErrMalformed, err)
	}
	var info pkiStatus
	if _, err := asn1.Unmarshal(s.Info.FullBytes, &info); err != nil {
		return nil, fmt.Errorf("%w: status: %v", ErrMalformed, err)
	}
	if info.Status != 0 && info.Status != 1 { // granted, granted with modifications
		return nil, fmt.Errorf("%w: status %d %.200q", ErrRefused, info.Status, info.Text)
	}
	if len(s.Token.FullBytes) == 0 {
		return nil, fmt.Errorf("%w: the response has no token", ErrMalformed)
	}
	return s.Token.FullBytes, nil
}
