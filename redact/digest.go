package redact

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
)

// Anyone with the SHA-256 of a file that contains only a value can test guesses of the value. So a string of an event
// that consists of such a digest, in hex, is replaced by the value's marker, whose tag identifies the value to holders
// of the key. It does not count as found: a digest does not reveal the value to anyone who does not have it.

// lineEnds are the line ends that programs append to a value in a file.
var lineEnds = []string{"", "\n", "\r\n"}

// addDigests adds the digests of a file that contains only v, with and without a line end.
func (s *ruleset) addDigests(v *value) {
	s.digests.LoadOrStore(sha256.Sum256(v.raw), v)
	line := bytes.TrimRight(v.raw, "\r\n")
	for _, end := range lineEnds {
		s.digests.LoadOrStore(sha256.Sum256(append(line[:len(line):len(line)], end...)), v)
	}
}

// digestOf returns the value with the digest text, or nil.
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
