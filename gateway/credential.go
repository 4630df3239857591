package gateway

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/secrets"
)

// Credentials are the secrets of the sandbox. An implementation must be safe for concurrent use.
type Credentials interface {
	// Credential returns the value that is added to a request under a rule with credential: secret. It exists only
	// during a step that may use it. The guest receives the error's text.
	Credential(secret string) (secrets.Credential, error)
	// Find returns the names of the secrets whose value or placeholder is in text, in any encoding that the redactor
	// recognizes.
	Find(text []byte) []string
	// Watch returns a stream that searches for the same in a text that arrives in pieces.
	Watch() *secrets.Watch
	// Presented reports that the guest is about to send a secret to host, and in which part of the request, before any
	// of it is sent. It returns whether this is within the secret's scope. Otherwise it is an anomaly and the request is
	// denied. seq is that of the event of the flow's opening or denial.
	Presented(ctx context.Context, secret, host, where string, seq uint64) (inScope bool)
	// Echoed reports that host sent a secret's value or placeholder after the end of a response, without a request. seq
	// is as above.
	Echoed(secret, host string, seq uint64)
}

// inject adds the rule's credential to header, the fields that will be sent for q, after its use is durable in the
// record. It removes the guest's own credentials from header and u, or denies the request: with separate credentials the
// guest could use an allowed host as a channel. No data of the guest determines the destination of the value: that is
// the connection's only name, which was in the ClientHello and is in the certificate.
func (f *flight) inject(r *netpolicy.Rule, header http.Header, u *url.URL) *refusal {
	if r.Credential == "" || r.HTTP == nil || f.x.scheme != "https" {
		return nil
	}
	if f.x.conn.g.cfg.Credentials == nil {
		return denied("the rule has the credential %s, and this sandbox has none", r.Credential)
	}
	f.carry(r.Credential) // first, so that Withdraw finds it
	c, err := f.x.conn.g.cfg.Credentials.Credential(r.Credential)
	if err != nil {
		f.presentOwn(r.Credential)
		return denied("the credential %s cannot be used: %v", r.Credential, err)
	}
	s := &substitution{name: r.Credential, credential: c, field: http.CanonicalHeaderKey(c.Header)}
	if no := s.fit(); no != nil {
		return no
	}
	if no := s.fields(f.q.header, header); no != nil {
		return no
	}
	query, no := s.query(u.RawQuery)
	if no != nil {
		return no
	}
	u.RawQuery = query
	return f.recordUse(s)
}

// recordUse returns when the use of a credential is durable.
func (f *flight) recordUse(s *substitution) *refusal {
	ev := &audit.Secret{Name: s.name, Op: audit.SecretUse, Via: "header", Flow: f.ev.Flow, Host: audit.Text(f.x.conn.to.name)}
	if _, err := f.x.conn.g.record(f.ctx, audit.Event{Kind: audit.KindSecret, Secret: ev}); err != nil {
		return &refusal{http.StatusServiceUnavailable, alertInternalError, "the record cannot be written, so no credential is used"}
	}
	f.ev.Credential = s.name
	return nil
}

// substitution adds one credential to one request.
type substitution struct {
	name       string // of the secret
	credential secrets.Credential
	field      string // canonical name of the header field
}

// fit denies a credential that would change how the request is parsed or routed.
func (s *substitution) fit() *refusal {
	c := s.credential
	switch {
	case !isToken(c.Header) || slices.Contains(framingFields, s.field) || slices.Contains(hostFields, s.field) ||
		overrideField(s.field) || slices.Contains(hopFields, s.field):
		return denied("the credential %s is for a header that cannot be set", s.name)
	case len(c.Value) == 0 || c.Value[0] == ' ' || c.Value[len(c.Value)-1] == ' ':
		return denied("the credential %s is empty, or begins or ends with a space: no header field can contain it", s.name)
	case slices.ContainsFunc(c.Value, func(b byte) bool { return b < ' ' || b == 0x7f }):
		return denied("the credential %s contains a control character: no header field can contain it", s.name)
	}
	return nil
}

// fields sets the credential's field in out, depending on the guest's fields.
func (s *substitution) fields(sent, out http.Header) *refusal {
	value := string(s.credential.Value)
	if s.field == "Authorization" && !strings.Contains(value, " ") {
		value = "Bearer " + value
	}
	for name, values := range sent {
		switch {
		case squash(name) == squash(s.field):
			if name != s.field || len(values) != 1 {
				return denied("%s, in which the gateway sends the credential %s, is repeated or in another spelling", s.field, s.name)
			}
			v, ok := s.substitute(values[0])
			if !ok {
				return denied("the gateway sends the credential %s in %s: send nothing there, or the placeholder", s.name, s.field)
			}
			value = v
		case strings.HasPrefix(squash(name), "cookie"):
			delete(out, name) // a session of the guest
		case authField(name):
			for _, v := range values {
				if _, ok := s.substitute(v); !ok {
					return denied("the request has another authentication (%s) than the credential %s, which the gateway sends in %s",
						shorten(name), s.name, s.field)
				}
			}
			delete(out, name)
		}
	}
	out[s.field] = []string{value}
	return nil
}

// maxBesides bounds the text beside a placeholder: a user's name, a scheme.
const maxBesides = 256

// substitute replaces the placeholder in a field's value with the secret's value. The rest of the field must not be
// another credential:
//
//	PLACEHOLDER | SCHEME PLACEHOLDER | [SCHEME ]NAME=PLACEHOLDER | [SCHEME ]NAME="PLACEHOLDER"
//	Basic base64(USER:PLACEHOLDER) | Basic base64(PLACEHOLDER:WORD)
func (s *substitution) substitute(sent string) (string, bool) {
	holder, value := s.credential.Placeholder, string(s.credential.Value)
	if holder == "" || len(sent) > len(holder)*2+2*maxBesides {
		return "", false
	}
	if scheme, rest, ok := strings.Cut(sent, " "); ok && strings.EqualFold(scheme, "Basic") {
		return s.basic(scheme, rest)
	}
	before, after, ok := strings.Cut(sent, holder)
	if !ok || !besides(before, after) {
		return "", false
	}
	if s.field == "Authorization" && before != "" && strings.Contains(value, " ") {
		return value, true // it has a scheme
	}
	return before + value + after, true
}

// besides reports whether the text before and after a placeholder is at most a scheme and a name.
func besides(before, after string) bool {
	if quoted, ok := strings.CutSuffix(before, `="`); ok {
		if after != `"` {
			return false
		}
		before, after = quoted+"=", ""
	}
	if after != "" || len(before) > maxBesides {
		return false
	}
	if scheme, rest, ok := strings.Cut(before, " "); ok {
		if !isToken(scheme) {
			return false
		}
		before = rest
	}
	name, equals := strings.CutSuffix(before, "=")
	return before == "" || equals && isToken(name)
}

// basic substitutes within the encoded part of Basic (RFC 7617).
func (s *substitution) basic(scheme, encoded string) (string, bool) {
	holder, value := s.credential.Placeholder, string(s.credential.Value)
	plain, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		plain, err = base64.RawStdEncoding.DecodeString(encoded)
	}
	user, password, ok := strings.Cut(string(plain), ":")
	switch {
	case err != nil || !ok || !printable(string(plain)):
		return "", false
	case password == holder && len(user) <= maxBesides && !strings.Contains(user, holder):
		password = value
	case user == holder && len(password) <= maxBesides && !strings.Contains(password, holder) && !strings.Contains(value, ":"):
		user = value
	default:
		return "", false
	}
	return scheme + " " + base64.StdEncoding.EncodeToString([]byte(user+":"+password)), true
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// query returns a query without the parameters in which servers accept a credential, if they contain the placeholder. It
// denies a query in which such a parameter contains anything else.
func (s *substitution) query(query string) (string, *refusal) {
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		drop := false
		for piece := range strings.SplitSeq(part, ";") { // some servers treat it as a separator
			name, value, _ := strings.Cut(piece, "=")
			if word := authParameter(unescape(name)); word != "" && value != "" {
				if s.credential.Placeholder == "" || unescape(value) != s.credential.Placeholder || piece != part {
					return "", denied("the request has another authentication (%s in its query) than the credential %s, which the gateway sends in %s",
						word, s.name, s.field)
				}
				drop = true
			}
		}
		if !drop {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, "&"), nil
}

// authParameter returns the name of the parameter if servers accept a credential in it, or "".
func authParameter(name string) string {
	name, _, _ = strings.Cut(name, "[") // name[] in some languages
	if name = squash(name); slices.Contains(authParameters, name) {
		return name
	}
	return ""
}

// Fields with credentials other than those that rules name. Case, '-' and '_' are ignored.
var (
	authParameters = []string{"key", "apikey", "token", "accesstoken", "accesskey", "apitoken", "authtoken", "auth", "authorization", "bearer", "bearertoken", "oauthtoken",
		"idtoken", "refreshtoken", "privatetoken", "jobtoken", "personalaccesstoken", "securitytoken", "subscriptionkey", "secret", "clientsecret", "clientassertion", "assertion", "password", "passwd", "pass",
		"jwt", "sig", "signature", "xamzsignature", "xamzcredential", "xamzsecuritytoken", "xgoogsignature", "xgoogcredential", "awsaccesskeyid", "googleaccessid", "sessiontoken", "sessionkey", "sessionid"}
	authParts = []string{"authoriz", "authentic", "apikey", "accesskey", "subscriptionkey", "functionskey", "token", "secret", "password", "passwd", "credential", "signature", "jwt", "bearer", "assertion"}
	authEnds  = []string{"auth", "key", "pat", "sig"}
)

// authField reports whether servers accept a credential in a field with this name. It has many names: if it denies a
// field with another meaning, the refusal names the field, and the client can omit it.
func authField(name string) bool {
	plain := squash(name)
	if strings.Contains(plain, "idempotency") {
		return false
	}
	if slices.ContainsFunc(authParts, func(part string) bool { return strings.Contains(plain, part) }) {
		return true
	}
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '-' || r == '_' || r == '.' })
	return len(words) > 0 && slices.Contains(authEnds, words[len(words)-1])
}

// squash returns the letters and digits of a name in lower case: servers and proxies treat '-', '_' and others as equal.
func squash(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		}
		return -1
	}, name)
}

// shorten truncates a name that the guest chose.
func shorten(name string) string { return name[:min(len(name), 64)] }
