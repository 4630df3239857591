package trust

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"encoding/pem"
	"math/big"
	"os/exec"
	"strings"
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

func names() []pkix.Name {
	multi := pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{
		{Type: asn1.ObjectIdentifier{2, 5, 4, 10}, Value: "  Two \t Spaces  "},
		{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: asn1.RawValue{Tag: asn1.TagIA5String, Bytes: []byte("Mail@Example.COM")}},
	}}
	return []pkix.Name{
		{CommonName: "Custody sandbox r-01JD"},
		{CommonName: "Zwölf Boxkämpfer ÄÖÜ", Organization: []string{"B", "a", "C"}, Country: []string{"DE"}},
		{CommonName: strings.Repeat("x", 64), OrganizationalUnit: []string{strings.Repeat("Long ", 40), strings.Repeat("y", 300)}},
		{},
		multi,
	}
}

// TestLinkName compares with OpenSSL itself.
func TestLinkName(t *testing.T) {
	for _, name := range names() {
		der := certificate(t, name)
		openssl := exec.Command("openssl", "x509", "-inform", "DER", "-noout", "-subject_hash")
		openssl.Stdin = bytes.NewReader(der)
		want, err := openssl.Output()
		ok(t, err)
		if got, err := LinkName(der); err != nil || got != strings.TrimSpace(string(want)) {
			t.Errorf("%v: %s, %v; openssl says %s", name, got, err, want)
		}
	}
}

// FuzzLinkName: whatever the bytes, no panic; and what crypto/x509 takes for a
// certificate gets a name unless its subject has a text that we do not convert.
func FuzzLinkName(f *testing.F) {
	for _, name := range names() {
		f.Add(certificate(f, name))
	}
	f.Add([]byte{0x30, 0x84, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, der []byte) {
		_, err := LinkName(der)
		if _, bad := x509.ParseCertificate(der); bad == nil && err != nil && !strings.Contains(err.Error(), "cannot hash") {
			t.Errorf("a certificate without a name: %v", err)
		}
	})
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

// TestJavaStore reads a store as the format says, without what writes it.
func TestJavaStore(t *testing.T) {
	want := [][]byte{certificate(t, pkix.Name{CommonName: "one"}), certificate(t, pkix.Name{CommonName: "two"})}
	b := JavaStore(want, "pässword𝄞")
	body := b[:len(b)-sha1.Size]
	var password bytes.Buffer
	binary.Write(&password, binary.BigEndian, utf16.Encode([]rune("pässword𝄞")))
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

func BenchmarkJavaStore(b *testing.B) {
	der := certificate(b, pkix.Name{CommonName: "one"})
	var all [][]byte
	for range 145 { // as many as a distribution has
		all = append(all, append(der, make([]byte, 900)...))
	}
	for b.Loop() {
		JavaStore(all, "changeit")
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
