package access

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/custody-project/custody/internal/regular"
)

// issuer is an OpenID Connect provider whose users may log in (OpenID Connect Core 1.0).
// It is first contacted when it is needed, so that the server starts without it.
type issuer struct {
	conf   OIDC
	client *http.Client
	keys   keySet
	seal   seal
	states usedStates

	mu    sync.Mutex // guards the fields below; held during a request to the issuer
	found *provider
	tried time.Time
	err   error
}

// provider has the contents of the issuer's discovery document.
type provider struct {
	*oidc.Provider
	Keys    string `json:"jwks_uri"`
	NamesIn bool   `json:"authorization_response_iss_parameter_supported"` // RFC 9207
	at      time.Time
}

const (
	discoveryGood = time.Hour
	issuerTime    = 5 * time.Second // for one question to it
	clockSkew     = time.Minute     // between its clock and ours
)

func newIssuer(c OIDC) (*issuer, error) {
	client, err := issuerClient(c)
	if err != nil {
		return nil, &ConfigError{"oidc: " + err.Error(), "ca names a PEM file with the issuer's roots"}
	}
	if _, err := c.secret(); err != nil {
		return nil, &ConfigError{"oidc: " + err.Error(), "client_secret_file holds the secret of the client, and nothing else"}
	}
	var algs []jose.SignatureAlgorithm
	for _, a := range c.Algs {
		algs = append(algs, jose.SignatureAlgorithm(a))
	}
	return &issuer{conf: c, client: client, keys: keySet{client: client, algs: algs}, seal: newSeal(), states: newUsedStates()}, nil
}

// secret reads the client's secret, each time again: it may be exchanged while serve runs.
func (o OIDC) secret() (string, error) {
	if o.ClientSecretFile == "" {
		return "", nil
	}
	b, err := regular.ReadFile(o.ClientSecretFile)
	if err != nil {
		return "", err
	}
	s := strings.TrimSpace(string(b))
	if s == "" {
		return "", fmt.Errorf("%s is empty", o.ClientSecretFile)
	}
	return s, nil
}

// issuerClient follows no redirects: an issuer answers at its own URL.
func issuerClient(c OIDC) (*http.Client, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		pem, err := regular.ReadFile(c.CA)
		if err != nil {
			return nil, err
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate", c.CA)
		}
		t.TLSClientConfig.RootCAs = pool
	}
	return &http.Client{
		Transport: bounded{t}, Timeout: issuerTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// bounded cuts answers off at maxReply.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxReply), resp.Body}
	}
	return resp, err
}

// discover returns the issuer's discovery document. The error is errAway.
func (i *issuer) discover(ctx context.Context) (*provider, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.found != nil && time.Since(i.found.at) < discoveryGood {
		return i.found, nil
	}
	if !i.tried.IsZero() && time.Since(i.tried) < keysAgain {
		return i.found, i.err
	}
	p, err := i.ask(context.WithoutCancel(ctx))
	i.tried = time.Now()
	if err != nil {
		// Its URLs do not change; its keys are loaded separately.
		i.err = fmt.Errorf("%w: %v", errAway, err)
		if i.found != nil {
			i.err = nil
		}
		return i.found, i.err
	}
	i.found, i.err = p, nil
	return p, nil
}

func (i *issuer) ask(ctx context.Context) (*provider, error) {
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, i.client), i.conf.Issuer)
	if err != nil {
		return nil, err
	}
	p := &provider{Provider: found, at: time.Now()}
	if err := found.Claims(p); err != nil {
		return nil, err
	}
	for _, address := range []string{p.Keys, found.Endpoint().AuthURL, found.Endpoint().TokenURL} {
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.Scheme != "https" && strings.HasPrefix(i.conf.Issuer, "https:") {
			return nil, fmt.Errorf("its address %q is not https", address)
		}
	}
	return p, nil
}

// identity is what a token's claims report that matters here.
type identity struct {
	Subject   string          `json:"sub"`
	Email     string          `json:"email"`
	Verified  bool            `json:"email_verified"`
	Party     string          `json:"azp"`
	NotBefore *float64        `json:"nbf"`
	IssuedAt  *float64        `json:"iat"`
	Events    json.RawMessage `json:"events"` // of a logout token

	nonce   string
	expires time.Time
	values  []string // of the claim that grants are by
}

var errToken = errors.New("the token is not valid")

// verify checks that a JWT is from the issuer, for one of audiences, and valid now. The
// error is errAway, or it describes what is invalid.
func (i *issuer) verify(ctx context.Context, raw string, audiences ...string) (identity, error) {
	p, err := i.discover(ctx)
	if err != nil {
		return identity{}, err
	}
	key, err := i.keys.find(ctx, p.Keys, raw)
	if err != nil {
		return identity{}, err
	}
	v := oidc.NewVerifier(i.conf.Issuer, &oidc.StaticKeySet{PublicKeys: []crypto.PublicKey{key.Key}},
		&oidc.Config{SkipClientIDCheck: true, SupportedSigningAlgs: i.conf.Algs})
	tok, err := v.Verify(ctx, raw)
	if err != nil {
		return identity{}, fmt.Errorf("%w: %v", errToken, err)
	}
	if !slices.ContainsFunc(tok.Audience, func(a string) bool { return slices.Contains(audiences, a) }) {
		return identity{}, fmt.Errorf("%w: it is for another audience", errToken)
	}
	return i.identify(raw, tok)
}

func (i *issuer) identify(raw string, tok *oidc.IDToken) (identity, error) {
	id := identity{nonce: tok.Nonce, expires: tok.Expiry}
	var all map[string]json.RawMessage
	if err := errors.Join(tok.Claims(&id), tok.Claims(&all), checkType(raw)); err != nil {
		return identity{}, fmt.Errorf("%w: %v", errToken, err)
	}
	now := float64(time.Now().Add(clockSkew).Unix())
	switch {
	case id.Subject == "":
		return identity{}, fmt.Errorf("%w: it has no subject", errToken)
	case id.NotBefore != nil && *id.NotBefore > now || id.IssuedAt != nil && *id.IssuedAt > now:
		return identity{}, fmt.Errorf("%w: it is of the future", errToken)
	case id.Events != nil:
		return identity{}, fmt.Errorf("%w: it is a logout token", errToken)
	case slices.Contains(tok.Audience, i.conf.ClientID) && id.Party != "" && id.Party != i.conf.ClientID:
		return identity{}, fmt.Errorf("%w: it was given to another client", errToken)
	}
	id.values = textOrTexts(all[i.conf.Claim])
	return id, nil
}

// checkType refuses JWTs that report that they are something else (RFC 8725, section 3.11).
func checkType(raw string) error {
	jws, err := jose.ParseSignedCompact(raw, []jose.SignatureAlgorithm{
		jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA})
	if err != nil {
		return err
	}
	kind, _ := jws.Signatures[0].Header.ExtraHeaders[jose.HeaderType].(string)
	switch strings.TrimPrefix(strings.ToLower(kind), "application/") {
	case "", "jwt", "at+jwt":
		return nil
	}
	return errors.New("it is of another type")
}

// textOrTexts reads a claim that is a string or a list of strings. Other values count as none.
func textOrTexts(raw json.RawMessage) []string {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}
	}
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		return list
	}
	return nil
}

// principal returns the principal of a user, which may have no grants.
func (i *issuer) principal(id identity) (Principal, *Problem) {
	name := id.Subject
	if id.Verified && id.Email != "" {
		name = id.Email
	}
	if !validUser(name) || !validUser(id.Subject) {
		return Principal{}, NewProblem(http.StatusForbidden, "name", "the issuer gives you a name that cannot be shown", "ask who runs it")
	}
	var grants []Grant
	for _, v := range id.values {
		grants = append(grants, i.conf.Grants[v]...)
	}
	return Principal{Name: name, Via: ViaOIDC, Grants: merge(grants)}, nil
}

// bearer accepts a JWT of the issuer's until it expires.
func (i *issuer) bearer(ctx context.Context, raw string) (credential, *Problem) {
	audiences := []string{i.conf.ClientID}
	if i.conf.Audience != "" {
		audiences = append(audiences, i.conf.Audience)
	}
	id, err := i.verify(ctx, raw, audiences...)
	switch {
	case errors.Is(err, errAway):
		return credential{}, issuerAway()
	case err != nil:
		return credential{}, badCredential()
	}
	p, problem := i.principal(id)
	p.Expires = id.expires
	if end := time.Now().Add(MaxTTL); p.Expires.After(end) {
		p.Expires = end
	}
	return credential{principal: p, key: "oidc " + id.Subject}, problem
}
