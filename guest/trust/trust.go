// Package trust makes the files in which programs look up trusted certificates, with
// little code and time: it runs in the guest between a restore and the
// first step. It does not check the certificates.
package trust

import (
	"crypto/sha1"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"hash"
	"slices"
	"unicode/utf16"
)

// Certificates returns the DER of each certificate in a PEM file; it skips anything else.
func Certificates(file []byte) [][]byte {
	var all [][]byte
	for block, rest := pem.Decode(file); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			all = append(all, block.Bytes)
		}
	}
	return all
}

// JavaStore is a key store of type JKS that holds certificates as trusted
// ones. Java reads it under its default type as well (keystore.type.compat in
// java.security). The format is that of sun.security.provider.JavaKeyStore:
// integers are big-endian, a string has two bytes of length before it, and the
// end is a SHA-1 over the password in UTF-16, a phrase, and all before it.
type JavaStore struct {
	body   []byte // all but the sum
	sum    []byte
	longer hash.Hash // over what the body will be with one certificate more, as far as it is known
}

const (
	javaMagic   = 0xfeedfeed
	javaVersion = 2
	javaTrusted = 2 // the kind of an entry: no key, only a certificate
	javaHead    = 12
)

// NewJavaStore makes a store. What Add will need is computed here.
func NewJavaStore(certificates [][]byte, password string) *JavaStore {
	s := &JavaStore{body: appendHead(nil, len(certificates)), longer: javaSum(password)}
	for i, der := range certificates {
		s.body = appendEntry(s.body, fmt.Sprintf("template-%d", i), der)
	}
	sum := javaSum(password)
	sum.Write(s.body)
	s.sum = sum.Sum(nil)
	s.longer.Write(appendHead(nil, len(certificates)+1))
	s.longer.Write(s.body[javaHead:])
	return s
}

// Bytes returns the store.
func (s *JavaStore) Bytes() []byte { return slices.Concat(s.body, s.sum) }

// Add returns what to write over a file that holds the store, so that it holds
// a certificate more: the head at its beginning, and the rest from an offset
// on. It is called once.
func (s *JavaStore) Add(der []byte) (head, rest []byte, at int64) {
	count := binary.BigEndian.Uint32(s.body[8:])
	entry := appendEntry(nil, "custody", der)
	s.longer.Write(entry)
	return appendHead(nil, int(count)+1), s.longer.Sum(entry), int64(len(s.body))
}

func appendHead(b []byte, count int) []byte {
	b = binary.BigEndian.AppendUint32(b, javaMagic)
	b = binary.BigEndian.AppendUint32(b, javaVersion)
	return binary.BigEndian.AppendUint32(b, uint32(count))
}

func appendEntry(b []byte, alias string, der []byte) []byte {
	text := func(s string) {
		b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	b = binary.BigEndian.AppendUint32(b, javaTrusted)
	text(alias)
	b = binary.BigEndian.AppendUint64(b, 0) // when it was added
	text("X.509")
	b = binary.BigEndian.AppendUint32(b, uint32(len(der)))
	return append(b, der...)
}

func javaSum(password string) hash.Hash {
	sum := sha1.New()
	for _, c := range utf16.Encode([]rune(password)) {
		sum.Write(binary.BigEndian.AppendUint16(nil, c))
	}
	sum.Write([]byte("Mighty Aphrodite"))
	return sum
}
