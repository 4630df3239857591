package secrets

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
)

// newPlaceholder returns what a step holds in place of a header secret: never the same twice.
func newPlaceholder(secret string) string {
	var b [16]byte
	rand.Read(b[:])
	return "custody-" + secret + "-" + hex.EncodeToString(b[:])
}

// placeName is what the redactor calls the placeholders of a secret, so that nobody takes
// one for the value. No secret's name begins like this; the redactor's names have 64
// bytes at most.
func placeName(secret string) string {
	const prefix, most = "_placeholder.", 64
	if len(prefix)+len(secret) <= most {
		return prefix + secret
	}
	sum := sha256.Sum256([]byte(secret))
	return prefix + secret[:most-len(prefix)-9] + "." + hex.EncodeToString(sum[:4])
}
