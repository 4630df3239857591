package pattern

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/custody-project/custody/redact"
	"github.com/zricethezav/gitleaks/v8/config"
)

func TestHitIsTheSecret(t *testing.T) {
	rs := rules(t)
	key := "-----BEGIN RSA PRIVATE KEY-----\n" + strings.Repeat("Zq8xW3vN5tRb7LkP2mYcZq8xW3vN5tRb7LkP2mYcZq8xW3vN5tRb7LkP2mYcabcd\n", 50) + "-----END RSA PRIVATE KEY-----"
	for _, c := range []struct{ before, secret, after, rule string }{
		{"client: ", "ghp_" + "Zq8xW3vN5tRb7LkP2mYcHd4sF6gJ9aEuXo1i", ", ok", "github-pat"},
		{"API_TOKEN=", "Zq8xW3vN5tRb7LkP2mYc", "\n", "generic-api-key"},
		{"curl -u ", "'admin:Zq8xW3vN'", " https://example.com", "curl-auth-user"},
		{"$ cat key\n", key, "\n$ ", "private-key"},
	} {
		text := []byte(c.before + c.secret + c.after)
		want := redact.Hit{Start: len(c.before), End: len(c.before) + len(c.secret), Rule: c.rule}
		if hits := rs.Find(nil, text); len(hits) != 1 || hits[0] != want {
			t.Errorf("%.60q: %v, not %v", text, hits, want)
		}
	}
}

func TestNoHit(t *testing.T) {
	rs := rules(t)
	for _, text := range []string{
		"commit 4273238d1f0e8a7b6c5d4e3f2a1b0c9d8e7f6a5b\nAuthor: someone\n",
		"key: value, token: none, password: changeme\n",
		"github.com/nats-io/nkeys v0.4.16 h1:rd5oAuLOb8mnAycB0xleuEBNS1pVVnN0fv/FF34Eypg=\n",
		"[REDACTED:generic-api-key:0123abcd] token=[REDACTED:prod_token:0123abcd]\n",
		"API_TOKEN=${API_TOKEN}\n", "api_key = aaaaaaaaaaaaaaaaaaaaaaaa\n",
		"-----BEGIN PRIVATE KEY-----\nMII\n", "-----BEGIN CERTIFICATE-----\n" + strings.Repeat("A", 64) + "\n-----END CERTIFICATE-----\n",
	} {
		if hits := rs.Find(nil, []byte(text)); len(hits) > 0 {
			t.Errorf("%q: %v", text, hits)
		}
	}
}

// Almost nothing in this repository, except in tests, looks like a secret.
func TestOrdinaryText(t *testing.T) {
	rs := rules(t)
	size, hits := 0, 0
	err := filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "testdata") {
			return err
		}
		if ext := filepath.Ext(path); ext != ".go" && ext != ".md" && ext != ".sum" && ext != ".c" && ext != ".html" {
			return nil
		}
		text, err := os.ReadFile(path)
		size += len(text)
		for _, h := range rs.Find(nil, text) {
			hits++
			t.Logf("%s: %s %q", path, h.Rule, text[h.Start:h.End])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d hits in %d bytes", hits, size)
	if size < 1e6 || hits > size/200_000 {
		t.Errorf("%d hits in %d bytes", hits, size)
	}
}

func TestDigest(t *testing.T) {
	a, b := rules(t), rules(t)
	if a.Digest() != b.Digest() || len(a.Digest()) != 64 {
		t.Errorf("digests %s and %s", a.Digest(), b.Digest())
	}
	c, err := parse(config.DefaultConfig + "\n[[rules]]\nid = \"one-more\"\nregex = '''abcd[0-9]{10}'''\nkeywords = [\"abcd\"]\n")
	if err != nil || c.Digest() == a.Digest() {
		t.Errorf("with another rule, the same digest %s, %v", c.Digest(), err)
	}
	if hits := c.Find(nil, []byte("x abcd0123456789 y")); len(hits) != 1 || hits[0].Rule != "one-more" {
		t.Errorf("the rule that was added: %v", hits)
	}
}

func TestParseErrors(t *testing.T) {
	const head = "[[rules]]\nid = \"r\"\n"
	for text, want := range map[string]string{
		"rules = 1":               "gitleaks' rules",
		"":                        "there are none",
		head + `regex = "a("`:     "rule r: ",
		head + `regex = "[a-z]+"`: "neither a string",
		head + "regex = \"abcd\"\nsecretGroup = 2":                                                    "no group 2",
		head + "regex = \"abcd\"\n[[rules.allowlists]]\nregexes = [\"(\"]":                            "allowlist",
		head + "regex = \"abcd\"\n[[rules.allowlists]]\nregexes = [\"x\"]\ncondition = \"x\"":         "unknown condition",
		head + "regex = \"abcd\"\n[[rules.allowlists]]\nregexes = [\"x\"]\nregexTarget = \"nothing\"": "unknown regexTarget",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, not %q", text, err, want)
		}
	}
}

// An allowlist whose conditions must all apply, one to a line, one to the match.
func TestAllowlists(t *testing.T) {
	rs, err := parse(`
[[rules]]
id = "r"
regex = '''pre_([a-z0-9]{8})'''
[[rules.allowlists]]
condition = "AND"
regexes = ['''^a''']
stopwords = ["stop"]
[[rules.allowlists]]
regexTarget = "line"
regexes = ['''# example''']
[[rules.allowlists]]
regexTarget = "match"
regexes = ['''pre_0''']
[[rules.allowlists]]
condition = "AND"
paths = ['''x''']
regexes = ['''.''']
`)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"pre_abcdefg1": true, "pre_bstopfg1": true, "pre_astopfg1": false, "pre_xbcdefg1 # example": false,
		"# example\npre_xbcdefg1\n# example": true, "pre_0bcdefg1": false,
	} {
		if hits := rs.Find(nil, []byte(text)); len(hits) > 0 != want {
			t.Errorf("%q: %v", text, hits)
		}
	}
	// A line is held back, but not forever.
	if _, open := rs.Follow(nil, []byte("pre_xbcdefg1 # exam"), 0, false); open != 0 {
		t.Errorf("open is %d before the line has ended", open)
	}
	long := "pre_xbcdefg1" + strings.Repeat(" -", lineAfter)
	if hits, open := rs.Follow(nil, []byte(long), 0, false); len(hits) != 1 || open < len(long)-maxToken {
		t.Errorf("an endless line: %v, open is %d", hits, open)
	}
}

// A line of ten megabytes does not differ from many lines.
func TestLongLine(t *testing.T) {
	rs := rules(t)
	text := bytes.Repeat([]byte("key the and token "), 600_000)
	copy(text[5_000_000:], " ghp_"+"Zq8xW3vN5tRb7LkP2mYcHd4sF6gJ9aEuXo1i ")
	if hits := rs.Find(nil, text); len(hits) != 1 || hits[0].Start != 5_000_001 {
		t.Errorf("%v", hits)
	}
}

func TestManyAtOnce(t *testing.T) {
	rs := rules(t)
	text := worst()["mixed literal"][:20_000]
	want := rs.Find(nil, text)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 3 {
				if got := rs.Find(nil, text); len(got) != len(want) {
					t.Errorf("%d hits, alone %d", len(got), len(want))
				}
			}
		})
	}
	wait.Wait()
}
