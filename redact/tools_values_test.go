package redact

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/base64"
	keyfile "encoding/pem"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf8"
)

// valueClass is a kind of values that the tools write in a specific way.
type valueClass struct {
	name string
	make func(rng *rand.Rand, i int) string // the i-th value
}

const (
	lowers   = "abcdefghijklmnopqrstuvwxyz"
	uppers   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	decimals = "0123456789"
	alnum    = lowers + uppers + decimals
	specials = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
	unseen   = "\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x1b\x1f\x7f"
)

func valueClasses() []valueClass {
	latin, cjk, emoji := between(0xc0, 0x17f), between(0x4e00, 0x9fa5), between(0x1f600, 0x1f64f)
	mixed := slices.Concat([]rune(alnum), []rune(specials), []rune(alnum), latin, cjk[:400], emoji)
	bytes := func(rng *rand.Rand, n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return "\x00\xff\xc3" + string(b)
	}
	return []valueClass{
		{"token", func(rng *rand.Rand, i int) string { return pick(rng, 8+rng.IntN(50), []rune(alnum)) }},
		{"special", func(rng *rand.Rand, i int) string {
			return pick(rng, 12+rng.IntN(30), []rune(alnum+specials))
		}},
		{"quoted", func(rng *rand.Rand, i int) string {
			return pick(rng, 12+rng.IntN(20), []rune("abAB01 $'\"\\`!&%+/")) + pick(rng, i%2, []rune("xyz"))
		}},
		{"latin", func(rng *rand.Rand, i int) string {
			return pick(rng, i%9, []rune(alnum)) + pick(rng, 2, latin[:64]) + pick(rng, 8+rng.IntN(20), slices.Concat([]rune(alnum), latin))
		}},
		{"cjk", func(rng *rand.Rand, i int) string {
			return pick(rng, i%4, []rune(alnum)) + pick(rng, 3+rng.IntN(20), cjk)
		}},
		{"emoji", func(rng *rand.Rand, i int) string {
			return pick(rng, i%4, []rune(alnum)) + pick(rng, 3+rng.IntN(20), emoji)
		}},
		{"mixed", func(rng *rand.Rand, i int) string { return pick(rng, 8+rng.IntN(40), mixed) }},
		{"control", func(rng *rand.Rand, i int) string {
			return pick(rng, 1+i%8, []rune(alnum)) + pick(rng, 8+rng.IntN(30), []rune(alnum+unseen+unseen)) + pick(rng, 1, []rune(alnum))
		}},
		{"binary", func(rng *rand.Rand, i int) string { return bytes(rng, 8+rng.IntN(40)) }},
		{"pem", func(rng *rand.Rand, i int) string { return key(rng, i) }},
		{"lines", func(rng *rand.Rand, i int) string {
			return "USER=" + pick(rng, 20, []rune(alnum)) + "\n\nSECRET=" + pick(rng, 30, []rune(alnum+"+/")) + "\nEND=" + pick(rng, 5, []rune(alnum))
		}},
		{"json", func(rng *rand.Rand, i int) string {
			return "{\n  \"id\": \"" + pick(rng, 20, []rune(alnum)) + "\",\n  \"key\": \"" + pick(rng, 30, []rune(alnum)) + "\"\n}"
		}},
		{"prefix", func(rng *rand.Rand, i int) string {
			return pick(rng, 9+8*(i%3), []rune(alnum)) // prefixes adds prefixes
		}},
		{"base64", func(rng *rand.Rand, i int) string {
			return base64.StdEncoding.EncodeToString([]byte(bytes(rng, 12+3*rng.IntN(10)+i%3)))
		}},
		{"hex", func(rng *rand.Rand, i int) string {
			return pick(rng, []int{16, 32, 40, 64}[i%4], []rune("0123456789abcdef"))
		}},
		{"dotted", func(rng *rand.Rand, i int) string {
			return pick(rng, 9, []rune(alnum)) + "." + pick(rng, 20, []rune(alnum)) + "." + pick(rng, 15, []rune(alnum+"-_"))
		}},
		{"300", func(rng *rand.Rand, i int) string { return pick(rng, 300, mixed[:2*len(alnum)+len(specials)]) }},
		{"5000", func(rng *rand.Rand, i int) string { return pick(rng, []int{5000, 600, 900}[i%3], mixed) }},
	}
}

func between(from, to rune) (list []rune) {
	for r := from; r <= to; r++ {
		list = append(list, r)
	}
	return list
}

// pick returns n random characters of a list.
func pick(rng *rand.Rand, n int, from []rune) string {
	out := make([]rune, n)
	for i := range out {
		out[i] = from[rng.IntN(len(from))]
	}
	return string(out)
}

// key returns a private key in the format of openssl and ssh-keygen.
func key(rng *rand.Rand, i int) string {
	seed := noise(rng, ed25519.SeedSize)
	if i%2 == 0 {
		der, err := x509.MarshalPKCS8PrivateKey(ed25519.NewKeyFromSeed(seed))
		if err != nil {
			panic(err)
		}
		return string(keyfile.EncodeToMemory(&keyfile.Block{Type: "PRIVATE KEY", Bytes: der}))
	}
	seed[0] = 0 // less than the curve's order
	k, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), seed)
	if err != nil {
		panic(err)
	}
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		panic(err)
	}
	return string(keyfile.EncodeToMemory(&keyfile.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

// values makes n pairs of a class, beginning with the first-th, a multiple of 3: a value, and another in which as many
// characters as possible differ, but with the same kinds and numbers, so that a tool must write both in the same way.
// None ends with a single quote: the shell's form of it ends with one more, which is not masked.
func (c valueClass) values(rng *rand.Rand, first, n int) (list [][2]string) {
	for i := first; len(list) < n; {
		a := c.make(rng, i)
		if c.name == "prefix" && i%3 > 0 { // the one before continues
			a = list[len(list)-1][0] + a
		}
		b := other(a)
		if c.name == "prefix" && i%3 > 0 {
			last := list[len(list)-1]
			b = last[1] + other(a[len(last[0]):])
		}
		if b == a || len(fold([]byte(a))) < MinValue || strings.TrimSpace(a) != a && c.name != "pem" || strings.HasSuffix(a, "'") || strings.HasSuffix(b, "'") {
			continue
		}
		list = append(list, [2]string{a, b})
		i++
	}
	return list
}

// other permutes the characters of each kind so that none stays at its position, unless half of its kind are equal. The
// lines around a key, and the separators in lines, are kept.
func other(a string) string {
	units := inCharacters(a)
	groups := map[string][]int{}
	inLabel := false
	for i, u := range units {
		if strings.HasPrefix(a, "-----BEGIN ") {
			if i == 0 || u == "-" && units[i-1] == "\n" {
				inLabel = true
			}
			if inLabel {
				inLabel = u != "\n"
				continue
			}
		}
		k := kindOf(u)
		if k == specials && strings.Contains(a, "\n") && !strings.ContainsAny(a, unseen[:8]) {
			continue
		}
		groups[k] = append(groups[k], i)
	}
	out := slices.Clone(units)
	for _, at := range groups {
		slices.SortStableFunc(at, func(x, y int) int { return strings.Compare(units[x], units[y]) })
		most, run := 1, 1
		for i := 1; i < len(at); i++ {
			if run++; units[at[i]] != units[at[i-1]] {
				run = 1
			}
			most = max(most, run)
		}
		for i, to := range at {
			out[to] = units[at[(i+most)%len(at)]]
		}
	}
	return strings.Join(out, "")
}

// inCharacters splits s into characters and invalid bytes.
func inCharacters(s string) (list []string) {
	for len(s) > 0 {
		_, n := utf8.DecodeRuneInString(s)
		list, s = append(list, s[:n]), s[n:]
	}
	return list
}

// kindOf returns the characters that may replace one: those that tools treat alike.
func kindOf(u string) string {
	for _, set := range []string{lowers, uppers, decimals, specials} {
		if strings.Contains(set, u) {
			return set
		}
	}
	switch {
	case u == " ", u == "\n", u == "\r", u == "\t", u == "\x00":
		return u
	case len(u) > 1:
		return string(rune('0' + len(u)))
	case u[0] < utf8.RuneSelf:
		return "control"
	}
	return "byte"
}

// surrounding is the text around a value.
type surrounding struct{ before, after string }

var surroundings = []surrounding{
	{"key = ", "\n"}, {"kqz", "jw"}, {`{"token":"`, `"}` + "\n"}, {"user:", "@host/path"},
	{"# x\n", " end\nnext line\n"}, {"q", "\n"}, {"ä=", "&ü"}, {"\n", ""},
}

func (s surrounding) around(value string) string { return s.before + value + s.after }

// whole returns a text with values between alternating surroundings.
func whole(values []string) string {
	var out strings.Builder
	for i, v := range values {
		out.WriteString(surroundings[i%len(surroundings)].around(v))
		out.WriteByte('\n')
	}
	return out.String()
}

// lettered omits pairs of values that end with a special character: more than those may be masked.
func lettered(pairs [][2]string) [][2]string {
	return slices.DeleteFunc(slices.Clone(pairs), func(p [2]string) bool {
		return strings.ContainsAny(p[0][len(p[0])-1:]+p[1][len(p[1])-1:], strings.ReplaceAll(specials, "}", ""))
	})
}
