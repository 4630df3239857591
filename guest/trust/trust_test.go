package trust

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"math/big"
	"testing"
	"time"
	"unicode/utf16"
)

// certificate makes a self-signed one with the subject.
func certificate(t testing.TB, name pkix.Name) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1 << 40), Subject: name, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	ok(t, err)
	return der
}

func TestCertificates(t *testing.T) {
	one, two := certificate(t, pkix.Name{CommonName: "one"}), certificate(t, pkix.Name{CommonName: "two"})
	var file bytes.Buffer
	file.WriteString("# a comment\n")
	for _, b := range []pem.Block{{Type: "CERTIFICATE", Bytes: one}, {Type: "PRIVATE KEY", Bytes: []byte("x")}, {Type: "CERTIFICATE", Bytes: two}} {
		ok(t, pem.Encode(&file, &b))
		file.WriteString("words between\n")
	}
	got := Certificates(file.Bytes())
	if len(got) != 2 || !bytes.Equal(got[0], one) || !bytes.Equal(got[1], two) {
		t.Errorf("%d certificates", len(got))
	}
	if got := Certificates([]byte("-----BEGIN CERTIFICATE-----\nnonsense")); got != nil {
		t.Errorf("out of nonsense: %x", got)
	}
}

// TestJavaStore reads stores as the format says, without what writes it.
func TestJavaStore(t *testing.T) {
	all := [][]byte{certificate(t, pkix.Name{CommonName: "one"}), certificate(t, pkix.Name{CommonName: "two"}), certificate(t, pkix.Name{CommonName: "three"})}
	const password = "pässword𝄞"
	readJava(t, NewJavaStore(nil, password).Bytes(), password, nil)
	readJava(t, NewJavaStore(all, password).Bytes(), password, all)
	for n := range all {
		s := NewJavaStore(all[:n], password)
		b := s.Bytes()
		head, rest, at := s.Add(all[n])
		copy(b, head)
		readJava(t, append(b[:at], rest...), password, all[:n+1])
	}
}

func readJava(t *testing.T, b []byte, phrase string, want [][]byte) {
	t.Helper()
	body := b[:len(b)-sha1.Size]
	var password bytes.Buffer
	binary.Write(&password, binary.BigEndian, utf16.Encode([]rune(phrase)))
	if sum := sha1.Sum([]byte(password.String() + "Mighty Aphrodite" + string(body))); !bytes.Equal(sum[:], b[len(body):]) {
		t.Error("the sum at the end is wrong")
	}
	r := bytes.NewReader(body)
	number := func(v any) { t.Helper(); ok(t, binary.Read(r, binary.BigEndian, v)) }
	var head struct{ Magic, Version, Count uint32 }
	if number(&head); head.Magic != 0xfeedfeed || head.Version != 2 || int(head.Count) != len(want) {
		t.Errorf("head %x", head)
	}
	text := func() string {
		var n uint16
		number(&n)
		s := make([]byte, n)
		number(s)
		return string(s)
	}
	aliases := map[string]bool{}
	for _, der := range want {
		var tag, size uint32
		var when uint64
		number(&tag)
		alias := text()
		number(&when)
		kind := text()
		number(&size)
		got := make([]byte, size)
		number(got)
		if tag != 2 || aliases[alias] || kind != "X.509" || !bytes.Equal(got, der) {
			t.Errorf("entry %d %q %q", tag, alias, kind)
		}
		aliases[alias] = true
	}
	if r.Len() != 0 {
		t.Errorf("%d bytes too many", r.Len())
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
