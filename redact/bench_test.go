package redact_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	ahocorasick "github.com/BobuSumisu/aho-corasick"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redact"
)

var benchKey = []byte("0123456789abcdef0123456789abcdef")

func secrets(n int) []string {
	rng := rand.New(rand.NewPCG(1, 1))
	out := make([]string, n)
	for i := range out {
		b := make([]byte, 20)
		for j := range b {
			b[j] = byte(rng.Uint32())
		}
		out[i] = "ghp_" + base64.RawURLEncoding.EncodeToString(b)
	}
	return out
}

func with(b *testing.B, n int) *redact.Redactor {
	r := redact.New(benchKey)
	for i, s := range secrets(n) {
		if err := r.Add(fmt.Sprintf("s%d", i), []byte(s)); err != nil {
			b.Fatal(err)
		}
	}
	return r
}

// prose returns about a megabyte of typical build output.
func prose() []byte {
	var out bytes.Buffer
	rng := rand.New(rand.NewPCG(2, 2))
	for out.Len() < 1<<20 {
		fmt.Fprintf(&out, "[%d/%d] Collecting package-%x (from -r requirements.txt)\n  Downloading https://files.example.org/%x/wheel-%d.%d.whl (%d kB)\n",
			rng.IntN(99), 99, rng.Uint32(), rng.Uint64(), rng.IntN(9), rng.IntN(99), rng.IntN(9999))
	}
	return out.Bytes()[:1<<20]
}

// measure runs f over n bytes and also reports the rate by the thread's CPU time, which does not include other work on
// the core.
func measure(b *testing.B, n int, f func()) {
	b.SetBytes(int64(n))
	spent, rounds := spend(b, f)
	b.ReportMetric(float64(n)*float64(rounds)/1e6/spent.Seconds(), "MB/cpu-s")
}

// spend runs f and returns the thread's CPU time, and how often f ran.
func spend(b *testing.B, f func()) (spent time.Duration, rounds int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := cpuTime(b)
	for b.Loop() {
		f()
		rounds++
	}
	spent = cpuTime(b) - before
	b.ReportMetric(float64(spent.Microseconds())/float64(rounds), "cpu-us/op")
	return spent, rounds
}

func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// texts returns texts like those that pass through a redactor, about a megabyte each.
func texts() map[string][]byte {
	rng := rand.New(rand.NewPCG(3, 3))
	noise := make([]byte, 3<<18)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	utf16 := make([]byte, 0, 1<<20)
	for _, c := range prose()[:1<<19] {
		utf16 = append(utf16, c, 0)
	}
	var dump bytes.Buffer
	for at := 0; dump.Len() < 1<<20; at += 16 {
		fmt.Fprintf(&dump, "%07o % x\n", at, noise[at:at+16])
	}
	return map[string][]byte{
		"dump":   dump.Bytes(),
		"log":    prose(),
		"base64": []byte(base64.StdEncoding.EncodeToString(noise)),
		"hex":    []byte(hex.EncodeToString(noise[:1<<19])),
		"binary": noise,
		"utf-16": utf16,
		"json":   bytes.Repeat([]byte(`{"level":"info","ts":"2026-01-02T03:04:05Z","msg":"caf\u00e9 \u4f60\u597d","path":"\/srv\/data","n":[1,2,3]}`+"\n"), 1<<20/100),
	}
}

func BenchmarkText(b *testing.B) {
	all := texts()
	for _, n := range []int{0, 1, 20, 100, 1000} {
		r := with(b, n)
		for _, kind := range slices.Sorted(maps.Keys(all)) {
			text := all[kind]
			if n != 100 && kind != "log" {
				continue
			}
			b.Run(fmt.Sprintf("bytes/%s/values=%d", kind, n), func(b *testing.B) {
				measure(b, len(text), func() { r.Bytes(text) })
			})
			b.Run(fmt.Sprintf("stream/%s/values=%d", kind, n), func(b *testing.B) {
				measure(b, len(text), func() {
					s := r.Stream()
					for p := range slices.Chunk(text, 32<<10) {
						s.Write(p)
					}
					s.Flush()
				})
			})
		}
	}
}

// BenchmarkHits has text with a value in some form every kilobyte.
func BenchmarkHits(b *testing.B) {
	r := with(b, 100)
	values := secrets(100)
	text := prose()
	rng := rand.New(rand.NewPCG(4, 4))
	for at := 0; at < len(text)-1024; at += 1024 {
		v := values[rng.IntN(len(values))]
		copy(text[at:], []string{v, base64.StdEncoding.EncodeToString([]byte(v)), hex.EncodeToString([]byte(v))}[rng.IntN(3)])
	}
	measure(b, len(text), func() { r.Bytes(text) })
}

// BenchmarkPeers measures alternatives for 100 values in the three most common forms: raw, base64 at three alignments,
// hex, without changed case, wrapping or escapes.
func BenchmarkPeers(b *testing.B) {
	var forms, quoted []string
	for _, s := range secrets(100) {
		forms = append(forms, s, hex.EncodeToString([]byte(s)))
		for off := range 3 {
			e := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", off) + s))
			forms = append(forms, e[(off*8+5)/6:(off+len(s))*8/6])
		}
	}
	for _, f := range forms {
		quoted = append(quoted, regexp.QuoteMeta(f))
	}
	r := with(b, 100)
	trie := ahocorasick.NewTrieBuilder().AddStrings(forms).Build()
	expr := regexp.MustCompile(strings.Join(quoted, "|"))
	for kind, text := range map[string][]byte{"log": prose(), "base64": texts()["base64"]} {
		b.Run("redact/"+kind, func(b *testing.B) {
			measure(b, len(text), func() { r.Bytes(text) })
		})
		b.Run("aho-corasick/"+kind, func(b *testing.B) {
			measure(b, len(text), func() { trie.Match(text) })
		})
		b.Run("regexp/"+kind, func(b *testing.B) {
			part := text[:32<<10] // a megabyte takes seconds
			measure(b, len(part), func() { expr.Match(part) })
		})
		b.Run("contains/"+kind, func(b *testing.B) {
			measure(b, len(text), func() {
				for _, f := range forms {
					if bytes.Contains(text, []byte(f)) {
						b.Fatal("found")
					}
				}
			})
		})
	}
}

// BenchmarkHostile has text made of the beginnings of values, which is expensive to redact.
func BenchmarkHostile(b *testing.B) {
	r := with(b, 100)
	var text []byte
	for _, s := range secrets(100) {
		for n := 9; n < len(s); n++ {
			text = append(append(text, s[:n]...), '\n')
		}
	}
	measure(b, len(text), func() { r.Bytes(text) })
}

func event() *audit.Event {
	return &audit.Event{
		Time: time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC), Observer: audit.Guest, Kind: audit.KindExec, Step: "agent",
		Exec: &audit.Exec{
			Proc: "b1c2d3e4-17-123456789", Parent: "b1c2d3e4-1-1", PID: 17, PPID: 1,
			Exe: "/usr/bin/git", Argv: []audit.Text{"git", "commit", "-q", "-m", "first version"}, Cwd: "/workspace",
		},
	}
}

func BenchmarkSeal(b *testing.B) {
	for _, n := range []int{0, 1, 20, 100} {
		b.Run(fmt.Sprintf("exec/values=%d", n), func(b *testing.B) {
			r, e := with(b, n), event()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Seal(e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("exit/values=5", func(b *testing.B) {
		r := with(b, 5)
		e := &audit.Event{Time: time.Now().UTC(), Observer: audit.Guest, Kind: audit.KindExit, Exit: &audit.Exit{Proc: "b1c2d3e4-17-123456789", PID: 17}}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.Seal(e); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkAdd adds a value to none, three to a hundred as a step would, and the largest possible one.
func BenchmarkAdd(b *testing.B) {
	add := func(b *testing.B, r *redact.Redactor, values map[string][]byte) {
		if err := r.AddAll(values); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		spend(b, func() { add(b, redact.New(benchKey), map[string][]byte{"v": []byte(secrets(1)[0])}) })
	})
	b.Run("three to 100", func(b *testing.B) {
		b.ReportAllocs()
		r, n := with(b, 100), 0
		spend(b, func() {
			step := map[string][]byte{}
			for _, name := range []string{"a", "b", "c"} {
				n++
				step[name] = fmt.Appendf(nil, "%d-%s-of-this-step-%d", n, secrets(1)[0], n*n)
			}
			if n > 300 {
				r, n = with(b, 100), 0
			}
			add(b, r, step)
		})
	})
	b.Run("16 KiB", func(b *testing.B) {
		b.ReportAllocs()
		pem := strings.Repeat("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n", 260)[:redact.MaxValue]
		spend(b, func() { add(b, redact.New(benchKey), map[string][]byte{"v": []byte(pem)}) })
	})
}

// BenchmarkMemory measures the memory of 100 values of 40 bytes.
func BenchmarkMemory(b *testing.B) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var keep []*redact.Redactor
	for b.Loop() {
		r := redact.New(benchKey)
		values := map[string][]byte{}
		for i := range 100 {
			values[fmt.Sprint("s", i)] = fmt.Appendf(nil, "%040d", i*7919+len(keep))
		}
		if err := r.AddAll(values); err != nil {
			b.Fatal(err)
		}
		keep = append(keep, r)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(keep)), "bytes-kept")
	runtime.KeepAlive(keep)
}
