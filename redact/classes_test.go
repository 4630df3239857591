package redact

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// classes are values of every kind that an encoding treats in its own way.
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
		"emoji":         "key🔑🔒\U0001f9d1‍💻end",
		"tilde":         "\u00c3bc\u00c3\u00c3defgh\u00c3",
		"prefix":        "hunter2-hunter2-",
		"pem":           pem,
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

// TestClasses writes a value of each class in each encoding: all of it is masked, at any split.
func TestClasses(t *testing.T) {
	raw := encoders()[0]
	for name, value := range classes() {
		r := redactor(t, map[string]string{"v": value})
		for _, e := range encoders() {
			if e.text && !utf8.ValidString(value) || e.fits != nil && !e.fits(value) {
				continue
			}
			for before := range alignments(e) {
				l := layout{raw, e, 0, before}
				t.Run(name+"/"+e.name, func(t *testing.T) {
					l.check(t, r, value)
					text := []byte(l.text(value))
					want := r.String(string(text))
					for _, cuts := range [][]int{{1}, {7, 2, 13}} {
						if got := string(pieces(r, slices.Clone(text), cuts)); got != want {
							t.Fatalf("in pieces of %v: %q, in one %q", cuts, got, want)
						}
					}
				})
			}
		}
	}
}
