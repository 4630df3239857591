package vault

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/secrets"
)

// events is a log that stores redacted events as text.
type events struct {
	mu   sync.Mutex
	text []string
}

func (e *events) Append(_ context.Context, s redact.Sealed) (uint64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.text = append(e.text, string(s.Bytes()))
	return uint64(len(e.text)), nil
}

func (e *events) Sync(context.Context, uint64) error { return nil }

func (e *events) count(part string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.text {
		if strings.Contains(t, part) {
			n++
		}
	}
	return n
}

// Two steps with the issuer: each has a separate token, which is renewed, and revoked at Vault after the step, also
// after a step that prints a value.
func TestIssuer(t *testing.T) {
	s := prepared(t)
	b := opened(t, s.config(t))
	log, red := &events{}, redact.New([]byte("a key"))
	iss := secrets.NewIssuer(secrets.Config{
		Run: "r-1", Recorder: audit.NewRecorder(log, red), Redactor: red, Brokers: map[string]secrets.Broker{"vault": b},
		Bindings: []secrets.Binding{
			{Name: "git", From: git, Deliver: secrets.Deliver{Env: "GIT_TOKEN"}},
			{Name: "tok", From: "vault:secret/data/agents/git", Deliver: secrets.Deliver{Token: "VAULT_TOKEN"}},
		},
	})
	defer iss.Close(t.Context())
	var tokens []string
	for _, step := range []string{"setup", "agent"} {
		l, err := iss.Begin(t.Context(), step, []string{"git", "tok"}, time.Hour)
		must(t, err)
		items, err := l.Deliver(t.Context())
		must(t, err)
		if len(items) != 2 || string(items[0].Value) != canary {
			t.Fatalf("%d items", len(items))
		}
		token := string(items[1].Value)
		if code, _ := s.call(t, token, "GET", "secret/data/agents/git", nil); code != 200 {
			t.Errorf("the step's token: HTTP %d", code)
		}
		must(t, l.Renew(t.Context()))
		start := time.Now()
		if step == "setup" {
			must(t, l.End(t.Context(), "the step has ended"))
		} else {
			iss.Saw(audit.KindOutput, step, red.Find([]byte("its "+canary)), 9)
			<-l.Over()
			if !secrets.Anomalous(l.Err()) {
				t.Error(l.Err())
			}
		}
		code := 0
		for code != 403 && time.Since(start) < 2*time.Second {
			code, _ = s.call(t, token, "GET", "secret/data/agents/git", nil)
		}
		if code != 403 {
			t.Errorf("%s: the token is still alive: HTTP %d", step, code)
		}
		tokens = append(tokens, token)
	}
	must(t, iss.Close(t.Context()))
	if tokens[0] == tokens[1] || len(s.stepPolicies(t)) > 0 {
		t.Error("tokens or policies")
	}
	for part, n := range map[string]int{`"op":"mint"`: 4, `"op":"deliver"`: 4, `"op":"renew"`: 2, `"op":"revoke"`: 2, `"op":"expire"`: 0,
		"secret-in-output": 2, canary: 0, tokens[0]: 0, tokens[1]: 0} { // the finding, and the reason of the revocation
		if got := log.count(part); got != n {
			t.Errorf("%s: %d records, want %d\n%s", part, got, n, fmt.Sprint(log.text))
		}
	}
}
