package statement

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/internal/regular"
)

// MaxGiven is the maximum size, in bytes, of files that a user names as keys, checkpoints or certificates.
const MaxGiven = 1 << 20

// KeyText returns a key's text: the contents of the file with that name, or else the argument itself, without surrounding space.
func KeyText(ctx context.Context, key string) (string, error) {
	if _, err := os.Lstat(key); err == nil {
		text, err := regular.Given(ctx, key, MaxGiven)
		if err != nil {
			return "", err
		}
		key = string(text)
	}
	return strings.Trim(key, " \t\r\n"), nil
}

// OpenKeys parses public keys, each a file or the key's text, with ParseVerifier or ParseWitness. Duplicate keys, also
// those in another kind's form, count once. Two keys that signatures name in the same way are an error.
func OpenKeys(ctx context.Context, keys []string, parse func(text string) (note.Verifier, error)) ([]note.Verifier, error) {
	_, list, err := ReadKeys(ctx, keys, parse)
	return list, err
}

// ReadKeys is OpenKeys, and returns the texts of all keys.
func ReadKeys(ctx context.Context, keys []string, parse func(text string) (note.Verifier, error)) (texts []string, list []note.Verifier, err error) {
	for _, key := range keys {
		text, err := KeyText(ctx, key)
		if err != nil {
			return nil, nil, err
		}
		texts = append(texts, text)
	}
	list, err = parseKeys(keys, texts, parse)
	return texts, list, err
}

// ParseKeys is OpenKeys for the texts of keys. It opens no file.
func ParseKeys(texts []string, parse func(text string) (note.Verifier, error)) ([]note.Verifier, error) {
	return parseKeys(texts, texts, parse)
}

// parseKeys parses texts; names are what errors call them.
func parseKeys(names, texts []string, parse func(text string) (note.Verifier, error)) (list []note.Verifier, err error) {
	seen := map[string]string{} // by the name in signatures: the key's text
	for i, text := range texts {
		v, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("%.300q is neither a public key nor a file with one: %w", names[i], err)
		}
		id := fmt.Sprintf("%s+%08x", v.Name(), v.KeyHash())
		switch other, ok := seen[id]; {
		case !ok:
			list = append(list, v)
		case !sameKey(text, other):
			return nil, fmt.Errorf("%.300q: signatures name another key that was given in the same way, %s", names[i], other)
		}
		seen[id] = text
	}
	return list, nil
}

// sameKey reports whether two public keys, each NAME+HASH+KEY, end with the same 32 bytes, whatever their kinds.
func sameKey(a, b string) bool {
	const encoded = 44 // a byte for the kind and 32 more, in base64
	x, err := base64.StdEncoding.DecodeString(a[len(a)-encoded:])
	y, otherErr := base64.StdEncoding.DecodeString(b[len(b)-encoded:])
	return err == nil && otherErr == nil && bytes.Equal(x[1:], y[1:])
}
