package pattern

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/redact"
	"golang.org/x/sys/unix"
)

const benchSize = 1 << 20

// prose is typical build output.
func prose() []byte {
	var out bytes.Buffer
	rng := rand.New(rand.NewPCG(2, 2))
	for out.Len() < benchSize {
		fmt.Fprintf(&out, "[%d/%d] Collecting package-%x (from -r requirements.txt)\n  Downloading https://files.example.org/%x/wheel-%d.%d.whl (%d kB)\n",
			rng.IntN(99), 99, rng.Uint32(), rng.Uint64(), rng.IntN(9), rng.IntN(99), rng.IntN(9999))
	}
	return out.Bytes()[:benchSize]
}

// requests is a server's log, with keywords of rules in each line.
func requests() []byte {
	var out bytes.Buffer
	rng := rand.New(rand.NewPCG(3, 3))
	what := []string{"token refreshed for user", "api call authorized", "access granted, key id", "password changed by", "secret version", "no credentials for"}
	for out.Len() < benchSize {
		fmt.Fprintf(&out, "2026-11-21T04:%02d:%02d.%03dZ INFO auth/session.go:%d %s %d path=/api/v1/keys/%d status=%d took=%dms\n", rng.IntN(60), rng.IntN(60),
			rng.IntN(1000), rng.IntN(500), what[rng.IntN(len(what))], rng.IntN(9999), rng.IntN(99), 200+rng.IntN(4), rng.IntN(900))
	}
	return out.Bytes()[:benchSize]
}

// source is the Go source of this repository.
func source(t testing.TB) []byte {
	t.Helper()
	var all []byte
	err := filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		all = append(all, text...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func BenchmarkFind(b *testing.B) {
	rs := rules(b)
	all := source(b)
	for len(all) < benchSize {
		all = append(all, all...)
	}
	for _, in := range []struct {
		name string
		text []byte
	}{{"build", prose()}, {"requests", requests()}, {"source", all[:benchSize]}} {
		b.Run(in.name, func(b *testing.B) { find(b, rs, in.text) })
	}
	b.Run("argument", func(b *testing.B) { find(b, rs, []byte("--message=first version of the key server")) })
}

// find also reports megabytes per second of CPU time, which does not depend on other load on the machine.
func find(b *testing.B, rs *Rules, text []byte) {
	b.SetBytes(int64(len(text)))
	hits, began := 0, cpu(b)
	for b.Loop() {
		hits = 0
		for i := 0; i < len(text); i += 32 << 10 {
			hits += len(rs.Find(nil, text[i:min(len(text), i+32<<10)]))
		}
	}
	b.ReportMetric(float64(len(text))*float64(b.N)/1e6/(cpu(b)-began).Seconds(), "MB/cpu-s")
	b.ReportMetric(float64(hits), "hits")
}

func cpu(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// worst are texts that are made to be expensive.
func worst() map[string][]byte {
	fill := func(unit string) []byte { return bytes.Repeat([]byte(unit), benchSize/len(unit)+1)[:benchSize] }
	all := map[string][]byte{
		"key":          fill("key"),
		"key=":         fill("key="),
		"keywords":     fill("access token api_key secret password credential auth "),
		"curl":         fill("curl "),
		"curl -u":      fill("curl -u "),
		"curl lines":   fill("curl -H x\n"),
		"curl match":   fill("curl -u user:pass1234 "),
		"begin":        fill("-----BEGIN PRIVATE KEY---- "),
		"begin key":    fill("-----BEGIN PRIVATE KEY-----\n"),
		"kind":         fill("kind: secret data: "),
		"nuget":        fill(`<add key="Password" value="`),
		"jwt":          fill("eyeyeyeyeyeyeyeyeyeyey.eyeyeyeyeyeyeyeyeyeyeyey/"),
		"mmk":          fill("_mmk "),
		"sourcegraph":  fill("sourcegraph "),
		"hex":          fill("sourcegraph 0123456789abcdef0123456789abcdef01234567 "),
		"proj":         fill("sk-proj-"),
		"facebook":     fill("facebook 1234567890123456|"),
		"brands":       fill("twitter yandex mailgun gitter sentry kraken heroku jfrog linear "),
		"brands=":      fill("twitter=yandex=mailgun=gitter=sentry=kraken=heroku=jfrog=linear="),
		"low entropy":  fill("api_key = aaaaaaaaaaaaaaaaaaaa1 "),
		"all matches":  fill("api_key = Zq8xW3vN5tRb7LkP2mYc "),
		"one long key": append([]byte("api_key = "), bytes.Repeat([]byte("a1B2/"), benchSize/5)...),
	}
	rng := rand.New(rand.NewPCG(5, 5))
	for _, mixed := range []struct {
		name  string
		words []string
	}{
		{"mixed =", []string{"key", "=", "a", "-", ".", "token", " ", ":"}},
		{"mixed curl", []string{"curl ", "\n", "-u ", "\"", ":", "aaa", "'", "-H "}},
		{"mixed yaml", []string{"kind: secret", "data:", "\n", " ", "a: ", "aGVsbG8gd29ybGQ", "|"}},
		{"mixed jwt", []string{"ey", ".", "AAAAAAAAAAAAAAAAAA", "-", "/"}},
		{"mixed brands", []string{"twitter", "yandex", "mailgun", "key", "=", ":", "aaaaaaaaaaaaaaaa", " ", "\""}},
		{"mixed literal", nil},
	} {
		words := mixed.words
		if words == nil {
			rs, _ := New()
			for _, p := range rs.factors {
				for _, l := range p.list.literals {
					words = append(words, l.text, strings.ToUpper(l.text))
				}
			}
		}
		var b []byte
		for len(b) < benchSize {
			b = append(b, words[rng.IntN(len(words))]...)
		}
		all[mixed.name] = b[:benchSize]
	}
	return all
}

func BenchmarkWorst(b *testing.B) {
	rs := rules(b)
	for name, text := range worst() {
		b.Run(name, func(b *testing.B) { find(b, rs, text) })
	}
}

// BenchmarkTiers measures the whole redactor with a hundred values, with and without rules, for text without secrets.
func BenchmarkTiers(b *testing.B) {
	texts := map[string][]byte{"build": prose(), "requests": requests()}
	for name, detectors := range map[string][]redact.Detector{"values": nil, "values+rules": {rules(b)}} {
		r := redact.New(bytes.Repeat([]byte("k"), 32), detectors...)
		values := map[string][]byte{}
		rng := rand.New(rand.NewPCG(9, 9))
		for i := range 100 {
			v := make([]byte, 20)
			for j := range v {
				v[j] = byte(rng.Uint32())
			}
			values[fmt.Sprintf("s%d", i)] = []byte("ghp_" + base64.RawURLEncoding.EncodeToString(v))
		}
		if err := r.AddAll(values); err != nil {
			b.Fatal(err)
		}
		for in, text := range texts {
			b.Run(name+"/bytes/"+in, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				began := cpu(b)
				for b.Loop() {
					for i := 0; i < len(text); i += 32 << 10 {
						r.Bytes(text[i : i+32<<10])
					}
				}
				b.ReportMetric(float64(len(text))*float64(b.N)/1e6/(cpu(b)-began).Seconds(), "MB/cpu-s")
			})
			b.Run(name+"/stream/"+in, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				began := cpu(b)
				for b.Loop() {
					s := r.Stream()
					for i := 0; i < len(text); i += 32 << 10 {
						s.Write(text[i : i+32<<10])
					}
					s.Flush()
				}
				b.ReportMetric(float64(len(text))*float64(b.N)/1e6/(cpu(b)-began).Seconds(), "MB/cpu-s")
			})
		}
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		if _, err := New(); err != nil {
			b.Fatal(err)
		}
	}
}
