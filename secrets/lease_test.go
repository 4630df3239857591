package secrets

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
)

// A step of 150 s is renewed and then ends: the record, the step's items and the gateway's credentials.
func TestLease(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		l := w.begin("agent", "git", "npm", "api")
		if _, err := w.issuer.Credential("api"); err == nil {
			t.Error("a credential is available before its delivery is recorded")
		}
		items, err := l.Deliver(w.t.Context())
		if err != nil {
			t.Fatal(err)
		}
		cred, err := w.issuer.Credential("api")
		if err != nil || cred.Header != "x-api-key" || string(cred.Value) != "the-value-of-api" {
			t.Fatalf("credential %+v, %v", cred, err)
		}
		var got []string
		for _, i := range items {
			got = append(got, strings.Join([]string{i.Name, i.Env, i.File, string(i.Value)}, " "))
		}
		equal(t, got, []string{"api API_KEY  " + cred.Placeholder, "git GIT_TOKEN  the-value-of-git", "npm  npmrc the-value-of-npm"})
		for range 7 {
			time.Sleep(20 * time.Second)
			if err := l.Renew(w.t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		if closed(l.Over()) || l.Err() != nil {
			t.Fatalf("over: %v", l.Err())
		}
		if err := l.End(w.t.Context(), "the step has ended"); err != nil {
			t.Fatal(err)
		}
		if closed(l.Over()) || l.Err() != nil {
			t.Errorf("End counts as an early end: %v", l.Err())
		}
		if w.vault.alive()+w.local.alive() > 0 {
			t.Error("grants outlive the end")
		}
		want := []string{"agent mint npm", "agent mint api", "agent mint git", "agent deliver npm", "agent deliver api", "agent deliver git"}
		ops := w.log.ops()
		equal(t, ops[:len(want)], want)
		// Each broker's renewals and revocations are concurrent, in any order.
		count := map[string]int{}
		for _, o := range ops[len(want):] {
			count[o]++
		}
		if len(count) != 4 || count["agent renew"] != 7 || count["agent renew npm"] != 7 || count["agent revoke"] != 1 || count["agent revoke npm"] != 1 {
			t.Errorf("renewals and revocations: %v", count)
		}
		if strings.Contains(w.log.raw.String(), "the-value-of") || strings.Contains(w.log.raw.String(), "vault-accessor") {
			t.Error("a value or an accessor is in the record")
		}
	})
}

func TestEventFields(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		l := w.deliver("agent", "api", "git")
		time.Sleep(10 * time.Second)
		if err := l.Renew(w.t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = l.End(w.t.Context(), "the step has ended")
		accessor := digest("vault-accessor-0")
		for _, ev := range w.log.events() {
			s := ev.Secret
			if ev.Observer != audit.Host || ev.Step != "agent" || s.Broker != "vault" || s.Accessor != accessor || s.Leases != 1 {
				t.Errorf("%s: %+v %+v", s.Op, ev, s)
			}
			if lives := s.Op != audit.SecretRevoke; lives != (s.TTLNS == int64(TTL)) || lives != s.Expires.Equal(ev.Time.Add(TTL)) {
				t.Errorf("%s: ttl %v, expires %v at %v", s.Op, time.Duration(s.TTLNS), s.Expires, ev.Time)
			}
			if s.Op == audit.SecretMint && s.Tag != w.red.Tag([]byte("the-value-of-"+s.Name)) {
				t.Errorf("tag %q of %s", s.Tag, s.Name)
			}
			if via := map[string]string{"api": "header,env", "git": "env", "": ""}[s.Name]; s.Via != via {
				t.Errorf("%s %s via %q", s.Op, s.Name, s.Via)
			}
			if (s.Op == audit.SecretRevoke) != (s.Reason == "the step has ended") {
				t.Errorf("%s: reason %q", s.Op, s.Reason)
			}
		}
	})
}

// Two steps get separate placeholders. Each is recognized in any encoding for the rest of the run, and the values are
// wiped with their lease.
func TestPlaceholders(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		one := w.deliver("one", "api", "bare")
		first, _ := w.issuer.Credential("api")
		bare, err := w.issuer.Credential("bare")
		if err != nil || bare.Placeholder != "" || string(bare.Value) != "the-value-of-bare" {
			t.Errorf("a secret only for the header: %+v, %v", bare, err)
		}
		held := w.vault.last().values
		value := held["api"]
		_ = one.End(w.t.Context(), "done")
		if !bytes.Equal(value, make([]byte, len(value))) {
			t.Errorf("not wiped: %q", value)
		}
		two := w.deliver("two", "api")
		second, _ := w.issuer.Credential("api")
		if first.Placeholder == second.Placeholder || len(first.Placeholder) != len("custody-api-")+32 {
			t.Errorf("placeholders %q and %q", first.Placeholder, second.Placeholder)
		}
		_ = two.End(w.t.Context(), "done")
		for _, text := range []string{first.Placeholder, second.Placeholder, "y3VzdG9keS1hcGkt" + b64(first.Placeholder), "k=" + b64("x:"+second.Placeholder), string(first.Value)} {
			if got := w.issuer.Find([]byte("zz " + text + " zz")); len(got) != 1 || got[0] != "api" {
				t.Errorf("find in %q: %v", text, got)
			}
		}
		marker := w.red.String("the-value-of-api")
		if got := w.issuer.Find([]byte("a " + marker + " and [REDACTED:x:00] custody-api-")); len(got) > 0 || !strings.HasPrefix(marker, "[REDACTED:api:") {
			t.Errorf("%q was mistaken for its value: %v", marker, got)
		}
		if got := w.issuer.Find([]byte(marker + " the-value-of-bare")); len(got) != 1 || got[0] != "bare" {
			t.Errorf("beside a marker: %v", got)
		}
	})
}

// Begin mints all or nothing, and records the grants that it had to revoke.
func TestBeginFails(t *testing.T) {
	give := func(v map[string]string) func(Request) map[string][]byte {
		return func(Request) map[string][]byte {
			out := map[string][]byte{}
			for k, s := range v {
				out[k] = []byte(s)
			}
			return out
		}
	}
	given := []string{"s mint npm", "s mint git", "s refuse", "s revoke npm", "s revoke git"}
	cases := []struct {
		name  string
		names []string
		fault func(*world)
		want  string
		ops   []string // in any order
	}{
		{"unknown name", []string{"git", "gti"}, nil, `has the secret "gti"`, nil},
		{"no broker", []string{"git", "lost"}, nil, "no broker here serves its source", []string{"s refuse"}},
		{"second broker down", []string{"git", "npm"}, func(w *world) { w.vault.mintErr = errDown }, "connection refused", []string{"s mint npm", "s refuse", "s revoke npm"}},
		{"broker hangs", []string{"npm"}, func(w *world) { w.local.mintTakes = time.Hour }, "deadline exceeded", []string{"s refuse"}},
		{"short value", []string{"git", "npm"}, func(w *world) { w.vault.values = give(map[string]string{"git": "1234567"}) }, "7 bytes", given},
		{"no value", []string{"git", "npm"}, func(w *world) { w.vault.values = give(map[string]string{"git": ""}) }, "granted no value", given},
		{"other values", []string{"git", "npm"}, func(w *world) {
			w.vault.values = give(map[string]string{"git": "the-value-of-git", "root": "the-root-value"})
		}, "not requested", given},
		{"lives longer", []string{"git", "npm"}, func(w *world) { w.vault.ttl = time.Hour }, "for 1h0m0s, which may live for 1m0s", given},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				if c.fault != nil {
					c.fault(w)
				}
				l, err := w.issuer.Begin(w.t.Context(), "s", c.names, time.Minute)
				if err == nil || l != nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("error %v", err)
				}
				if w.vault.alive()+w.local.alive() > 0 {
					t.Error("a grant is still alive")
				}
				sameSet(t, w.log.ops(), c.ops)
				if strings.Contains(w.log.raw.String(), "nowhere") || strings.Contains(err.Error(), "nowhere") {
					t.Error("a source is in the record or the error")
				}
				w.vault.set(func() { w.vault.mintErr, w.vault.values, w.vault.ttl = nil, nil, 0 })
				w.local.heal()
				_ = w.deliver("s", "git", "npm").End(w.t.Context(), "done") // Begin can be called again
			})
		})
	}
}

func TestBeginWithoutRecord(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.log.breaks(errors.New("disk full"))
		if _, err := w.issuer.Begin(w.t.Context(), "s", []string{"git"}, time.Minute); err == nil || !strings.Contains(err.Error(), "disk full") {
			t.Errorf("error %v", err)
		}
		if w.vault.alive() > 0 {
			t.Error("a token is alive without a record of it")
		}
		w.log.breaks(nil)
		l := w.begin("s", "git")
		w.log.breaks(errors.New("disk full"))
		if items, err := l.Deliver(w.t.Context()); err == nil || items != nil {
			t.Errorf("delivered without a record: %v", err)
		}
		if err := l.End(w.t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "disk full") {
			t.Errorf("an end that is not in the record: %v", err)
		}
		w.log.breaks(nil)
	})
}

func TestBeginOnce(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		l := w.begin("s", "git")
		if _, err := w.issuer.Begin(w.t.Context(), "s", []string{"git"}, 0); err == nil {
			t.Error("a second lease for a step")
		}
		_ = l.End(w.t.Context(), "x")
		if err := l.End(w.t.Context(), "y"); err != nil {
			t.Errorf("a second end: %v", err)
		}
		none := w.begin("none")
		time.Sleep(3 * time.Minute)
		if closed(none.Over()) || none.Renew(w.t.Context()) != nil {
			t.Error("an empty lease has expired")
		}
		ctx, cancel := context.WithCancel(w.t.Context())
		cancel()
		if _, err := w.issuer.Begin(ctx, "late", []string{"git"}, 0); err == nil {
			t.Error("begun with a cancelled context")
		}
		_ = w.issuer.Close(w.t.Context())
		if _, err := w.issuer.Begin(w.t.Context(), "s", nil, 0); err == nil {
			t.Error("begun after Close")
		}
	})
}

func TestCredentialWords(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		words := func(secret, want string) {
			t.Helper()
			if c, err := w.issuer.Credential(secret); err == nil || !strings.Contains(err.Error(), want) || c.Value != nil {
				t.Errorf("%s: %v, want %s", secret, err, want)
			}
		}
		words("api", "no step")
		words("nonsense", "no step")
		l := w.begin("s", "api", "git")
		words("api", "yet")
		_, _ = l.Deliver(w.t.Context())
		words("git", "not for a header")
		c, _ := w.issuer.Credential("api")
		clear(c.Value) // the caller may change it
		if c, _ := w.issuer.Credential("api"); string(c.Value) != "the-value-of-api" {
			t.Errorf("value %q", c.Value)
		}
		w.issuer.Saw(audit.KindDNS, "s", []string{"git"}, 9)
		words("api", "revoked because of secret-in-dns")
		_ = l.End(w.t.Context(), "x")
		w.deliver("t", "api")
		_ = w.issuer.RevokeAll(w.t.Context(), "the sandbox is paused")
		words("api", "revoked because the sandbox is paused")
		l = w.deliver("u", "api")
		_ = l.End(w.t.Context(), "internal words")
		words("api", "the step has ended")
	})
}

// Repeated refusals are recorded at powers of two.
func TestRefused(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		l := w.begin("s", "git")
		for range 1000 {
			l.Refused(w.t.Context(), "the proof is of another step")
		}
		for n := range 1000 {
			l.Refused(w.t.Context(), strings.Repeat("x", n))
		}
		var got []string
		for _, ev := range w.log.events() {
			if ev.Secret.Op == audit.SecretRefuse && strings.HasPrefix(ev.Secret.Reason, "the proof") {
				got = append(got, ev.Secret.Reason)
			}
		}
		if len(got) != 10 || !strings.HasSuffix(got[9], "(512 times by now)") {
			t.Errorf("refusals %q", got)
		}
		if n := len(w.log.events()); n > 100 {
			t.Errorf("%d events", n)
		}
	})
}
