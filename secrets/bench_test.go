package secrets

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redact"
)

func benchIssuer(b *testing.B) *Issuer {
	red := redact.New([]byte("a key"))
	f := newFake("vault")
	i := NewIssuer(Config{
		Run: "r-1", Recorder: audit.NewRecorder(&memory{red: red}, red), Redactor: red, Brokers: map[string]Broker{"vault": f},
		Bindings: []Binding{
			{Name: "git", From: "vault:git#token", Deliver: Deliver{Env: "GIT_TOKEN"}},
			{Name: "api", From: "vault:api#key", Deliver: Deliver{Header: "x-api-key", Env: "API_KEY"}},
			{Name: "tok", From: "vault:agents/x", Deliver: Deliver{Token: "VAULT_TOKEN"}},
		},
	})
	b.Cleanup(func() { _ = i.Close(b.Context()) })
	return i
}

// BenchmarkStep measures a step's credentials without the broker and the disk: begin, deliver, renew, end. Each token
// adds a value to the redactor.
func BenchmarkStep(b *testing.B) {
	for _, names := range [][]string{{"git", "api"}, {"git", "api", "tok"}} {
		for _, before := range []int{0, 100} {
			b.Run(fmt.Sprintf("tokens=%v/before=%d", slices.Contains(names, "tok"), before), func(b *testing.B) {
				i := benchIssuer(b)
				n := 0
				step := func() {
					n++
					l, err := i.Begin(b.Context(), fmt.Sprint("s", n), names, time.Minute)
					if err != nil {
						b.Fatal(err)
					}
					if _, err := l.Deliver(b.Context()); err != nil {
						b.Fatal(err)
					}
					if err := l.Renew(b.Context()); err != nil {
						b.Fatal(err)
					}
					if err := l.End(b.Context(), "done"); err != nil {
						b.Fatal(err)
					}
				}
				for range before {
					step()
				}
				for b.Loop() {
					step()
				}
			})
		}
	}
}

// BenchmarkAnomaly measures the time from a sighting to the broker's confirmation of the revocation. p99 is the 99th
// percentile.
func BenchmarkAnomaly(b *testing.B) {
	i := benchIssuer(b)
	var all []time.Duration
	n := 0
	for b.Loop() {
		n++
		l, err := i.Begin(b.Context(), fmt.Sprint("s", n), []string{"git"}, time.Minute)
		if err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		i.Saw(audit.KindOutput, l.step, []string{"git"}, 1)
		<-l.held()[0].done
		all = append(all, time.Since(start))
		_ = l.End(b.Context(), "done")
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
}
