package statement

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	cosign "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
)

const (
	maxSignatures = 100 // lines of a note
)

var (
	// keyNames allows printable ASCII only, so that different names look different.
	keyNames      = regexp.MustCompile(`^[!-*,-~]{1,100}$`)
	signatureLine = regexp.MustCompile(`^— ([!-*,-~]{1,100}) ([A-Za-z0-9+/]+={0,2})$`)
	keyText       = regexp.MustCompile(`^([!-*,-~]{1,100})\+([0-9a-f]{8})\+([A-Za-z0-9+/]{44})$`)
)

// openNote is note.Open for notes in canonical form (docs/verify.md): C2SP signed-note,
// with names in printable ASCII, canonical base64, and no key twice.
func OpenNote(signed []byte, known note.Verifiers) (*note.Note, error) {
	if err := checkNote(signed); err != nil {
		return nil, err
	}
	return note.Open(signed, known)
}

func checkNote(signed []byte) error {
	text, signatures, ok := bytes.Cut(signed, []byte("\n\n"))
	if !ok || len(text) == 0 || !bytes.HasSuffix(signatures, []byte("\n")) {
		return errors.New("malformed note: want text, an empty line, and lines of signatures")
	}
	if !utf8.Valid(signed) || bytes.ContainsFunc(signed, func(r rune) bool { return r < ' ' && r != '\n' }) {
		return errors.New("malformed note: want UTF-8 without control characters")
	}
	lines := strings.Split(string(signatures[:len(signatures)-1]), "\n")
	if len(lines) > maxSignatures {
		return fmt.Errorf("malformed note: %d signatures, at most %d", len(lines), maxSignatures)
	}
	seen := map[string]bool{}
	for _, line := range lines {
		m := signatureLine.FindStringSubmatch(line)
		if m == nil {
			return fmt.Errorf("malformed note: %.200q is not a signature line", line)
		}
		raw, err := base64.StdEncoding.Strict().DecodeString(m[2])
		if err != nil || len(raw) < 5 {
			return fmt.Errorf("malformed note: the signature of %.100q is not base64 in its one form", m[1])
		}
		by := m[1] + string(raw[:4])
		if seen[by] {
			return fmt.Errorf("malformed note: %.100q signs twice", m[1])
		}
		seen[by] = true
	}
	return nil
}

// ParseVerifier is note.NewVerifier for keys in canonical form (docs/verify.md).
func ParseVerifier(text string) (note.Verifier, error) {
	if err := checkKey(text); err != nil {
		return nil, err
	}
	return note.NewVerifier(text)
}

// ParseWitness parses the public key of a witness, in the same form. Its kind is that of cosignatures (C2SP
// tlog-cosignature, cosignature/v1), or that of a host's key.
func ParseWitness(text string) (note.Verifier, error) {
	if err := checkKey(text); err != nil {
		return nil, err
	}
	return cosign.NewVerifierForCosignatureV1(text)
}

// checkKey requires NAME+HASH+KEY, where HASH is the hash of the other two.
func checkKey(text string) error {
	m := keyText.FindStringSubmatch(text)
	if m == nil {
		return fmt.Errorf("%.160q is not a public key: want NAME+HASH+KEY", text)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(m[3])
	if err != nil {
		return fmt.Errorf("%.160q is not a public key: %w", text, err)
	}
	if sum := sha256.Sum256([]byte(m[1] + "\n" + string(raw))); hex.EncodeToString(sum[:4]) != m[2] {
		return fmt.Errorf("%.160q is not a public key: the hash is not that of name and key", text)
	}
	return nil
}

// unverified parses a note without verifying its signatures.
func Unverified(signed []byte) (*note.Note, error) {
	n, err := OpenNote(signed, note.VerifierList())
	var open *note.UnverifiedNoteError
	if errors.As(err, &open) {
		return open.Note, nil
	}
	return n, err
}

// canonical formats a note with exactly one signature, the only form that
// package proof makes: anything more would change the digest that the next
// manifest names without changing what is signed.
func Canonical(n *note.Note) (string, bool) {
	sigs := append(n.Sigs, n.UnverifiedSigs...)
	if len(sigs) != 1 {
		return "", false
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n— %s %s\n", n.Text, sigs[0].Name, sigs[0].Base64)
	return b.String(), true
}

const MaxSeq = 1<<63 - 1 // the seq after any valid one also fits
