package secrets

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redact"
)

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func sameSet(t *testing.T, got, want []string) {
	t.Helper()
	equal(t, slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)))
}

// The anomalies and their rules, all within 2 s.
func TestAnomalies(t *testing.T) {
	saw := func(kind audit.Kind, names ...string) func(*world) {
		return func(w *world) { w.issuer.Saw(kind, "s", names, 7) }
	}
	shown := func(secret, host string) func(*world) {
		return func(w *world) {
			w.issuer.Presented(w.t.Context(), secret, host, "header x-y", 7)
		}
	}
	cases := []struct {
		name   string
		do     func(*world)
		rule   audit.Rule // empty: none
		secret string
	}{
		{"dns", saw(audit.KindDNS, "git"), "secret-in-dns", "git"},
		{"output", saw(audit.KindOutput, "npm"), "secret-in-output", "npm"},
		{"flow", saw(audit.KindFlow, "api"), "secret-in-flow", "api"},
		{"argv", saw(audit.KindExec, "git"), "", ""},
		{"path", saw(audit.KindFile, "git"), "", ""},
		{"request", saw(audit.KindHTTP, "git"), "", ""},
		{"own event", saw(audit.KindFinding, "git"), "", ""},
		{"masked only, output", saw(audit.KindOutput, "seen"), "", ""},
		{"masked only, dns", saw(audit.KindDNS, "seen"), "secret-in-dns", "seen"},
		{"not ours", saw(audit.KindDNS, "hers"), "", ""},
		{"nothing", saw(audit.KindDNS), "", ""},
		{"own host", shown("git", "github.com"), "", ""},
		{"other host", shown("git", "github.com.evil.net"), "secret-to-other-host", "git"},
		{"any host", shown("npm", "example.org"), "", ""},
		{"placeholder", shown("api", "github.com"), "placeholder-to-other-host", "api"},
		{"unknown", shown("hers", "github.com"), "", ""},
		{"echoed", func(w *world) { w.issuer.Echoed("api", "api.example", 7) }, "secret-after-answer", "api"},
		{"echoed, unknown", func(w *world) { w.issuer.Echoed("hers", "api.example", 7) }, "", ""},
		{"misuse", func(w *world) { w.vault.last().misused("read of secret/data/other from 10.1.1.1") }, "token-misuse", "tok"},
	}
	for _, c := range cases {
		for _, action := range []string{"", "freeze", "end"} {
			t.Run(c.name+" "+action, func(t *testing.T) {
				inWorld(t, func(c *Config) { c.Action = action }, func(w *world) {
					l := w.deliver("s", "git", "npm", "api", "seen", "tok")
					for range 3 {
						c.do(w)
						time.Sleep(500 * time.Millisecond)
					}
					synctest.Wait()
					found := w.log.findings()
					if c.rule == "" {
						if len(found)+len(w.acted()) > 0 || l.Err() != nil {
							t.Errorf("findings %+v, acts %v, %v", found, w.acted(), l.Err())
						}
						return
					}
					want := audit.Finding{Rule: c.rule, Secret: c.secret, Seq: 7, Action: cmp.Or(action, "revoke")}
					if c.rule == "token-misuse" {
						want.Seq = 0
					}
					if len(found) != 1 || found[0].Detail == "" {
						t.Fatalf("findings %+v", found)
					}
					found[0].Detail = ""
					if found[0] != want {
						t.Errorf("finding %+v, want %+v", found[0], want)
					}
					if !closed(l.Over()) || !Anomalous(l.Err()) || Expired(l.Err()) || w.vault.alive()+w.local.alive() > 0 {
						t.Errorf("alive: %v", l.Err())
					}
					acts := w.acted()
					if len(acts) != 1 || !strings.HasPrefix(acts[0], cmp.Or(action, "revoke")+" "+string(c.rule)+": ") {
						t.Errorf("acts %q", acts)
					}
					ops := w.log.ops()
					if i, j := slices.Index(ops, "s revoke"), slices.Index(ops, "finding "+string(c.rule)+" "+c.secret); i < 0 || j < i {
						t.Errorf("ops %q", ops)
					}
				})
			})
		}
	}
}

// A secret of a step that has ended.
func TestAfterStep(t *testing.T) {
	inWorld(t, func(c *Config) { c.Action = "end" }, func(w *world) {
		_ = w.deliver("one", "git", "api").End(w.t.Context(), "done")
		two := w.deliver("two", "npm")
		for range 2 {
			w.issuer.Saw(audit.KindOutput, "two", []string{"git"}, 11)
			if w.issuer.Presented(w.t.Context(), "git", "github.com", "body", 12) || w.issuer.Presented(w.t.Context(), "api", "github.com", "header", 13) {
				t.Error("in scope after its step")
			}
			synctest.Wait()
		}
		sameSet(t, w.log.ops()[len(w.log.ops())-2:], []string{"finding secret-after-step git", "finding secret-after-step api"})
		if len(w.acted()) != 2 {
			t.Errorf("acts %q", w.acted())
		}
		if two.Err() != nil {
			t.Errorf("a step without the secret lost its credentials: %v", two.Err())
		}
		// A later step with the secret is in scope again.
		three := w.deliver("three", "git")
		if !w.issuer.Presented(w.t.Context(), "git", "github.com", "header", 14) || three.Err() != nil {
			t.Error("not in scope")
		}
	})
}

// Two secrets with one value: the redactor has one of the names.
func TestTwins(t *testing.T) {
	inWorld(t, func(c *Config) {
		c.Bindings = append(c.Bindings, Binding{Name: "hub", From: "vault:hub#token", Deliver: Deliver{Env: "HUB"}, Hosts: only("hub.example")})
	}, func(w *world) {
		w.vault.values = func(r Request) map[string][]byte {
			out := map[string][]byte{}
			for _, b := range r.Bindings {
				out[b.Name] = []byte("the-same-value")
			}
			return out
		}
		_ = w.deliver("one", "git").End(w.t.Context(), "done")
		two := w.deliver("two", "hub")
		if got := w.issuer.Find([]byte("the-same-value")); len(got) != 1 || got[0] != "git" {
			t.Fatalf("found %v", got)
		}
		if !w.issuer.Presented(w.t.Context(), "git", "hub.example", "header", 1) || two.Err() != nil {
			t.Error("not in scope under its other name")
		}
		w.issuer.Saw(audit.KindOutput, "two", []string{"git"}, 2)
		if !Anomalous(two.Err()) {
			t.Errorf("the step that has it under its other name: %v", two.Err())
		}
		synctest.Wait()
		if f := w.log.findings(); len(f) != 1 || f[0].Secret != "hub" {
			t.Errorf("findings %+v", f)
		}
	})
}

// The revocation does not wait for the record, and Saw waits for neither.
func TestSawNeverBlocks(t *testing.T) {
	inWorld(t, func(c *Config) { c.Action = "freeze" }, func(w *world) {
		w.deliver("s", "git", "api")
		w.vault.set(func() { w.vault.revokeTakes = time.Second })
		thaw := w.log.stall()
		start := time.Now()
		for seq := range uint64(10_000) {
			w.issuer.Saw(audit.KindOutput, "s", []string{"git", "api"}, seq)
			w.issuer.Presented(w.t.Context(), "git", "evil.net", "body", seq)
		}
		if d := time.Since(start); d > 0 {
			t.Errorf("blocked for %v", d)
		}
		if _, err := w.issuer.Credential("api"); err == nil {
			t.Error("still available")
		}
		time.Sleep(2 * time.Second)
		if w.vault.alive() > 0 || len(w.acted()) != 3 {
			t.Errorf("after 2 s %d alive, acts %q", w.vault.alive(), w.acted())
		}
		thaw()
		synctest.Wait()
		sameSet(t, w.log.ops()[4:], []string{"s revoke", "finding secret-in-output api", "finding secret-in-output git", "finding secret-to-other-host git"})
	})
}

// A broker that hangs does not delay the finding, the freeze, or another lease's revocation.
func TestAnomalyWithBrokerDown(t *testing.T) {
	inWorld(t, func(c *Config) { c.Action = "freeze" }, func(w *world) {
		a, b := w.deliver("a", "git"), w.deliver("b", "npm")
		w.vault.set(func() { w.vault.revokeTakes = time.Hour })
		w.issuer.Saw(audit.KindDNS, "a", []string{"git"}, 1)
		w.issuer.Saw(audit.KindDNS, "b", []string{"npm"}, 2)
		time.Sleep(2 * time.Second)
		if w.local.alive() > 0 || !Anomalous(a.Err()) || !Anomalous(b.Err()) {
			t.Error("one lease waited for the other")
		}
		f := w.log.findings()
		if len(f) != 2 || len(w.acted()) != 2 {
			t.Fatalf("findings %+v, acts %q", f, w.acted())
		}
		if i := slices.IndexFunc(f, func(f audit.Finding) bool { return f.Secret == "git" }); !strings.Contains(f[i].Detail, "vault has not") {
			t.Errorf("detail %q", f[i].Detail)
		}
	})
}

func TestKnownLate(t *testing.T) {
	var asked []string
	recorded := func(name string, find func([]byte) bool) (uint64, bool) {
		asked = append(asked, name)
		for seq, text := range []string{"nothing", "[REDACTED:git:01234567]", "Z2V0IHRo" + b64("the-value-of-git")} {
			if find([]byte(text)) {
				return uint64(seq), true
			}
		}
		return 0, false
	}
	inWorld(t, func(c *Config) { c.Recorded = recorded }, func(w *world) {
		l := w.deliver("s", "git", "npm", "tok")
		_ = l.End(w.t.Context(), "done")
		_ = w.deliver("t", "git", "npm").End(w.t.Context(), "done")
		equal(t, asked, []string{"npm", "git"}) // once per value, and no new token
		f := w.log.findings()
		if len(f) != 1 || f[0].Rule != "secret-known-late" || f[0].Seq != 2 || f[0].Secret != "git" {
			t.Errorf("findings %+v", f)
		}
	})
}

// The recorder calls Saw within Record, with the masked values.
func TestRecorderHook(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		l := w.deliver("s", "git", "npm")
		rec := audit.NewRecorder(w.log, w.red)
		put := func(ev audit.Event) uint64 {
			ev.Observer, ev.Step = audit.Guest, "s"
			seq, err := rec.Record(w.t.Context(), ev)
			if err != nil {
				t.Fatal(err)
			}
			return seq
		}
		put(audit.Event{Kind: audit.KindExec, Exec: &audit.Exec{Argv: []audit.Text{"curl", "-H", "x: the-value-of-git"}}})
		put(audit.Event{Kind: audit.KindFile, File: &audit.File{Op: audit.FileWrite, Path: "/tmp/the-value-of-npm"}})
		put(audit.Event{Kind: audit.KindOutput, Output: &audit.Output{Stream: "stdout", Text: "nothing to see"}})
		if l.Err() != nil {
			t.Fatal(l.Err())
		}
		seq := put(audit.Event{Kind: audit.KindDNS, DNS: &audit.DNS{Name: "the-value-of-git.evil.net"}})
		if !Anomalous(l.Err()) {
			t.Error("not revoked")
		}
		synctest.Wait()
		if f := w.log.findings(); len(f) != 1 || f[0].Secret != "git" || f[0].Seq != seq {
			t.Errorf("findings %+v", f)
		}
	})
}

// A step prints values, split at every offset, and markers.
func TestPrinted(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		_ = w.begin("first", "git").End(w.t.Context(), "the redactor knows it now")
		marker := w.red.String("the-value-of-git")
		cases := []struct {
			text string
			seen bool
		}{
			{"nothing", false},
			{"the answer is " + marker + ".", false},
			{"the answer is " + marker + "the-value-of-git.", true},
			{"dGhlIGFu" + b64("the-value-of-git"), true},
			{"the-value-of-git", true},
		}
		for n, c := range cases {
			for size := 1; size < 20; size += 3 {
				step := fmt.Sprint(n, size)
				l := w.deliver(step, "git")
				p := w.issuer.Printed(step)
				for piece := range slices.Chunk([]byte(c.text), size) {
					p.Write(piece, 5)
				}
				p.End(5)
				if Anomalous(l.Err()) != c.seen {
					t.Errorf("%q in pieces of %d: %v", c.text, size, l.Err())
				}
				_ = l.End(w.t.Context(), "done")
			}
		}
	})
}

// FuzzFind: a value or a placeholder is found, whatever precedes or follows it, including markers and parts of them;
// markers alone are not found.
func FuzzFind(f *testing.F) {
	red := redact.New([]byte("a key"))
	i := NewIssuer(Config{Run: "r", Redactor: red})
	if err := i.learn(f.Context(), "s", map[string][]byte{"git": []byte("the-value-of-git")}); err != nil {
		f.Fatal(err)
	}
	place, err := i.placeholders.make("api")
	if err != nil {
		f.Fatal(err)
	}
	marker := string(i.values.markers[0])
	f.Add("x", "y")
	f.Add(marker, marker)
	f.Add("[REDACTED:git:", marker[1:])
	f.Add(marker+"the-value-of", "-git"+marker)
	f.Add("custody-api-", "the-value-of-gi")
	f.Fuzz(func(t *testing.T, before, after string) {
		if got := i.Find([]byte(before + "the-value-of-git" + after)); !slices.Contains(got, "git") {
			t.Errorf("value: %q", got)
		}
		if got := i.Find([]byte(before + place + after)); !slices.Contains(got, "api") {
			t.Errorf("placeholder: %q", got)
		}
		if got := i.Find([]byte(before + marker + after)); len(got) > 0 && len(red.Find([]byte(before))) == 0 && len(red.Find([]byte(after))) == 0 &&
			len(red.Find([]byte(before+"\x00"+after))) == 0 && !strings.Contains(before+after, "custody-api-") {
			t.Errorf("a marker was mistaken for its value: %q in %q", got, before+marker+after)
		}
	})
}
