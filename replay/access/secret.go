package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// A secret that Custody makes is a prefix and 256 random bits in base64url (RFC 4648, section 5),
// without padding: 43 characters.
const (
	TokenPrefix  = "cst_" // of tokens
	OncePrefix   = "cso_" // of one-time tokens
	TicketPrefix = "csp_" // of tickets for the ports of sandboxes

	secretBytes = 32
	secretText  = 43
)

// digest is the SHA-256 of a secret's text, all that is kept of it.
type digest [sha256.Size]byte

// newSecret returns a new secret and its digest.
func newSecret(prefix string) (string, digest) {
	var b [secretBytes]byte
	rand.Read(b[:]) // never fails
	s := prefix + base64.RawURLEncoding.EncodeToString(b[:])
	return s, digestOf(s)
}

func digestOf(s string) digest { return sha256.Sum256([]byte(s)) }

// isSecret reports whether s has the shape of a secret with this prefix.
func isSecret(s, prefix string) bool {
	body, ok := strings.CutPrefix(s, prefix)
	if !ok || len(body) != secretText {
		return false
	}
	_, err := base64.RawURLEncoding.Strict().DecodeString(body)
	return err == nil && !strings.ContainsAny(body, "\r\n")
}

// hide returns text with what could be a secret of Custody's cut out of it: people paste
// tokens into addresses, and the record is for others to read.
func hide(text string) string {
	for _, prefix := range []string{TokenPrefix, OncePrefix, TicketPrefix} {
		from := 0
		for {
			i := strings.Index(text[from:], prefix)
			if i < 0 {
				break
			}
			start := from + i + len(prefix)
			end := start
			for end < len(text) && isSecretByte(text[end]) {
				end++
			}
			if end-start >= 8 {
				text = text[:start] + "..." + text[end:]
				end = start + 3
			}
			from = end
		}
	}
	return text
}

func isSecretByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}
