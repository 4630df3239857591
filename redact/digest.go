package redact

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
)

// Anyone who has the SHA-256 of a file that holds only a value can test guesses of the value against it. So a string of
// an event that is nothing but such a digest, in hex, is replaced by the value's marker, whose tag identifies the value
// to those who have the key. It does not count as found: a digest does not reveal the value to anyone who does not have
// it.

// lineEnds are what programs put behind a value that they write to a file.
var lineEnds = []string{"", "\n", "\r\n"}

// addDigests adds the digests of what a file has that holds v alone: as it is, and with any end of the line.
func (s *ruleset) addDigests(v *value) {
	s.digests.LoadOrStore(sha256.Sum256(v.raw), v)
	line := bytes.TrimRight(v.raw, "\r\n")
	for _, end := range lineEnds {
		s.digests.LoadOrStore(sha256.Sum256(append(line[:len(line):len(line)], end...)), v)
	}
}

// digestOf returns the value whose digest text is, nil if it is that of none.
func (s *ruleset) digestOf(text string) *value {
	var sum [sha256.Size]byte
	if len(text) != hex.EncodedLen(len(sum)) {
		return nil
	}
	if _, err := hex.Decode(sum[:], view(text)); err != nil {
		return nil
	}
	if v, ok := s.digests.Load(sum); ok {
		return v.(*value)
	}
	return nil
}
