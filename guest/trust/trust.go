// Package trust makes what programs look for certificates in, out of a few
// certificates in PEM, with as little code and time as that takes: it runs in
// the guest between a restore and the first step, and reads no more of a
// certificate than its subject. Whether one is to be believed is not its business.
package trust

import (
	"crypto/sha1"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"unicode/utf16"
)

// Certificates returns the DER of each certificate in a PEM file; what is no certificate is passed over.
func Certificates(file []byte) [][]byte {
	var all [][]byte
	for block, rest := pem.Decode(file); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			all = append(all, block.Bytes)
		}
	}
	return all
}

// JavaStore returns a key store of type JKS that holds the certificates as
// trusted ones. Java reads it under the default type as well
// (keystore.type.compat in java.security). The format is that of
// sun.security.provider.JavaKeyStore: all integers big-endian, strings
// with two bytes of length, and behind it all a SHA-1 over the password in
// UTF-16, a phrase, and the store.
func JavaStore(certificates [][]byte, password string) []byte {
	const magic, version, trusted = 0xfeedfeed, 2, 2
	size := 32
	for _, der := range certificates {
		size += len(der) + 48
	}
	be := binary.BigEndian
	b := be.AppendUint32(make([]byte, 0, size), magic)
	b = be.AppendUint32(b, version)
	b = be.AppendUint32(b, uint32(len(certificates)))
	text := func(s string) {
		b = be.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	for i, der := range certificates {
		b = be.AppendUint32(b, trusted)
		text(fmt.Sprintf("custody-%d", i))
		b = be.AppendUint64(b, 0) // when it was added
		text("X.509")
		b = be.AppendUint32(b, uint32(len(der)))
		b = append(b, der...)
	}
	sum := sha1.New()
	for _, c := range utf16.Encode([]rune(password)) {
		sum.Write(be.AppendUint16(nil, c))
	}
	sum.Write([]byte("Mighty Aphrodite"))
	sum.Write(b)
	return sum.Sum(b)
}
