package report

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
)

// handedOut writes a signed report of real runs, and their bundles, as custody report does.
func handedOut(t *testing.T) (dir string, keys note.Verifiers) {
	t.Helper()
	dir = t.TempDir()
	private, public, err := note.GenerateKey(rand.Reader, "custody-test")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := note.NewVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	var runs []Run
	for _, name := range []string{"agent", "secret"} {
		r := bundled(t, name, nil)
		runs = append(runs, r)
		files := t.TempDir()
		unpack(t, filepath.Join("testdata", name+".zip"), files)
		bundle, err := os.ReadFile(pack(t, files))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, r.Run.ID+".tar"), bundle)
	}
	r := build(t, input("soc2", runs...))
	files, err := r.Attachments()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		write(t, filepath.Join(dir, f.Name), f.Data)
	}
	signed, err := r.Sign(signer, "ann", made)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, Statement), signed)
	write(t, filepath.Join(dir, "host.pub"), []byte(public+"\n"))
	return dir, note.VerifierList(verifier)
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// block is the first block of docs/compliance.md in that language.
func block(t *testing.T, language string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/compliance.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(page)
	if m == nil {
		t.Fatalf("docs/compliance.md has no block of %s", language)
	}
	return string(m[1])
}

func TestSign(t *testing.T) {
	dir, keys := handedOut(t)
	signed, err := os.ReadFile(filepath.Join(dir, Statement))
	if err != nil {
		t.Fatal(err)
	}
	var files []statement.Attachment
	for _, name := range []string{"report/soc2.html", "report/soc2.json"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, statement.Attachment{Name: name, Data: data})
	}
	a, err := proof.VerifyAttachments(signed, files, keys)
	if err != nil || len(a.About) != 2 || a.By != "ann" {
		t.Errorf("%+v: %v", a, err)
	}
	r := bundled(t, "agent", nil)
	r.Verification = Verification{}
	if _, err := build(t, input("soc2", r)).Sign(nil, "ann", made); err == nil {
		t.Error("a report of which nothing was verified was signed")
	}
}

// TestByHand runs what docs/compliance.md tells a reader to, on a report that is right and on
// ones that are not.
func TestByHand(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, dir string)
		sh, py bool // hold
	}{
		{"as it was made", func(*testing.T, string) {}, true, true},
		{"another number in the page", replace("report/soc2.html", "99 records", "98 records"), false, true},
		{"another head", replace("report/soc2.json", `"head": "`, `"head": "0`), false, false},
		{"another record", replace("report/soc2.json", `\"exit_code\":0`, `\"exit_code\":1`), false, false},
		{"another statement", replace("attachments", `"by":"ann"`, `"by":"eve"`), false, true},
		{"another run's bundle", func(t *testing.T, dir string) {
			bundles, err := filepath.Glob(filepath.Join(dir, "*.tar"))
			if err != nil || len(bundles) != 2 {
				t.Fatal(bundles, err)
			}
			if err := os.Rename(bundles[0], bundles[1]); err != nil {
				t.Fatal(err)
			}
		}, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, _ := handedOut(t)
			tc.change(t, dir)
			if out, err := run(dir, "bash", "-euo", "pipefail", "-c", block(t, "sh")); (err == nil) != tc.sh {
				t.Errorf("shell: %v\n%s", err, out)
			}
			if out, err := run(dir, "python3", "-I", "-c", block(t, "python"), "report/soc2.json"); (err == nil) != tc.py {
				t.Errorf("python: %v\n%s", err, out)
			}
		})
	}
}

func run(dir string, program string, args ...string) (string, error) {
	c := exec.Command(program, args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	return string(out), err
}

func replace(name, was, is string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		path := filepath.Join(dir, name)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), was) {
			t.Fatalf("%s has no %q", name, was)
		}
		write(t, path, []byte(strings.Replace(string(data), was, is, 1)))
	}
}

// TestPageOfDocs: docs/compliance.md has every query, control and status.
func TestPageOfDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/compliance.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for _, q := range Queries() {
		if !strings.Contains(text, "| `"+q.Name+"` | "+q.Asks+" |") {
			t.Errorf("the query %s is not there with what it asks", q.Name)
		}
	}
	for _, f := range Frameworks() {
		if !strings.Contains(text, "| `"+f.ID+"` |") {
			t.Errorf("the framework %s is not there", f.ID)
		}
	}
	for _, s := range []Status{Supports, Lacks, NotApplicable} {
		if !strings.Contains(text, "| "+string(s)+" |") {
			t.Errorf("the status %s is not there", s)
		}
	}
}
