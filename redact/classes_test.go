package redact

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// classes are values of every kind that an encoding treats differently.
func classes() map[string]string {
	list := map[string]string{
		"ascii":         "hunter2-hunter2",
		"special":       `p@ss/w0rd+"q'\&<x> $(y)%`,
		"quotes":        `it's"o'clock"`,
		"controls":      "ab\x01c\x1bde\x00f\ng\x7fh\t\v\a\b\f.",
		"control first": "\x01\x1b\x02abcdefgh\x00",
		"latin-1":       "p\xe4ssw\xf6rd-geheim",
		"latin-1 late":  "password-\xe4\xf6\xfc!",
		"binary":        "\x00\xff\xfe\x80key\x01\x02\r\n\x9c\xfb\xff\xbf",
		"cjk":           "密钥是一二三四五",
		"emoji":         "key🔑🔒\U0001f9d1\u200d💻end",
		"tilde":         "\u00c3bc\u00c3\u00c3defgh\u00c3",
		"prefix":        "hunter2-hunter2-",
		"pem":           pem,
		"json":          "{\n  \"type\": \"service_account\",\n  \"key\": \"-----BEGIN\\nabc+abc+abcd\\n\"\n}",
		"short lines":   "a b\n.c\n\nd\nefg\nh\ni\njk",
		"alike":         "aabaabaa\naabaabaab\naabaabaaab\naaaaaaaaab",
		"long":          strings.Repeat("kZ3_xQ9-ä\t\"", 90),
		"small bytes":   "\x01\n\x02\x03\x04\x05\x06\x07\x08\x09\n\x0f",
	}
	for at := range 10 {
		for what, c := range map[string]string{"latin": "ä", "wide": "密", "emoji": "🔑", "control": "\x01", "escape": "\x1b"} {
			list[fmt.Sprintf("%s at %d", what, at)] = "passwordpassword"[:at] + c + "rest-of" + c
		}
	}
	return list
}

const pem = "-----BEGIN PRIVATE KEY-----\n" +
	"MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF\n" +
	"Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4\n" +
	"-----END PRIVATE KEY-----"

// TestClasses: values of each class in each encoding are masked completely, at any split.
func TestClasses(t *testing.T) {
	raw := encoders()[0]
	for name, value := range classes() {
		r := redactor(t, map[string]string{"v": value})
		for _, e := range encoders() {
			if !e.writes(value) {
				continue
			}
			for before := range alignments(e) {
				if e.dump() && (before%7 != len(name)%7 || tooWide(e, value, before)) {
					continue // only a few of them; TestDumps has all
				}
				l := layout{raw, e, 0, before}
				t.Run(name+"/"+e.name, func(t *testing.T) {
					checkPieces(t, r, l, value, [][]int{{1}, {7, 2, 13}})
				})
			}
		}
	}
}

// tooWide reports whether no word of a dump in words of 8 bytes has only the value's bytes.
func tooWide(e encoder, value string, before int) bool {
	return strings.HasSuffix(e.name, "8") && len(value) < 8+(8-before%8)%8
}

func checkPieces(t *testing.T, r *Redactor, l layout, value string, cuts [][]int) {
	l.check(t, r, value)
	text := []byte(l.text(value))
	want := r.String(string(text))
	for _, c := range cuts {
		if got := string(pieces(r, slices.Clone(text), c)); got != want {
			t.Fatalf("in pieces of %v: %q, in one piece %q", c, got, want)
		}
	}
}

// A form whose end depends on the following text is found at the end of the text, and the text after it is kept.
func TestEnds(t *testing.T) {
	const value = "hunter2-hunter2-\x00\x07"
	r := redactor(t, map[string]string{"v": value, "zero": value[:17]})
	hex := strings.TrimSuffix(eachByte([]byte(value), "0x%x, "), ", ")
	marker := func(of string) string {
		return "[REDACTED:" + of + ":" + r.Tag([]byte(map[string]string{"v": value, "zero": value[:17]}[of])) + "]"
	}
	for text, want := range map[string]string{
		hex:                        marker("v"),
		hex + "}":                  marker("v") + "}",
		hex + ", 0x1}":             marker("v") + ", 0x1}",
		`hunter2-hunter2-\0`:       marker("zero"),
		`<hunter2-hunter2-\0>`:     `<` + marker("zero") + `>`,
		`<hunter2-hunter2-\0\7>`:   `<` + marker("v") + `>`,
		`%22hunter2-hunter2-%00`:   `%22` + marker("zero"),
		"aHVudGVyMi1odW50ZXIyLQAH": marker("v"),
	} {
		for at := range len(text) + 1 {
			if got := string(pieces(r, []byte(text), []int{max(at, 1), len(text)})); got != want {
				t.Errorf("%q split at %d became %q, want %q", text, at, got, want)
			}
		}
	}
}

// TestDumps has a value at each position of a dump's rows.
func TestDumps(t *testing.T) {
	raw := encoders()[0]
	for name, value := range map[string]string{"short": "a1b2c3d4", "odd": "hunter2-hunter2", "text": "pässwörd-密钥-🔑", "long": strings.Repeat("kZ3_xQ9-", 9)} {
		r := redactor(t, map[string]string{"v": value})
		for _, e := range encoders() {
			for before := 0; e.dump() && before < 16; before++ {
				if tooWide(e, value, before) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d", name, e.name, before), func(t *testing.T) {
					checkPieces(t, r, layout{raw, e, 0, before}, value, [][]int{{1}, {1 + before, 9}, {60}})
				})
			}
		}
	}
}
