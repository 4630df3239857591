package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/secrets"
)

// failing is a host that fails as a request specifies, and checks that the bodies it receives are complete.
type failing struct {
	t    *testing.T
	mu   sync.Mutex
	seen map[string]int // how often each request was received
}

// ServeHTTP implements http.Handler.
func (f *failing) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	id, how := r.Header.Get("X-Id"), r.Header.Get("X-Fail")
	f.mu.Lock()
	f.seen[id]++
	if f.seen[id] > 1 {
		f.t.Errorf("%s %s came %d times", r.Proto, id, f.seen[id])
	}
	f.mu.Unlock()
	switch how {
	case "early":
		rw.Header().Set("WWW-Authenticate", "Basic")
		http.Error(rw, "who are you?", http.StatusUnauthorized)
		return
	case "early, half read":
		io.CopyN(io.Discard, r.Body, r.ContentLength/2+10)
		http.Error(rw, "who are you?", http.StatusUnauthorized)
		return
	case "cut":
		io.CopyN(io.Discard, r.Body, 5000)
		f.cut(rw)
	}
	sum := sha256.New()
	n, err := io.Copy(sum, r.Body)
	if err != nil {
		return // cut by the guest or the gateway: not a request
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != r.Header.Get("X-Sum") {
		f.t.Errorf("%s %s (%s): a complete body of %d bytes differs from the one sent", r.Proto, id, how, n)
	}
	switch how {
	case "no answer":
		f.cut(rw)
	case "last":
		rw.Header().Set("Connection", "close")
	}
	fmt.Fprintf(rw, "%s %d", id, n)
	if how == "gone after" {
		http.NewResponseController(rw).Flush()
		time.Sleep(time.Millisecond)
		f.cut(rw)
	}
}

// cut ends the connection, or in HTTP/2 the stream.
func (f *failing) cut(rw http.ResponseWriter) {
	if c, _, err := http.NewResponseController(rw).Hijack(); err == nil {
		c.Close()
	}
	panic(http.ErrAbortHandler)
}

// TestEarlyAnswer: a host responds before the body has arrived. An HTTP/1 guest receives "Connection: close"; without it
// the guest would reuse the connection.
func TestEarlyAnswer(t *testing.T) {
	w := newKeyWorld(t, nil)
	w.newHost("a.example", 443, &failing{t: t, seen: map[string]int{}})
	c := tls.Client(w.dial("a.example", 443), w.trusted())
	head := "POST /v1/x HTTP/1.1\r\nHost: a.example\r\nX-Id: 1\r\nX-Fail: early\r\nContent-Length: 1000000\r\n\r\n"
	if _, err := io.WriteString(c, head+"the beginning"); err != nil {
		t.Fatal(err)
	}
	answer := hear(c)
	if !strings.HasPrefix(answer, "HTTP/1.1 401 ") || !strings.Contains(answer, "\r\nConnection: close\r\n") {
		t.Errorf("%q", answer)
	}
}

// TestBodiesOfFailingHosts sends bodies to hosts that respond before they have read the body, or end connections during
// the body, before the response or right after it, while other requests use the same connections. A host receives no
// request twice, and no incomplete one that looks complete; each response belongs to its request; no request waits for
// long.
func TestBodiesOfFailingHosts(t *testing.T) {
	for _, guest := range []string{"HTTP/1.1", "HTTP/2"} {
		for _, host := range []string{"HTTP/1.1", "HTTP/2"} {
			t.Run(guest+" to "+host, func(t *testing.T) { failBodies(t, guest, host, 6, 40) })
		}
	}
}

func failBodies(t *testing.T, guest, host string, clients, requests int) {
	w := newKeyWorld(t, nil)
	w.keys.set("api", secrets.Credential{Header: "x-api-key", Value: []byte(apiValue), Placeholder: apiHolder})
	protocols := []string{"http/1.1"}
	if host == "HTTP/2" {
		protocols = []string{"h2", "http/1.1"}
	}
	w.newHostFor("a.example", protocols, &failing{t: t, seen: map[string]int{}})
	var all sync.WaitGroup
	for n := range clients {
		var change []func(*http.Transport)
		atOnce := 1 // on one connection
		if guest == "HTTP/2" {
			change = append(change, withH2)
			atOnce = 4
		}
		client := w.client("a.example", append(change, func(t *http.Transport) {
			t.ExpectContinueTimeout = time.Second
			t.DialContext = func(context.Context, string, string) (net.Conn, error) {
				c := w.dial("a.example", 443)
				return c, c.SetDeadline(time.Now().Add(5 * time.Minute))
			}
		})...)
		client.Timeout = 20 * time.Second
		for k := range atOnce {
			seed := rand.Uint64()
			d := rand.New(rand.NewPCG(seed, 11))
			all.Go(func() {
				for i := range requests / atOnce {
					id := fmt.Sprintf("%d-%d-%d-%d", seed, n, k, i)
					how := []string{"", "", "", "early", "early, half read", "cut", "no answer", "last", "gone after"}[d.IntN(9)]
					if err := sendFailing(client, d, id, how); err != nil {
						t.Errorf("request %s (%s): %v", id, how, err)
					}
				}
			})
		}
	}
	all.Wait()
}

// sendFailing makes one request. It may fail if how allows that; it must not hang, or receive the response to another
// request.
func sendFailing(client *http.Client, d *rand.Rand, id, how string) error {
	body := make([]byte, []int{1, 4096, 16384, 70_000, 300_000, 1 << 20}[d.IntN(6)]+d.IntN(3))
	for i := range body {
		body[i] = byte(d.Uint32())
	}
	sum := sha256.Sum256(body)
	req, err := http.NewRequest("POST", "https://a.example/v1/x", &pieces{b: body, d: rand.New(rand.NewPCG(d.Uint64(), 1))})
	if err != nil {
		return err
	}
	if req.ContentLength = int64(len(body)); d.IntN(2) == 0 {
		req.ContentLength = -1
	}
	if d.IntN(4) == 0 {
		req.Header.Set("Expect", "100-continue")
	}
	req.Header.Set("X-Id", id)
	req.Header.Set("X-Fail", how)
	req.Header.Set("X-Sum", hex.EncodeToString(sum[:]))
	began := time.Now()
	resp, err := client.Do(req)
	if took := time.Since(began); took > time.Minute {
		return fmt.Errorf("it took %v: %v", took, err)
	}
	if err != nil {
		if how == "" || how == "last" {
			return err
		}
		return nil
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	switch {
	case err != nil && how != "gone after" && !strings.HasPrefix(how, "early"):
		return err
	case resp.StatusCode == 200 && err == nil && string(answer) != fmt.Sprintf("%s %d", id, len(body)):
		return fmt.Errorf("the answer of another request: %q", answer)
	case resp.StatusCode == 200 || resp.StatusCode == 401 && strings.HasPrefix(how, "early"):
		return nil
	case resp.StatusCode == 502 && (how != "" && how != "last" || resp.ProtoMajor == 2): // another request may have ended the host's connection
		return nil
	}
	return fmt.Errorf("%d %q", resp.StatusCode, answer)
}
