package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/store/storetest"
)

// optionCheckers run custody verify, verify.py and the page's checker with the same options.
type optionCheckers struct {
	*testing.T
	dir string
}

// custody is the exit status of custody verify. Options that it cannot parse leave the question open.
func (o optionCheckers) custody(args ...string) int {
	o.Helper()
	var c cli
	var out strings.Builder
	a := newApp(o.Context(), os.Stdin, &out, &out)
	words, err := newParser(&c, &out, &out, func() {}).Parse(append([]string{"verify"}, args...))
	if err != nil {
		return int(exitCannotBeKnown)
	}
	code := a.code(words.Run(a))
	o.Logf("%d %s", code, strings.TrimSpace(out.String()))
	return code
}

// script is the exit status of verify.py, which takes seconds for --within.
func (o optionCheckers) script(args ...string) int {
	o.Helper()
	c := exec.Command("python3", append([]string{"-I", "../../docs/verify.py"}, args...)...)
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		o.Fatal(err)
	}
	o.Logf("%d %s", c.ProcessState.ExitCode(), bytes.TrimSpace(out))
	return c.ProcessState.ExitCode()
}

// page is the answer of the page's checker.
func (o optionCheckers) page(args ...string) int {
	o.Helper()
	c := exec.Command("node", "../../docs/testdata/checker.mjs")
	c.Stdin = strings.NewReader(strings.Join(args, "\t") + "\n")
	out, err := c.CombinedOutput()
	if err != nil {
		o.Fatalf("%v: %s", err, out)
	}
	o.Logf("%s", bytes.TrimSpace(out))
	var status int
	fmt.Sscan(string(out), &status)
	return status
}

func (o optionCheckers) file(name, content string) string {
	o.Helper()
	path := filepath.Join(o.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		o.Fatal(err)
	}
	return path
}

// cosigned returns a bundle whose checkpoint a witness cosigned as well.
func cosigned(t *testing.T, bundle []byte, host hostkey.Key, w prooftest.Witness) []byte {
	t.Helper()
	files := prooftest.Unpack(t, bundle)
	list := note.VerifierList(mustOf[note.Verifier](t)(host.Verifier()))
	n := mustOf[*note.Note](t)(note.Open(files["checkpoint"], list))
	signed := mustOf[[]byte](t)(note.Sign(n, w.On(storetest.Start())))
	for name, data := range files {
		if name != "checkpoint" {
			files[name] = bytes.ReplaceAll(data, files["checkpoint"], signed)
		}
	}
	files["checkpoint"] = signed
	return files.Seal(t, host).Pack(t)
}

func mustOf[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// alike are two public keys of one name and hash.
func alike(kind byte) (a, b string) {
	seen := map[[4]byte]string{}
	for i := uint64(0); ; i++ {
		sum := sha256.Sum256(binary.LittleEndian.AppendUint64(nil, i))
		raw := append([]byte{kind}, sum[:]...)
		hash := sha256.Sum256(append([]byte("twin\n"), raw...))
		text := fmt.Sprintf("twin+%x+%s", hash[:4], base64.StdEncoding.EncodeToString(raw))
		if other, ok := seen[[4]byte(hash[:4])]; ok {
			return other, text
		}
		seen[[4]byte(hash[:4])] = text
	}
}

// TestVerifyOptions: custody verify, verify.py and the page's checker give one answer with the same keys, witnesses and limits.
func TestVerifyOptions(t *testing.T) {
	r := newRecorded(t, "")
	id := r.run()
	o := optionCheckers{t, t.TempDir()}
	plain := filepath.Join(o.dir, "plain.tar")
	if err := (bundleCmd{Name: id, Out: plain}).Run(newApp(t.Context(), nil, &strings.Builder{}, &strings.Builder{})); err != nil {
		t.Fatal(err)
	}
	data := mustOf[[]byte](t)(os.ReadFile(plain))
	host := mustOf[hostkey.Key](t)(hostkey.LoadOrCreate(filepath.Join(r.home.Dir, "keys")))
	w1, w2 := prooftest.NewWitness(t, "w1"), prooftest.NewWitness(t, "w2")
	seen := o.file("seen.tar", string(cosigned(t, data, host, w1)))
	e := mustOf[*proof.Evidence](t)(proof.OpenBundle(plain))
	defer e.Close()
	p := mustOf[proof.RecordProof](t)(proof.ProofOf(t.Context(), e, 1))
	document := string(mustOf[[]byte](t)(p.Encode()))
	key := host.Public
	name, rest, _ := strings.Cut(key, "+")
	hash, body, _ := strings.Cut(rest, "+")
	_, rest, _ = strings.Cut(w1.Key, "+")
	_, wbody, _ := strings.Cut(rest, "+")
	raw := mustOf[[]byte](t)(base64.StdEncoding.DecodeString(wbody))
	raw[0] = 4
	sum := sha256.Sum256(append([]byte("w1\n"), raw...))
	w1own := fmt.Sprintf("w1+%x+%s", sum[:4], base64.StdEncoding.EncodeToString(raw))
	hostA, hostB := alike(1)
	witnessA, witnessB := alike(4)
	for title, c := range map[string]struct {
		want int
		args []string
	}{
		"plain":                         {0, []string{plain, "--key", key}},
		"a witness that did not cosign": {1, []string{plain, "--key", key, "--witness", w1.Key}},
		"a quorum of 0 is all":          {1, []string{plain, "--key", key, "--witness", w1.Key, "--quorum", "0"}},
		"a witness that cosigned":       {0, []string{seen, "--key", key, "--witness", w1.Key}},
		"one of two":                    {1, []string{seen, "--key", key, "--witness", w1.Key, "--witness", w2.Key}},
		"one of two is enough":          {0, []string{seen, "--key", key, "--witness", w1.Key, "--witness", w2.Key, "--quorum", "1"}},
		"the last quorum counts":        {0, []string{seen, "--key", key, "--witness", w1.Key, "--witness", w2.Key, "--quorum", "2", "--quorum", "1"}},
		"a quorum above the witnesses":  {2, []string{seen, "--key", key, "--witness", w1.Key, "--quorum", "2"}},
		"a quorum without witnesses":    {2, []string{seen, "--key", key, "--quorum", "1"}},
		"a quorum in other digits":      {2, []string{seen, "--key", key, "--witness", w1.Key, "--quorum", "\u0661"}},
		"a quorum in small digits":      {2, []string{seen, "--key", key, "--witness", w1.Key, "--quorum", "\u00b2"}},
		"a quorum of 2^64+1":            {2, []string{seen, "--key", key, "--witness", w1.Key, "--quorum", "18446744073709551617"}},
		"a witness twice":               {0, []string{seen, "--key", key, "--witness", w1.Key, "--witness", w1.Key}},
		"a witness twice, quorum 2":     {2, []string{seen, "--key", key, "--witness", w1.Key, "--witness", w1.Key, "--quorum", "2"}},
		"a witness in both kinds":       {0, []string{seen, "--key", key, "--witness", w1.Key, "--witness", w1own}},
		"a witness in its own kind":     {0, []string{seen, "--key", key, "--witness", w1own}},
		"a witness as a host":           {2, []string{seen, "--key", w1own}},
		"a witness with another hash":   {2, []string{seen, "--key", key, "--witness", "w1+00000000+" + wbody}},
		"a hash in upper case":          {2, []string{plain, "--key", name + "+" + strings.ToUpper(hash) + "+" + body}},
		"keys of one hash":              {2, []string{plain, "--key", key, "--key", hostA, "--key", hostB}},
		"root keys of one hash":         {2, []string{plain, "--key", key, "--fleet-key", hostA, "--fleet-key", hostB}},
		"witnesses of one hash":         {2, []string{seen, "--key", key, "--witness", w1.Key, "--witness", witnessA, "--witness", witnessB, "--quorum", "1"}},
		"no time":                       {2, []string{seen, "--key", key, "--within", "0s"}},
		"292 years":                     {0, []string{seen, "--key", key, "--witness", w1.Key, "--within", "9223372036s"}},
		"293 years":                     {2, []string{seen, "--key", key, "--witness", w1.Key, "--within", "9223372037s"}},
		"a proof of any name":           {0, []string{o.file("proof.tar", document), "--key", key}},
		"a bundle of any name":          {0, []string{o.file("bundle.json", string(data)), "--key", key}},
		"a proof, and a witness":        {1, []string{o.file("proof", document), "--key", key, "--witness", w1.Key}},
		"no file":                       {2, []string{filepath.Join(o.dir, "nothing.tar"), "--key", key}},
		"an empty file":                 {1, []string{o.file("empty", ""), "--key", key}},
		"an empty checkpoint":           {1, []string{plain, "--key", key, "--since", filepath.Join(o.dir, "empty")}},
		"no checkpoint":                 {2, []string{plain, "--key", key, "--since", filepath.Join(o.dir, "nothing")}},
	} {
		t.Run(title, func(t *testing.T) {
			o := optionCheckers{t, o.dir}
			seconds := make([]string, len(c.args))
			for i, arg := range c.args {
				if seconds[i] = arg; i > 0 && c.args[i-1] == "--within" {
					seconds[i] = strings.TrimSuffix(arg, "s")
				}
			}
			if v, s, p := o.custody(c.args...), o.script(seconds...), o.page(seconds...); v != c.want || s != c.want || p != c.want {
				t.Errorf("custody verify: %d, verify.py: %d, the page: %d, want %d", v, s, p, c.want)
			}
		})
	}
	for content, want := range map[string]int{
		key: 0, key + "\r\n": 0, " " + key + "\t\n": 0, key + "\n" + key: 2, key + "\xff": 2, key + "\x1c": 2, "\u00a0" + key: 2, "\ufeff" + key: 2, "": 2,
	} {
		file := o.file("key", content)
		if v, s := o.custody(plain, "--key", file), o.script(plain, "--key", file); v != want || s != want {
			t.Errorf("file of a key %q: custody verify: %d, verify.py: %d, want %d", content, v, s, want)
		}
	}
}
