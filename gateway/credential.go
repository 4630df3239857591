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

// Credentials are the secrets of the sandbox. It is safe for concurrent use.
type Credentials interface {
	// Credential returns what is put into a request under a rule with credential: secret. There is one only while a step
	// lives that may use it; the guest sees the error's text.
	Credential(secret string) (secrets.Credential, error)
	// Find returns the names of the secrets whose value or placeholder stands in text, in any
	// encoding that the redactor knows.
	Find(text []byte) []string
	// Watch looks for the same in a text that comes piece by piece.
	Watch() *secrets.Watch
	// Presented reports that a secret occurs in what the guest sends to host, and where in it, before any of it is sent.
	// It returns whether that is within the secret's scope. If not, it is an anomaly and the request is refused. seq is
	// that of the event of the flow's opening or refusal.
	Presented(ctx context.Context, secret, host, where string, seq uint64) (inScope bool)
	// Echoed reports that host sent a secret's value or placeholder after the end of an answer, without a request. seq
	// is as above.
	Echoed(secret, host string, seq uint64)
}

// inject gets the rule's credential, if it has one, makes it durable that it is used, and puts it into
// header, which is what will be sent of q's fields. What the guest sent to the same end is
// taken out of header and u, or the request is refused: with credentials of its own the guest could
// use an allowed host as a channel. Nothing that the guest sends decides where the
// value goes: that is the connection's one name, which was in the ClientHello and is in the certificate.
func (f *flight) inject(r *netpolicy.Rule, header http.Header, u *url.URL) *refusal {
	if r.Credential == "" || r.HTTP == nil || f.x.scheme != "https" {
		return nil
	}
	if f.x.conn.g.cfg.Credentials == nil {
		return denied("the rule has the credential %s, and this sandbox has none", r.Credential)
	}
	f.carry(r.Credential) // first, or Withdraw could miss it
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

// substitution puts one credential into one request.
type substitution struct {
	name       string // of the secret
	credential secrets.Credential
	field      string // canonical name of the header field
}

// fit refuses a credential that would change how the request is read or routed.
func (s *substitution) fit() *refusal {
	c := s.credential
	switch {
	case !isToken(c.Header) || slices.Contains(framingFields, s.field) || slices.Contains(hostFields, s.field) ||
		overrideField(s.field) || slices.Contains(hopFields, s.field):
		return denied("the credential %s is for a header that cannot be set", s.name)
	case len(c.Value) == 0 || c.Value[0] == ' ' || c.Value[len(c.Value)-1] == ' ':
		return denied("the credential %s is empty, or begins or ends with a blank: it fits into no header", s.name)
	case slices.ContainsFunc(c.Value, func(b byte) bool { return b < ' ' || b == 0x7f }):
		return denied("the credential %s holds a control character: it fits into no header", s.name)
	}
	return nil
}

// fields sets the credential's field in out, according to what the guest sent.
func (s *substitution) fields(sent, out http.Header) *refusal {
	value := string(s.credential.Value)
	if s.field == "Authorization" && !strings.Contains(value, " ") {
		value = "Bearer " + value
	}
	for name, values := range sent {
		switch {
		case squash(name) == squash(s.field):
			if name != s.field || len(values) != 1 {
				return denied("%s, in which the gateway sends the credential %s, comes twice or in another spelling", s.field, s.name)
			}
			v, ok := s.substitute(values[0])
			if !ok {
				return denied("the gateway sends the credential %s in %s: send nothing there, or the placeholder", s.name, s.field)
			}
			value = v
		case strings.HasPrefix(squash(name), "cookie"):
			delete(out, name) // a session of the guest's own
		case authField(name):
			for _, v := range values {
				if _, ok := s.substitute(v); !ok {
					return denied("the request has other means of authentication (%s) than the credential %s, which the gateway sends in %s",
						shorten(name), s.name, s.field)
				}
			}
			delete(out, name)
		}
	}
	out[s.field] = []string{value}
	return nil
}

// maxBesides bounds what may stand beside a placeholder: a user's name, a scheme.
const maxBesides = 256

// substitute returns a field's value with the secret's in place of the placeholder. Nothing that
// could be another credential may stand beside it:
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
		return value, true // it has its own scheme
	}
	return before + value + after, true
}

// besides reports whether before and after a placeholder there is a scheme and a name at most.
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

// basic substitutes inside of what Basic (RFC 7617) encodes.
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

// query returns a query without the parameters that hold the placeholder where a server looks for
// a credential. One that holds anything else is refused.
func (s *substitution) query(query string) (string, *refusal) {
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		drop := false
		for piece := range strings.SplitSeq(part, ";") { // a separator too, for some
			name, value, _ := strings.Cut(piece, "=")
			if word := authParameter(unescape(name)); word != "" && value != "" {
				if s.credential.Placeholder == "" || unescape(value) != s.credential.Placeholder || piece != part {
					return "", denied("the request has other means of authentication (%s in its query) than the credential %s, which the gateway sends in %s",
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

// authParameter returns the parameter that name is for servers which look for a credential
// there, or nothing.
func authParameter(name string) string {
	name, _, _ = strings.Cut(name, "[") // name[], in some languages
	if name = squash(name); slices.Contains(authParameters, name) {
		return name
	}
	return ""
}

// Where credentials stand besides the fields that a rule names, without regard to case, '-' and '_'.
var (
	authParameters = []string{"key", "apikey", "token", "accesstoken", "accesskey", "apitoken", "authtoken", "auth", "authorization", "bearer", "bearertoken", "oauthtoken",
		"idtoken", "refreshtoken", "privatetoken", "jobtoken", "personalaccesstoken", "securitytoken", "subscriptionkey", "secret", "clientsecret", "clientassertion", "assertion", "password", "passwd", "pass",
		"jwt", "sig", "signature", "xamzsignature", "xamzcredential", "xamzsecuritytoken", "xgoogsignature", "xgoogcredential", "awsaccesskeyid", "googleaccessid", "sessiontoken", "sessionkey", "sessionid"}
	authParts = []string{"authoriz", "authentic", "apikey", "accesskey", "subscriptionkey", "functionskey", "token", "secret", "password", "passwd", "credential", "signature", "jwt", "bearer", "assertion"}
	authEnds  = []string{"auth", "key", "pat", "sig"}
)

// authField reports whether a field's name is one in which servers look for a credential. It is wide: if a field of
// another meaning is refused by mistake, the refusal names it, and it can be left out.
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

// squash returns the letters and digits of a name, in small letters: servers and
// what stands before them take '-', '_' and others for the same.
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

// shorten cuts a name that the guest made.
func shorten(name string) string { return name[:min(len(name), 64)] }
