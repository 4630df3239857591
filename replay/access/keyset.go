package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// errAway means that the issuer did not answer, so that a token cannot be verified.
var errAway = errors.New("the issuer is away")

// errKey means that no key of the issuer's fits a token.
var errKey = errors.New("no key of the issuer's fits")

// keySet has the issuer's public keys. They are fetched when a token names one that is not
// known, and again when they are old: a new key works immediately, and one that the issuer
// withdrew stops working. Requests to the issuer are limited, however many tokens with made-up keys come.
type keySet struct {
	client *http.Client
	algs   []jose.SignatureAlgorithm

	asking sync.Mutex // held during a request to the issuer; guards failed. Locked before mu
	failed error      // of the last time

	mu     sync.Mutex // guards the fields below
	keys   []jose.JSONWebKey
	loaded time.Time
	tried  time.Time
}

const (
	keysGood  = 5 * time.Minute // since they were fetched
	keysAgain = 2 * time.Second // between two questions to the issuer
	maxReply  = 1 << 20         // bytes of an answer of the issuer's
)

// find returns the key that a token names. The error is errAway or errKey.
func (s *keySet) find(ctx context.Context, url, jwt string) (jose.JSONWebKey, error) {
	jws, err := jose.ParseSignedCompact(jwt, s.algs)
	if err != nil || len(jws.Signatures) != 1 {
		return jose.JSONWebKey{}, errKey
	}
	head := jws.Signatures[0].Header
	key, ok, fresh := s.known(head)
	if ok && fresh {
		return key, nil
	}
	if err := s.fetch(ctx, url); err != nil {
		return jose.JSONWebKey{}, err
	}
	if key, ok, fresh = s.known(head); ok && fresh {
		return key, nil
	}
	return jose.JSONWebKey{}, errKey
}

// known finds a key among the loaded ones; fresh reports whether they are recent.
func (s *keySet) known(head jose.Header) (_ jose.JSONWebKey, ok, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh = !s.loaded.IsZero() && time.Since(s.loaded) < keysGood
	var fit []jose.JSONWebKey
	for _, k := range s.keys {
		if head.KeyID != "" && k.KeyID != head.KeyID || k.Algorithm != "" && k.Algorithm != head.Algorithm {
			continue
		}
		fit = append(fit, k)
	}
	if len(fit) != 1 { // two keys of one name, or a token that names none where there are several
		return jose.JSONWebKey{}, false, fresh
	}
	return fit[0], true, fresh
}

// fetch requests the keys of the issuer, unless they were requested recently.
func (s *keySet) fetch(ctx context.Context, url string) error {
	s.asking.Lock()
	defer s.asking.Unlock()
	s.mu.Lock()
	recent := !s.tried.IsZero() && time.Since(s.tried) < keysAgain
	s.mu.Unlock()
	if recent {
		return s.failed
	}
	keys, err := s.get(context.WithoutCancel(ctx), url)
	if err != nil {
		err = fmt.Errorf("%w: %v", errAway, err)
	}
	s.failed = err
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried = time.Now()
	if err == nil {
		s.keys, s.loaded = keys, s.tried
	}
	return err
}

// get fetches the keys that can sign.
func (s *keySet) get(ctx context.Context, url string) ([]jose.JSONWebKey, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the keys' address answers %s", resp.Status)
	}
	if err != nil {
		return nil, err
	}
	return parseKeys(body)
}

// parseKeys reads a JWK set (RFC 7517, section 5). Keys that are not for signatures, or not public, or of a
// unknown kinds are left out.
func parseKeys(body []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, fmt.Errorf("the issuer's keys cannot be read: %w", err)
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var k jose.JSONWebKey
		if json.Unmarshal(raw, &k) == nil && k.Valid() && k.IsPublic() && (k.Use == "" || k.Use == "sig") {
			keys = append(keys, k)
		}
	}
	return keys, nil
}
