package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/llm"
	"github.com/custody-project/custody/netpolicy"
)

// bulk is a host that sends as many bytes as the request's path specifies.
func bulk() http.Handler {
	chunk := make([]byte, 64<<10)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		n := 0
		fmt.Sscanf(r.URL.Path, "/%d", &n)
		rw.Header().Set("Content-Length", fmt.Sprint(n))
		for n > 0 {
			k, err := rw.Write(chunk[:min(n, len(chunk))])
			if err != nil {
				return
			}
			n -= k
		}
	})
}

// directly returns a client that connects to the host without a gateway.
func (w *world) directly(h *host, change ...func(*http.Transport)) *http.Client {
	c := w.client("a.example", change...)
	t := c.Transport.(*http.Transport)
	t.TLSClientConfig = &tls.Config{RootCAs: w.roots}
	t.DialContext = func(_ context.Context, _, _ string) (net.Conn, error) { return net.Dial("tcp", h.addr.String()+":443") }
	return c
}

type way struct {
	name   string
	client *http.Client
}

// ways returns the ways to one host: directly, spliced and opened.
func ways(b *testing.B) []way {
	var list []way
	for _, kind := range []string{"direct", "spliced", "opened"} {
		r := rule("a.example")
		if kind == "opened" {
			r = rule("a.example", withHTTP(nil, nil))
		}
		w := newWorld(b, []netpolicy.Rule{r})
		h := w.newHost("a.example", 443, bulk())
		for _, version := range []string{"http1", "http2"} {
			var change []func(*http.Transport)
			if version == "http2" {
				change = append(change, withH2)
			}
			c := w.client("a.example", change...)
			if kind == "direct" {
				c = w.directly(h, change...)
			}
			list = append(list, way{kind + "/" + version, c})
		}
	}
	return list
}

// BenchmarkThroughput repeatedly downloads 64 MiB over one TLS connection.
func BenchmarkThroughput(b *testing.B) {
	const size = 64 << 20
	for _, w := range ways(b) {
		b.Run(w.name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				get(b, w.client, size)
			}
		})
	}
}

// BenchmarkRequest makes small sequential requests on one connection.
func BenchmarkRequest(b *testing.B) {
	for _, w := range ways(b) {
		b.Run(w.name, func(b *testing.B) {
			for b.Loop() {
				get(b, w.client, 100)
			}
		})
	}
}

// BenchmarkConnection makes a new TLS connection for each small request.
func BenchmarkConnection(b *testing.B) {
	for _, w := range ways(b) {
		b.Run(w.name, func(b *testing.B) {
			for b.Loop() {
				get(b, w.client, 100)
				w.client.CloseIdleConnections()
			}
		})
	}
}

// BenchmarkFiftyConnections makes 50 concurrent TLS connections, each for a small request, and reports the duration of
// one from its start to the end of the response. The record is on a disk.
func BenchmarkFiftyConnections(b *testing.B) {
	for _, kind := range []string{"direct", "spliced", "opened"} {
		r := rule("a.example")
		if kind == "opened" {
			r = rule("a.example", withHTTP(nil, nil))
		}
		w := newWorld(b, []netpolicy.Rule{r}, func(c *Config) { c.Recorder = audit.NewRecorder(newDisk(b), c.Redactor) })
		h := w.newHost("a.example", 443, bulk())
		alone := func(t *http.Transport) { t.DisableKeepAlives = true }
		c := w.client("a.example", alone)
		if kind == "direct" {
			c = w.directly(h, alone)
		}
		b.Run(kind, func(b *testing.B) {
			var mu sync.Mutex // guards took
			var took []time.Duration
			for b.Loop() {
				var all sync.WaitGroup
				for range 50 {
					all.Go(func() {
						began := time.Now()
						resp, err := c.Get("https://a.example/100")
						if err != nil {
							b.Error(err)
							return
						}
						defer resp.Body.Close()
						if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != 100 {
							b.Error(n, err)
						}
						mu.Lock()
						defer mu.Unlock()
						took = append(took, time.Since(began))
					})
				}
				all.Wait()
			}
			percentiles(b, took)
		})
	}
}

func percentiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

func get(b *testing.B, c *http.Client, size int64) {
	b.Helper()
	resp, err := c.Get(fmt.Sprintf("https://a.example/%d", size))
	if err != nil {
		b.Fatal(err)
	}
	n, err := io.Copy(io.Discard, resp.Body)
	if resp.Body.Close(); err != nil || n != size {
		b.Fatal(n, err)
	}
}

// BenchmarkSplice passes bytes after a ClientHello without TLS at the ends, to measure only the gateway, and compares it
// with a connection without gateway.
func BenchmarkSplice(b *testing.B) {
	w := newWorld(b, []netpolicy.Rule{rule("a.example")})
	addr := newAddr()
	w.zone.set("a.example", addr)
	l, err := net.Listen("tcp", addr.String()+":443")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	const size = 256 << 20
	chunk := make([]byte, 256<<10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := readRecord(c, nil, 0, recordPayload); err != nil {
					return
				}
				c.Write([]byte{typeApplicationData, 3, 3, 0, 0}) // not a ServerHello, so the gateway does not wait for more
				for range size / len(chunk) {
					if _, err := c.Write(chunk); err != nil {
						return
					}
				}
			}()
		}
	}()
	hello := rawHello(b, &tls.Config{ServerName: "a.example"})
	for name, dial := range map[string]func() net.Conn{
		"direct":  func() net.Conn { return must(net.Dial("tcp", addr.String()+":443")) },
		"spliced": func() net.Conn { return w.dial("a.example", 443) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			buf := make([]byte, 256<<10)
			for b.Loop() {
				c := dial()
				c.Write(hello)
				n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, buf)
				if c.Close(); err != nil || n != size+recordHeader {
					b.Fatal(n, err)
				}
			}
		})
	}
}

// firstByte returns how long the guest waits for the first byte of a streamed response, in microseconds.
func firstByte(b *testing.B, c *http.Client) {
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		resp, err := c.Post("https://a.example/v1/messages", "application/json", strings.NewReader(question))
		if err != nil {
			b.Fatal(err)
		}
		first := make([]byte, 1)
		if _, err := io.ReadFull(resp.Body, first); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			b.Fatal(err)
		}
		resp.Body.Close()
	}
	percentiles(b, took)
}

// BenchmarkFirstByte calls an LLM API that streams its response: without a gateway, through one that only inspects, and
// through one that injects a credential, masks, parses the call and records to a disk.
func BenchmarkFirstByte(b *testing.B) {
	for _, version := range []string{"http1", "http2"} {
		var change []func(*http.Transport)
		if version == "http2" {
			change = append(change, withH2)
		}
		onDisk := func(c *Config) {
			c.Calls = llm.NewTracker(0, nil)
			c.Recorder = audit.NewRecorder(newDisk(b), c.Redactor)
		}
		w := newWorld(b, []netpolicy.Rule{rule("a.example", withHTTP(nil, nil))})
		h := w.newHost("a.example", 443, model(nil))
		k := newKeyWorld(b, model(nil), onDisk)
		for i := range 98 {
			if err := k.red.Add(fmt.Sprintf("other%d", i), fmt.Appendf(nil, "other-secret-%d-%x", i*7919, i*i*104729)); err != nil {
				b.Fatal(err)
			}
		}
		b.Run("direct/"+version, func(b *testing.B) { firstByte(b, w.directly(h, change...)) })
		b.Run("opened/"+version, func(b *testing.B) { firstByte(b, w.client("a.example", change...)) })
		b.Run("credential,masked,recorded/"+version, func(b *testing.B) { firstByte(b, k.client("a.example", change...)) })
	}
}

// newDisk returns a log on this machine's disk.
func newDisk(b *testing.B) *wal.Log {
	key, _, err := note.GenerateKey(nil, "bench")
	if err != nil {
		b.Fatal(err)
	}
	signer, err := note.NewSigner(key)
	if err != nil {
		b.Fatal(err)
	}
	l, err := wal.Create(filepath.Join(b.TempDir(), "r-test"), wal.Options{Run: "r-test", Sealer: statement.NewSealer(signer, statement.Facts{})})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close(context.Background(), wal.Sealed) })
	return l
}
