package trust

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// LinkName returns the name under which OpenSSL looks for a certificate in a
// directory (openssl-rehash(1)), without the number that follows it: the first
// four bytes, little endian, of the SHA-1 of its subject's canonical form.
func LinkName(der []byte) (string, error) {
	canonical, err := canonicalSubject(der)
	if err != nil {
		return "", fmt.Errorf("subject of a certificate: %w", err)
	}
	sum := sha1.Sum(canonical)
	return fmt.Sprintf("%08x", binary.LittleEndian.Uint32(sum[:4])), nil
}

// DER tags (X.690) that occur on the way to a subject and in it.
const (
	tagUTF8      = 0x0c
	tagPrintable = 0x13
	tagIA5       = 0x16
	tagVisible   = 0x1a
	tagSequence  = 0x30
	tagSet       = 0x31
	tagVersion   = 0xa0
)

var errDER = errors.New("not the DER of a certificate")

// element takes the first element off b.
func element(b []byte) (tag byte, content, rest []byte, err error) {
	if len(b) < 2 {
		return 0, nil, nil, errDER
	}
	tag, size, b := b[0], int(b[1]), b[2:]
	if size >= 0x80 {
		n := size - 0x80
		if n == 0 || n > 3 || len(b) < n {
			return 0, nil, nil, errDER
		}
		size = 0
		for _, c := range b[:n] {
			size = size<<8 | int(c)
		}
		b = b[n:]
	}
	if len(b) < size {
		return 0, nil, nil, errDER
	}
	return tag, b[:size], b[size:], nil
}

// inside takes the first element, which must have the tag, off b.
func inside(b []byte, tag byte) (content, rest []byte, err error) {
	got, content, rest, err := element(b)
	if err == nil && got != tag {
		err = errDER
	}
	return content, rest, err
}

// wrap is the reverse of element.
func wrap(tag byte, content []byte) []byte {
	n := len(content)
	if n < 0x80 {
		return append([]byte{tag, byte(n)}, content...)
	}
	size := bytes.TrimLeft(binary.BigEndian.AppendUint32(nil, uint32(n)), "\x00")
	return append(append([]byte{tag, 0x80 + byte(len(size))}, size...), content...)
}

// subject returns the content of a certificate's subject (RFC 5280, section 4.1).
func subject(der []byte) ([]byte, error) {
	certificate, _, err := inside(der, tagSequence)
	if err != nil {
		return nil, err
	}
	b, _, err := inside(certificate, tagSequence)
	if err != nil {
		return nil, err
	}
	if len(b) > 0 && b[0] == tagVersion {
		if _, b, err = inside(b, tagVersion); err != nil {
			return nil, err
		}
	}
	for range 4 { // serial number, signature algorithm, issuer, validity
		if _, _, b, err = element(b); err != nil {
			return nil, err
		}
	}
	name, _, err := inside(b, tagSequence)
	return name, err
}

// canonicalSubject is what OpenSSL hashes: the subject's parts one after the
// other, each text in UTF-8, lower case, with single spaces (x509_name_canon).
func canonicalSubject(der []byte) ([]byte, error) {
	name, err := subject(der)
	if err != nil {
		return nil, err
	}
	var canonical []byte
	for len(name) > 0 {
		var set []byte
		if set, name, err = inside(name, tagSet); err != nil {
			return nil, err
		}
		part, err := canonicalPart(set)
		if err != nil {
			return nil, err
		}
		canonical = append(canonical, part...)
	}
	return canonical, nil
}

// canonicalPart is for a relative distinguished name: a set of attributes.
func canonicalPart(set []byte) ([]byte, error) {
	var attributes [][]byte
	for len(set) > 0 {
		pair, rest, err := inside(set, tagSequence)
		if err != nil {
			return nil, err
		}
		set = rest
		_, _, value, err := element(pair) // passes over the attribute's type
		if err != nil {
			return nil, err
		}
		attribute := slices.Clone(pair[:len(pair)-len(value)])
		tag, text, _, err := element(value)
		if err != nil {
			return nil, err
		}
		switch tag {
		case tagUTF8, tagPrintable, tagIA5, tagVisible:
			attribute = append(attribute, wrap(tagUTF8, []byte(canonicalText(string(text))))...)
		default:
			return nil, fmt.Errorf("a text of ASN.1 type %d, which this program cannot hash", tag)
		}
		attributes = append(attributes, wrap(tagSequence, attribute))
	}
	slices.SortFunc(attributes, bytes.Compare)
	return wrap(tagSet, slices.Concat(attributes...)), nil
}

// canonicalText lowers ASCII letters and no others.
func canonicalText(s string) string {
	space := func(r rune) bool { return r == ' ' || '\t' <= r && r <= '\r' }
	b := []byte(strings.Join(strings.FieldsFunc(s, space), " "))
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
