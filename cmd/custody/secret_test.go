package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// canary is a value with something for every encoding to change.
const canary = `cn-7"Qz/+é&=\9f%Kx3-wT`

// leak is a command that leaks the value in every way it can.
const leak = `
import base64, json, os, subprocess, sys, time, urllib.parse
v = open("value", "rb").read()
s = v.decode()
out = sys.stdout.buffer
forms = [v, v.hex().encode(), v.hex().upper().encode(), urllib.parse.quote(s).encode(), urllib.parse.quote_plus(s, safe="").encode(),
         json.dumps(s).encode(), json.dumps(s, ensure_ascii=False).encode()]
for pad in range(3):
    forms += [base64.b64encode(b"x" * pad + v), base64.urlsafe_b64encode(b"x" * pad + v), base64.b64encode(b"x" * pad + v + b"tail")]
for f in forms:
    out.write(b"form <" + f + b">\n")
out.flush()

for stream in (sys.stdout.buffer, sys.stderr.buffer):       # a byte at a time, and slower than output is gathered
    for i in range(len(v)):
        stream.write(v[i:i+1]); stream.flush()
        time.sleep(0.15 if i % 7 == 3 else 0.01)
    stream.write(b"\n"); stream.flush()
for n in range(32768 - 40, 32768 + 40, 9):                  # across the edges of pieces
    out.write(b"A" * n + v + b"\n")
out.write(base64.encodebytes(b"some text before " * 9 + v + b" and some behind" * 9))
out.flush()

for f in forms:
    subprocess.run(["/bin/true", f, b"--token=" + f])
subprocess.run(["/bin/sh", "-c", 'echo "$CANARY" | cat; echo "$CANARY" >&2', v], env={"CANARY": s, "PATH": "/bin"})
subprocess.run(["/bin/sh", "-c", "exec -a '" + s + "' true"])

deep = b"dir-" + v + b"-end"                                # the value has a slash
os.makedirs(deep)
open(deep + b"/file", "wb").write(v)
open("with a newline", "wb").write(v + b"\n")
os.rename(deep + b"/file", deep + b"/renamed-" + v.replace(b"/", b"_"))
subprocess.run(["/bin/pwd"], cwd=deep)
subprocess.run([deep + b"/no-such-program"], check=False) if False else None
for name in (v.hex().encode(), base64.urlsafe_b64encode(v), urllib.parse.quote(s, safe="").encode()):
    open(name, "w").write("x")
    os.mkfifo(b"fifo-" + name)
os.symlink(b"/" + v, "link")
`

// needles are the forms that the record must not contain: the encodings of the value, and the digests of files with it.
func needles() map[string][]byte {
	all := encodings()
	for _, content := range []string{canary, canary + "\n"} {
		all[fmt.Sprintf("digest of %d bytes", len(content))] = fmt.Appendf(nil, "%x", sha256.Sum256([]byte(content)))
	}
	return all
}

// encodings are the value in the encodings of docs/redaction.md. They are made here again, not by the redactor.
func encodings() map[string][]byte {
	v := []byte(canary)
	quoted, _ := json.Marshal(canary)
	all := map[string][]byte{
		"raw": v, "hex": []byte(hex.EncodeToString(v)), "HEX": []byte(strings.ToUpper(hex.EncodeToString(v))),
		"query": []byte(url.QueryEscape(canary)), "path": []byte(url.PathEscape(canary)), "json": quoted[1 : len(quoted)-1],
		"json in json": []byte(strings.ReplaceAll(strings.ReplaceAll(canary, `\`, `\\`), `"`, `\"`)),
	}
	for pad := range 3 {
		for name, enc := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding, "base64url": base64.RawURLEncoding} {
			whole := enc.EncodeToString(append(make([]byte, pad), v...))
			from, to := (8*pad+5)/6, 8*(pad+len(v))/6 // digits that the value alone decides
			all[name+" at "+string(rune('0'+pad))] = []byte(whole[from:to])
		}
	}
	return all
}

func (d *door) clean(where string, b []byte) { d.without(needles(), where, b) }

func (d *door) without(needles map[string][]byte, where string, b []byte) {
	d.Helper()
	for form, needle := range needles {
		if i := bytes.Index(b, needle); i >= 0 {
			d.Errorf("the secret as %s is in %s: %.160q", form, where, b[max(0, i-60):])
		}
	}
}

// cleanHome searches every file of the home except the templates.
func (d *door) cleanHome() {
	d.Helper()
	files := 0
	err := filepath.WalkDir(d.home, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		files++
		b, err := os.ReadFile(path)
		d.clean(path, b)
		d.clean("the name of", []byte(path))
		return err
	})
	if err != nil || files < 6 {
		d.Fatalf("%d files, %v", files, err)
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.env = []string{"CANARY=" + canary}
	d.project("version: 1\nsecrets:\n  canary: {from: \"env:CANARY\", deliver: {env: CANARY}}\n")
	in, out := filepath.Join(d.dir, "in"), filepath.Join(d.dir, "out")
	for _, dir := range []string{in, out} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d.write(filepath.Join(in, "leak.py"), leak)
	d.write(filepath.Join(in, "value"), canary)
	s := d.must(0, "run", "--secret", "canary", "--workdir", in, "--out", out, "--", "python3", "leak.py")
	d.contains(s.stdout, "form <", "AAAA")
	d.clean("stdout", []byte(s.stdout))
	d.clean("stderr", []byte(s.stderr))
	d.cleanHome()
	d.verified("last")

	// The output that was copied back belongs to the user: it is complete.
	if b, err := os.ReadFile(filepath.Join(out, "dir-"+canary+"-end", "renamed-"+strings.ReplaceAll(canary, "/", "_"))); err != nil || string(b) != canary {
		t.Errorf("the file that came back: %q, %v", b, err)
	}
	// Also without line breaks and joined, as a reader could restore it.
	var streams = map[string]*bytes.Buffer{}
	for _, r := range d.records("last", "output") {
		if streams[r.Output.Stream] == nil {
			streams[r.Output.Stream] = new(bytes.Buffer)
		}
		streams[r.Output.Stream].WriteString(strings.ReplaceAll(string(r.Output.Text), "\n", ""))
	}
	for name, b := range streams {
		d.clean(name+" in one piece", b.Bytes())
	}
	d.contains(strings.Join(d.ops("last", "main"), " "), "canary:mint", "canary:deliver", "revoke")
	bundle := filepath.Join(d.dir, "bundle")
	d.must(0, "bundle", "last", "-o", bundle)
	for _, args := range [][]string{{"timeline", "last"}, {"timeline", "last", "--json"}, {"timeline", "last", "--at", "+1h"}} {
		d.clean(strings.Join(args, " "), []byte(d.must(0, args...).stdout))
	}
}

// Custody's own messages about a command can quote a value, too.
func TestSecretsInComplaints(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.env = []string{"CANARY=" + canary}
	d.project("version: 1\nsecrets:\n  canary: {from: \"env:CANARY\", deliver: {env: CANARY}}\n")
	for _, c := range []struct {
		code int
		args []string
	}{
		{127, []string{"run", "--secret", "canary", "--", canary}},
		{127, []string{"run", "--secret", "canary", "--json", "--", "/no/" + canary}},
		{2, []string{"run", "--secret", "canary", "--", "sh", "-c", "exec 2>&1; cd /" + strings.ReplaceAll(canary, `"`, "") + " || exit 2"}},
	} {
		s := d.must(c.code, c.args...)
		d.clean("stdout", []byte(s.stdout))
		d.clean("stderr", []byte(s.stderr))
	}
	d.cleanHome()
}

// TestSecretsOfNoStep: what a step prints of secrets that it does not bind is masked, and so is the first
// part of a value that it had printed when it was killed.
func TestSecretsOfNoStep(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	const variable, file = "a-variable-that-no-step-binds", "a-file-that-no-step-binds"
	d.env = []string{"CUSTODY_TEST_UNBOUND=" + variable}
	if err := os.WriteFile(filepath.Join(d.dir, "key"), []byte(file+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.project(`version: 1
secrets:
  variable: {from: "env:CUSTODY_TEST_UNBOUND", deliver: {env: UNBOUND}}
  file: {from: "file:key"}
  command: {from: "cmd:touch called; echo what-it-prints", deliver: {env: COMMAND}}
steps:
  - {name: print, run: "echo ` + variable + `; echo ` + file + ` | base64"}
  - {name: killed, run: "printf 'it is ` + variable[:12] + `'; kill -9 $$"}
`)
	s := d.must(137, "run")
	d.contains(s.stdout, "[REDACTED:variable:", "[REDACTED:file:", "it is [REDACTED:variable:")
	output := ""
	for _, r := range d.records("last", "output") {
		output += string(r.Output.Text)
	}
	for where, text := range map[string]string{"stdout": s.stdout, "its record": output} {
		if strings.Contains(text, variable[:12]) {
			t.Errorf("the beginning of a value is in %s: %s", where, text)
		}
	}
	for where, text := range map[string]string{"stdout": s.stdout, "stderr": s.stderr, "the record": d.must(0, "timeline", "last", "--json").stdout} {
		for _, value := range []string{variable, file, base64.StdEncoding.EncodeToString([]byte(file))} {
			if strings.Contains(text, value) {
				t.Errorf("%q is in %s: %s", value, where, text)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(d.dir, "called")); err == nil {
		t.Error("a command was run that no step asked for")
	}
	d.contains(d.must(0, "timeline", "last", "--kind", "finding").stdout, "secret-in-output")
}
