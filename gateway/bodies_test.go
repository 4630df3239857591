package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
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

// TestBodies concurrently sends bodies of all sizes and encodings over reused connections. Each host responds with the
// hash of the body that it received, and the guest can check each response.
func TestBodies(t *testing.T) {
	for _, guest := range []string{"HTTP/1.1", "HTTP/2"} {
		for _, host := range []string{"HTTP/1.1", "HTTP/2"} {
			t.Run(guest+" to "+host, func(t *testing.T) { checkBodies(t, guest, host, 6, 40) })
		}
	}
}

func checkBodies(t *testing.T, guest, host string, clients, requests int) {
	w := newKeyWorld(t, nil)
	w.keys.set("api", secrets.Credential{Header: "x-api-key", Value: []byte(apiValue), Placeholder: apiHolder})
	protocols := []string{"http/1.1"}
	if host == "HTTP/2" {
		protocols = []string{"h2", "http/1.1"}
	}
	w.bodyHost("a.example", protocols)
	var all sync.WaitGroup
	for n := range clients {
		var change []func(*http.Transport)
		if guest == "HTTP/2" {
			change = append(change, withH2)
		}
		client := w.client("a.example", append(change, func(t *http.Transport) {
			t.ExpectContinueTimeout = 5 * time.Second
			t.DialContext = func(context.Context, string, string) (net.Conn, error) {
				c := w.dial("a.example", 443)
				return c, c.SetDeadline(time.Now().Add(5 * time.Minute)) // it is used for a long time
			}
		})...)
		random := rand.New(rand.NewPCG(uint64(n), 7))
		all.Go(func() {
			for i := range requests {
				if err := sendBody(client, random); err != nil {
					t.Errorf("client %d, request %d: %v", n, i, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// bodyHost responds with the hash and the size of the request body, and with as many further bytes as requested.
func (w *world) bodyHost(name string, protocols []string) {
	handler := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Echo") != "" { // the response begins before the request ends
			control := http.NewResponseController(rw)
			if err := control.EnableFullDuplex(); r.ProtoMajor == 1 && err != nil {
				panic(err)
			}
			control.Flush()
			io.Copy(&flushing{rw, control}, r.Body)
			return
		}
		sum := sha256.New()
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(r.Body)
			if err != nil {
				http.Error(rw, err.Error(), 400)
				return
			}
			body = z
		}
		n, err := io.Copy(sum, body)
		if err != nil {
			http.Error(rw, fmt.Sprint(n, err), 400)
			return
		}
		var want int
		fmt.Sscan(r.Header.Get("X-Want"), &want)
		fmt.Fprintf(rw, "%s %d %s\n", r.Proto, n, hex.EncodeToString(sum.Sum(nil)))
		rw.Write(pattern(want))
	})
	w.newHostFor(name, protocols, handler)
}

// flushing flushes after each write.
type flushing struct {
	io.Writer
	control *http.ResponseController
}

func (f *flushing) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	return n, errors.Join(err, f.control.Flush())
}

// pattern returns text in which each position is identifiable.
func pattern(n int) []byte {
	var b bytes.Buffer
	for b.Len() < n {
		fmt.Fprintf(&b, "%08d ", b.Len())
	}
	return b.Bytes()[:n]
}

// sendBody makes one request with a body of random size, encoding and pace.
func sendBody(client *http.Client, d *rand.Rand) error {
	sizes := []int{0, 1, 10, 4095, 4096, 4097, 16383, 16384, 16385, 32 << 10, 65535, 70000, 200_000, 1 << 20}
	body := make([]byte, sizes[d.IntN(len(sizes))]+d.IntN(3))
	for i := range body {
		body[i] = byte(d.Uint32())
	}
	if d.IntN(3) == 0 { // the gateway holds back what may be the start of a secret
		for at := 0; at+40 < len(body); at += 40 + d.IntN(5000) {
			copy(body[at:], []string{apiValue[:d.IntN(len(apiValue))], apiHolder[:d.IntN(len(apiHolder))], hex.EncodeToString([]byte(apiValue))[:20]}[d.IntN(3)])
		}
	}
	sum := sha256.Sum256(body)
	sent := body
	var encoding string
	if d.IntN(4) == 0 {
		var z bytes.Buffer
		g := gzip.NewWriter(&z)
		g.Write(body)
		g.Close()
		sent, encoding = z.Bytes(), "gzip"
	}
	want := sizes[d.IntN(len(sizes))]
	req, err := http.NewRequest("POST", "https://a.example/v1/x", &pieces{b: sent, d: rand.New(rand.NewPCG(d.Uint64(), 1))})
	if err != nil {
		return err
	}
	if req.ContentLength = int64(len(sent)); d.IntN(2) == 0 {
		req.ContentLength = -1
	}
	req.Header.Set("X-Want", fmt.Sprint(want))
	if encoding != "" {
		req.Header.Set("Content-Encoding", encoding)
	}
	echo := d.IntN(4) == 0
	if echo {
		req.Header.Set("X-Echo", "1")
	} else if d.IntN(3) == 0 {
		req.Header.Set("Expect", "100-continue")
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("response ended after %d bytes: %w", len(answer), err)
	}
	if echo {
		if !bytes.Equal(answer, sent) || resp.StatusCode != 200 {
			return fmt.Errorf("sent %d bytes, and the response has %d different ones", len(sent), len(answer))
		}
		return nil
	}
	line, rest, _ := strings.Cut(string(answer), "\n")
	if proof := fmt.Sprintf("%s %d %s", strings.Fields(line + " x")[0], len(body), hex.EncodeToString(sum[:])); resp.StatusCode != 200 || line != proof {
		return fmt.Errorf("sent %d bytes (%d, %q), the host received: %d %.200s", len(body), req.ContentLength, encoding, resp.StatusCode, answer)
	}
	if rest != string(pattern(want)) {
		return fmt.Errorf("the response's %d bytes differ from the %d requested", len(rest), want)
	}
	return nil
}

// pieces is a body that is sent in pieces of random size, some of them delayed.
type pieces struct {
	b []byte
	d *rand.Rand
}

func (p *pieces) Read(to []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	if p.d.IntN(50) == 0 {
		time.Sleep(time.Duration(p.d.IntN(5)) * time.Millisecond)
	}
	n := copy(to[:min(len(to), 1+p.d.IntN(20000))], p.b)
	p.b = p.b[n:]
	return n, nil
}
