package redact

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"unicode/utf16"
)

var testKey = []byte("0123456789abcdef0123456789abcdef")

// The values of the tests: plain, with all characters that encodings treat specially, beyond ASCII, binary, and long
// enough for wrapped output.
var testValues = map[string]string{
	"plain":   "hunter2-hunter2",
	"special": `p@ss/w0rd+"q'\&<x> $(y)%`,
	"unicode": "pässwörd-密钥-🔑",
	"binary":  "\x00\xff\xfe\x80key\x01\x02\r\n\x9c\xfb\xff\xbf",
	"long":    strings.Repeat("-----BEGIN KEY-----\nMIIEvQIBADANBgkq/hkiG9w0+BAQEF\n", 2),
}

// spelled returns value as other programs write it. It does not use the code under test.
func spelled(value string) map[string]string {
	b := []byte(value)
	j, _ := json.Marshal(value)
	jj, _ := json.Marshal(string(j[1 : len(j)-1]))
	std, uri := base64.StdEncoding, base64.URLEncoding
	h := hex.EncodeToString(b)
	forms := map[string]string{
		"raw":            value,
		"base64":         std.EncodeToString(b),
		"base64url":      uri.EncodeToString(b),
		"base64 twice":   std.EncodeToString([]byte(std.EncodeToString(b))),
		"base64 76":      wrap(std.EncodeToString(b), 76, "\n"),
		"base64 64 crlf": wrap(std.EncodeToString(b), 64, "\r\n"),
		"base64 indent":  wrap(std.EncodeToString(b), 20, "\n      "),
		"base64 query":   url.QueryEscape(std.EncodeToString(b)),
		"hex":            h,
		"HEX":            strings.ToUpper(h),
		"hEx":            mixed(h),
		"xxd -p":         wrap(h, 60, "\n"),
		"od -tx1":        wrap(h, 2, " "),
		"base32":         base32.StdEncoding.EncodeToString(b),
		"base32 lower":   strings.ToLower(base32.StdEncoding.EncodeToString(b)),
		"query":          url.QueryEscape(value),
		"path":           url.PathEscape(value),
		"url every":      eachByte(b, "%%%02X"),
		"url mixed":      mixed(eachByte(b, "%%%02x")),
		"url twice":      url.QueryEscape(url.QueryEscape(value)),
		"url all twice":  url.QueryEscape(eachByte(b, "%%%02X")),
	}
	if value == strings.ToValidUTF8(value, "?") {
		u := utf16.Encode([]rune(value))
		le, be := make([]byte, 0), make([]byte, 0)
		for _, c := range u {
			le = binary.LittleEndian.AppendUint16(le, c)
			be = binary.BigEndian.AppendUint16(be, c)
		}
		dec := ""
		for _, r := range value {
			dec += fmt.Sprintf("&#%d;", r)
		}
		utf := ""
		for _, c := range u {
			utf += fmt.Sprintf(`\u%04X`, c)
		}
		forms["json"] = string(j[1 : len(j)-1])
		forms["json slash"] = strings.ReplaceAll(string(j[1:len(j)-1]), "/", `\/`)
		forms["json twice"] = string(jj[1 : len(jj)-1])
		forms["json \\u"] = utf
		forms["json \\u mixed"] = mixed(utf)
		forms["utf-16le"] = string(le)
		forms["utf-16be"] = string(be)
		forms["powershell"] = std.EncodeToString(le)
		forms["html"] = html.EscapeString(value)
		forms["html numbers"] = dec
		forms["shell"] = strings.ReplaceAll(value, "'", `'\''`)
		forms["shlex"] = strings.ReplaceAll(value, "'", `'"'"'`)
	}
	return forms
}

func eachByte(b []byte, format string) string {
	var out strings.Builder
	for _, c := range b {
		fmt.Fprintf(&out, format, c)
	}
	return out.String()
}

func wrap(s string, width int, sep string) string {
	var out []string
	for len(s) > width {
		out, s = append(out, s[:width]), s[width:]
	}
	return strings.Join(append(out, s), sep)
}

// mixed changes the case of every third letter of s.
func mixed(s string) string {
	b := []byte(s)
	n := 0
	for i, c := range b {
		if isLetter := lower(c) >= 'a' && lower(c) <= 'z' && c != 'u' && c != 'x'; !isLetter {
			continue
		}
		if n++; n%3 == 0 {
			b[i] ^= 0x20
		}
	}
	return string(b)
}

func redactor(t testing.TB, values map[string]string) *Redactor {
	t.Helper()
	r := New(testKey)
	for name, v := range values {
		if err := r.Add(name, []byte(v)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// Every encoding, split at every offset, is replaced by exactly the marker.
func TestEncodingsAtEverySplit(t *testing.T) {
	r := redactor(t, testValues)
	for name, value := range testValues {
		for form, w := range spelled(value) {
			text := "say: {" + w + "} done"
			want := r.String(text)
			if !maskedWhole(want) {
				t.Fatalf("%s as %s: %q became %q", name, form, text, want)
			}
			for at := range len(text) + 1 {
				s := r.Stream()
				got := string(s.Write([]byte(text[:at]))) + string(s.Write([]byte(text[at:]))) + string(s.Flush())
				if got != want {
					t.Fatalf("%s as %s split at %d: %q, want %q", name, form, at, got, want)
				}
			}
		}
	}
}

// maskedWhole reports whether s is one marker between the surrounding text. The zero byte at an end of UTF-16 text is
// not secret.
func maskedWhole(s string) bool {
	s, ok := strings.CutPrefix(s, "say: {")
	s, end := strings.CutSuffix(s, "} done")
	s = strings.Trim(s, "\x00\n")
	return ok && end && strings.HasPrefix(s, "[REDACTED:") && strings.Index(s, "]") == len(s)-1
}

// Inside longer base64 and base32 text, each digit with a bit of the value is masked.
func TestValueInsideLongerText(t *testing.T) {
	const value = "hunter2-hunter2!"
	r := redactor(t, map[string]string{"v": value})
	type coder struct {
		name   string
		bits   int
		encode func([]byte) string
	}
	coders := []coder{
		{"base64", 6, base64.StdEncoding.EncodeToString},
		{"base64 raw", 6, base64.RawStdEncoding.EncodeToString},
		{"base64url", 6, base64.URLEncoding.EncodeToString},
		{"base32", 5, base32.StdEncoding.EncodeToString},
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range coders {
		for before := range 11 {
			for after := range 11 {
				b := append(noise(rng, before), value...)
				whole := c.encode(append(b, noise(rng, after)...))
				first := before * 8 / c.bits
				last := ceil((before+len(value))*8, c.bits)
				got := r.String(whole)
				want := whole[:first] + r.rules.Load().values[0].marker + whole[last:]
				if after == 0 {
					want = strings.TrimRight(want, "=")
				}
				if got != want {
					t.Fatalf("%s, %d before, %d after: %s became %s, want %s", c.name, before, after, whole, got, want)
				}
			}
		}
	}
}

// In base64 of base64, each outer digit with a bit of the value is masked.
func TestValueInsideTwice(t *testing.T) {
	const value = "hunter2-hunter2!"
	r := redactor(t, map[string]string{"v": value})
	rng := rand.New(rand.NewPCG(3, 4))
	enc := base64.StdEncoding
	for before := range 7 {
		for after := range 7 {
			for outer := range 4 {
				inner := enc.EncodeToString(append(append(noise(rng, before), value...), noise(rng, after)...))
				whole := enc.EncodeToString(append(append(noise(rng, outer), inner...), "#!"...))
				from := (outer + before*8/6) * 8 / 6
				to := ceil((outer+ceil((before+len(value))*8, 6))*8, 6)
				got := r.String(whole)
				head, rest, found := strings.Cut(got, "[REDACTED:v:")
				_, tail, _ := strings.Cut(rest, "]")
				if !found || len(head) > from || len(tail) > len(whole)-to {
					t.Fatalf("%d, %d, %d: %s became %s: digits %d to %d have bits of the value", before, after, outer, whole, got, from, to)
				}
			}
		}
	}
}

func noise(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}
